// Tables: filled once or changed, by tensors and from files.
#include "ops/lookup/lookup.h"

#include <algorithm>

#include "base/pool_allocator.h"
#include "executor/step/outcome.h"
#include "tests/ops/testing.h"
#include "tests/temporary_folder.h"

namespace monograph::testing {
namespace {

Tensor Words(std::initializer_list<const char*> words) {
  Tensor tensor = Tensor::Allocate(DT_STRING, Shape{static_cast<int64_t>(words.size())}).value();
  int64_t i = 0;
  for (const char* word : words) tensor.strings()[i++] = word;
  return tensor;
}

class LookupTest : public ::testing::Test {
 protected:
  LookupTest() : runner_(&Kernels(), {.pools = nullptr, .resources = &resources_}) {}

  Result<std::vector<Tensor>> Run(const std::string& op, std::vector<Tensor> inputs,
                                  Attrs attrs = {}) {
    return testing::RunOp(runner_, Ops(), op, std::move(inputs), std::move(attrs));
  }
  Tensor Table(const std::string& op, DType key, DType value) {
    return (*Run(op, {}, {{"key_dtype", key}, {"value_dtype", value}, {"shared_name", "t"}}))[0];
  }
  std::string Find(const Tensor& table, const Tensor& keys, const Tensor& fallback) {
    const auto found = Run("LookupTableFindV2", {table, keys, fallback});
    return found.ok() ? (*found)[0].ToString() : found.status().ToString();
  }

  ResourceManager resources_;
  KernelRunner runner_;
};

TEST_F(LookupTest, ATableIsFilledOnce) {
  const Tensor table = Table("HashTableV2", DT_STRING, DT_INT64);
  const Tensor minus = Tensor::Scalar<int64_t>(-1);
  EXPECT_NE(Find(table, Words({"a"}), minus).find("FAILED_PRECONDITION"), std::string::npos);
  const Tensor keys = Words({"a", "b"}), values = Tensor::Vector<int64_t>({5, 6});
  ASSERT_TRUE(Run("InitializeTableV2", {table, keys, values}).ok());
  EXPECT_EQ(Find(table, Words({"b", "x", "a"}), minus), "int64[3] = 6 -1 5");
  EXPECT_TRUE(Run("InitializeTableV2", {table, keys, values}).ok());
  EXPECT_TRUE(Run("LookupTableImportV2", {table, keys, values}).ok());
  EXPECT_EQ(
      Run("InitializeTableV2", {table, keys, Tensor::Vector<int64_t>({5, 7})}).status().code(),
      Code::kFailedPrecondition);
  EXPECT_EQ(Run("LookupTableInsertV2", {table, keys, values}).status().code(),
            Code::kUnimplemented);
  EXPECT_EQ(Run("LookupTableFindV2", {table, values, minus}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ((*Run("LookupTableSizeV2", {table}))[0].scalar<int64_t>(), 2);
}

TEST_F(LookupTest, AMutableTableChanges) {
  const Tensor table = Table("MutableHashTableV2", DT_INT64, DT_FLOAT);
  const Tensor keys = Tensor::Vector<int64_t>({1, 2, 3}), zero = Tensor::Scalar(0.0f);
  ASSERT_TRUE(Run("LookupTableInsertV2", {table, keys, Tensor::Vector<float>({1, 2, 3})}).ok());
  ASSERT_TRUE(
      Run("LookupTableInsertV2", {table, Tensor::Vector<int64_t>({2}), Tensor::Vector<float>({20})})
          .ok());
  ASSERT_TRUE(Run("LookupTableRemoveV2", {table, Tensor::Vector<int64_t>({3})}).ok());
  EXPECT_EQ(Find(table, keys, zero), "float[3] = 1 20 0");
  const auto all =
      Run("LookupTableExportV2", {table}, {{"Tkeys", DT_INT64}, {"Tvalues", DT_FLOAT}});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)[0].ToString(), "int64[2] = 1 2");
  EXPECT_EQ((*all)[1].ToString(), "float[2] = 1 20");
  ASSERT_TRUE(
      Run("LookupTableImportV2", {table, Tensor::Vector<int64_t>({7}), Tensor::Vector<float>({70})})
          .ok());
  EXPECT_EQ((*Run("LookupTableSizeV2", {table}))[0].scalar<int64_t>(), 1);
}

TEST_F(LookupTest, ATableThatWouldPassTheLimitOfMemoryIsRefused) {
  const Tensor table = Table("MutableHashTableV2", DT_INT64, DT_INT64);
  constexpr int64_t kChunk = 50'000;
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(HostPool().bytes_in_use() + (32 << 20));
  const auto insert = [&](int64_t chunk) {
    Tensor keys = Tensor::Allocate(DT_INT64, Shape{kChunk}).value();
    for (int64_t i = 0; i < kChunk; ++i) keys.data<int64_t>()[i] = chunk * kChunk + i;
    return Run("LookupTableInsertV2", {table, keys, keys}).status();
  };
  int64_t chunk = 0;
  Status full;
  while (full.ok() && chunk < 40) full = insert(chunk++);
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full;
  EXPECT_NE(full.message().find("table 't' has no room"), std::string::npos) << full;
  // What is there may be set anew, and what goes makes room.
  EXPECT_TRUE(insert(0).ok());
  for (int64_t at = 0; at < chunk; ++at) {
    Tensor keys = Tensor::Allocate(DT_INT64, Shape{kChunk}).value();
    for (int64_t i = 0; i < kChunk; ++i) keys.data<int64_t>()[i] = at * kChunk + i;
    ASSERT_TRUE(Run("LookupTableRemoveV2", {table, keys}).ok());
  }
  EXPECT_TRUE(insert(chunk).ok());
  HostPool().SetLimit(limit);
}

TEST_F(LookupTest, WhatMemoryDoesNotSufficeForLeavesATableAsItWas) {
  const Tensor minus = Tensor::Scalar<int64_t>(-1), old = Tensor::Vector<int64_t>({7, 500'000});
  Tensor many = Tensor::Allocate(DT_INT64, Shape{1'000'000}).value();
  for (int64_t i = 0; i < many.elements(); ++i) many.data<int64_t>()[i] = i;
  const int64_t limit = HostPool().limit();
  const Tensor changes = Table("MutableHashTableV2", DT_INT64, DT_INT64);
  ASSERT_TRUE(Run("LookupTableInsertV2", {changes, old, old}).ok());
  HostPool().SetLimit(HostPool().bytes_in_use() + (32 << 20));
  for (const char* op : {"LookupTableInsertV2", "LookupTableImportV2"}) {
    const Status full = Run(op, {changes, many, many}).status();
    EXPECT_EQ(full.code(), Code::kResourceExhausted) << full;
    EXPECT_EQ((*Run("LookupTableSizeV2", {changes}))[0].scalar<int64_t>(), 2) << op;
    EXPECT_EQ(Find(changes, Tensor::Vector<int64_t>({0, 7, 500'000}), minus),
              "int64[3] = -1 7 500000")
        << op;
  }
  // One key so often has room, as it is there already.
  std::fill_n(many.data<int64_t>(), many.elements(), 7);
  EXPECT_TRUE(Run("LookupTableInsertV2", {changes, many, many}).ok());
  HostPool().SetLimit(limit);
}

TEST_F(LookupTest, AnAbortedImportLeavesATableAsItWas) {
  const Tensor table = Table("MutableHashTableV2", DT_INT64, DT_INT64);
  const Tensor old = Tensor::Vector<int64_t>({7});
  ASSERT_TRUE(Run("LookupTableImportV2", {table, old, old}).ok());
  StepOutcome outcome;
  outcome.Settle(StepOutcome::kAborted);
  KernelRunner aborted(&Kernels(), {.resources = &resources_, .outcome = &outcome});
  Tensor none = Tensor::Vector<int64_t>({});
  EXPECT_EQ(
      testing::RunOp(aborted, Ops(), "LookupTableImportV2", {table, none, none}).status().code(),
      Code::kCancelled);
  EXPECT_EQ((*Run("LookupTableSizeV2", {table}))[0].scalar<int64_t>(), 1);
}

// What they compute: tests/golden/graphs/tables.
TEST_F(LookupTest, ADenseTableByReferenceHasNoDeletedKey) {
  const Tensor table =
      (*Run("_MutableDenseHashTable", {Tensor::Scalar<int64_t>(0)},
            {{"key_dtype", DT_INT64}, {"value_dtype", DT_FLOAT}, {"initial_num_buckets", 4}}))[0];
  const Tensor keys = Tensor::Vector<int64_t>({-1, 5}), values = Tensor::Vector<float>({1, 2});
  ASSERT_TRUE(Run("LookupTableInsertV2", {table, keys, values}).ok());
  EXPECT_EQ(Find(table, keys, Tensor::Scalar(0.0f)), "float[2] = 1 2");
  EXPECT_NE(Find(table, Tensor::Scalar<int64_t>(0), Tensor::Scalar(0.0f)).find("empty_key"),
            std::string::npos);
}

TEST_F(LookupTest, ADenseTableOfMoreBucketsThanMemoryHoldsIsRefusedWhenItIsExported) {
  const Attrs attrs{{"key_dtype", DT_STRING},
                    {"value_dtype", DT_FLOAT},
                    {"max_load_factor", 1e-30f},
                    {"initial_num_buckets", int64_t{1} << 40}};
  const Tensor table = (*Run("MutableDenseHashTableV2", {Words({""}), Words({"-"})}, attrs))[0];
  const Tensor key = Words({"a"}).Reshaped(Shape{1, 1}), value = Tensor::Vector<float>({1});
  ASSERT_TRUE(Run("LookupTableInsertV2", {table, key, value}).ok());  // of 2^62 buckets now
  EXPECT_EQ(Find(table, key, Tensor::Scalar(0.0f)), "float[1] = 1");
  const Status full =
      Run("LookupTableExportV2", {table}, {{"Tkeys", DT_STRING}, {"Tvalues", DT_FLOAT}}).status();
  EXPECT_TRUE(full.code() == Code::kResourceExhausted || full.code() == Code::kInvalidArgument)
      << full;
}

// Keys of several texts are apart though their letters in a row are the same.
TEST_F(LookupTest, ADenseTableHasKeysOfSeveralTexts) {
  const Tensor table =
      (*Run("MutableDenseHashTableV2", {Words({"", ""}), Words({"-", ""})},
            {{"key_dtype", DT_STRING}, {"value_dtype", DT_INT64}, {"initial_num_buckets", 8}}))[0];
  const Tensor keys = Words({"ab", "c", "a", "bc"}).Reshaped(Shape{2, 2});
  ASSERT_TRUE(Run("LookupTableInsertV2", {table, keys, Tensor::Vector<int64_t>({1, 2})}).ok());
  EXPECT_EQ(Find(table, keys, Tensor::Scalar<int64_t>(0)), "int64[2] = 1 2");
  const auto all =
      Run("LookupTableExportV2", {table}, {{"Tkeys", DT_STRING}, {"Tvalues", DT_INT64}});
  ASSERT_TRUE(all.ok()) << all.status();
  const Tensor again =
      (*Run("MutableDenseHashTableV2", {Words({"", ""}), Words({"-", ""})},
            {{"key_dtype", DT_STRING}, {"value_dtype", DT_INT64}, {"shared_name", "again"}}))[0];
  ASSERT_TRUE(Run("LookupTableImportV2", {again, (*all)[0], (*all)[1]}).ok());
  EXPECT_EQ(Find(again, keys, Tensor::Scalar<int64_t>(0)), "int64[2] = 1 2");
}

// What a graph sees of the values before it runs.
TEST_F(LookupTest, ShapesAreSeenWhereTheTableIs) {
  Graph graph(&Ops());
  const auto add = [&](const char* op, std::vector<Endpoint> inputs, Attrs attrs) {
    const auto id = graph.AddNode({.name = std::string("node") + std::to_string(graph.num_nodes()),
                                   .op = op,
                                   .inputs = inputs,
                                   .attrs = std::make_shared<const Attrs>(std::move(attrs))});
    EXPECT_TRUE(id.ok()) << id.status();
    return Endpoint{id.ok() ? *id : 0, 0};
  };
  const auto given = [&](DType dtype, PartialShape shape) {
    return add("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  };
  const Attrs types{{"key_dtype", DT_INT64}, {"value_dtype", DT_FLOAT}};
  Attrs of_two = types;
  of_two.Set("value_shape", PartialShape{2});
  const Endpoint zero = given(DT_INT64, PartialShape::Scalar());
  const Endpoint plain = add("MutableHashTableV2", {}, types);
  const Endpoint tensors = add("MutableHashTableOfTensors", {}, of_two);
  const Endpoint dense = add("MutableDenseHashTableV2", {zero, zero}, of_two);
  const auto found = [&](const char* op, Endpoint table, PartialShape keys) {
    return graph.shape(add(op, {table, given(DT_INT64, std::move(keys)), given(DT_FLOAT, {})}, {}))
        .ToString();
  };
  EXPECT_EQ(found("LookupTableFindV2", plain, {5, -1}), "[5,?]");
  EXPECT_EQ(found("LookupTableFind", tensors, {5, -1}), "[5,?,2]");
  EXPECT_EQ(found("LookupTableFindV2", dense, {5}), "[5,2]");
  EXPECT_EQ(found("LookupTableFindV2", dense, {5, 3}), "[5,2]");
  EXPECT_EQ(found("LookupTableFindV2", dense, {5, -1}), "<unknown>");
  EXPECT_EQ(found("LookupTableFindV2", given(DT_RESOURCE, {}), {5}), "<unknown>");
  const Attrs exported{{"Tkeys", DT_INT64}, {"Tvalues", DT_FLOAT}};
  const auto values = [&](const char* op, Endpoint table) {
    return graph.shape({add(op, {table}, exported).node, 1}).ToString();
  };
  EXPECT_EQ(values("LookupTableExportV2", plain), "[?]");
  EXPECT_EQ(values("LookupTableExport", tensors), "[?,2]");
  EXPECT_EQ(values("LookupTableExportV2", dense), "[?,?]");
}

TEST_F(LookupTest, AFileFillsATable) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("words", "one\t10\ntwo\t20\n");
  const Tensor table = Table("HashTableV2", DT_STRING, DT_INT64);
  const auto fill = [&](int64_t key, int64_t value, int64_t size) {
    return Run("InitializeTableFromTextFileV2", {table, Tensor::String(path)},
               {{"key_index", key}, {"value_index", value}, {"vocab_size", size}})
        .status();
  };
  EXPECT_EQ(fill(0, 2, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(fill(0, 1, 3).code(), Code::kInvalidArgument);
  ASSERT_TRUE(fill(0, 1, 2).ok()) << fill(0, 1, 2);
  EXPECT_EQ(Find(table, Words({"two", "one", "six"}), Tensor::Scalar<int64_t>(-1)),
            "int64[3] = 20 10 -1");
}

}  // namespace
}  // namespace monograph::testing
