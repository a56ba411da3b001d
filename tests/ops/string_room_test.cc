// Strings that kernels make count against the limit of memory: what would pass it is refused before
// it is there, by each kernel that may make more of them than it is given.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/pool_allocator.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

constexpr int64_t kTexts = 1 << 15;
constexpr size_t kSize = size_t{1} << 20;

template <typename T>
Tensor Filled(int64_t n, T value) {
  Tensor tensor = Tensor::Allocate(kDTypeOf<T>, Shape{n}).value();
  std::fill_n(tensor.data<T>(), n, value);
  return tensor;
}
Tensor Texts(int64_t n, size_t size) {
  Tensor tensor = Tensor::Allocate(DT_STRING, Shape{n}).value();
  for (int64_t i = 0; i < n; ++i) tensor.strings()[i].assign(size, 'a');
  return tensor;
}
Tensor OneText(size_t size) { return Tensor::String(std::string(size, 'a')); }

// With a limit of 64 MiB beside what is there.
class StringRoomTest : public ::testing::Test {
 protected:
  StringRoomTest() { HostPool().SetLimit(HostPool().bytes_mapped() + reserved_ + (64 << 20)); }
  ~StringRoomTest() override {
    HostPool().SetLimit(limit_);
    EXPECT_EQ(HostPool().bytes_reserved(), reserved_);
  }

  static void ExpectRefused(const Status& status, const std::string& op) {
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << op << ": " << status;
    for (const std::string& text : {"(" + op + ")", std::string("--memory_limit")})
      EXPECT_NE(status.message().find(text), std::string::npos) << op << ": " << status;
  }

  const int64_t limit_ = HostPool().limit(), reserved_ = HostPool().bytes_reserved();
};

TEST_F(StringRoomTest, KernelsThatWouldPassTheLimitAreRefused) {
  const Tensor one = OneText(kSize), text = one.Reshaped(Shape{1});
  const Tensor zeros = Filled<int32_t>(kTexts, 0), sizes = Filled<int32_t>(kTexts, kSize);
  const Tensor zero = Tensor::Scalar<int32_t>(0), empty = Tensor::String("");
  const std::vector<Tensor> forty(40, text);
  std::vector<Tensor> forty_and_axis = forty;
  forty_and_axis.push_back(zero);
  const struct {
    std::string op;
    std::vector<Tensor> inputs;
    Attrs attrs = {};
  } runs[] = {
      {"StringJoin", forty},
      {"ConcatV2", forty_and_axis},
      {"Pack", forty},
      {"ReduceJoin", {Texts(40, kSize), zero}},
      {"StringUpper", {Texts(40, kSize)}},
      {"EncodeBase64", {Texts(30, kSize)}},
      {"GatherV2", {text, zeros, zero}},
      {"GatherNd", {text, zeros.Reshaped(Shape{kTexts, 1})}},
      {"ScatterNd",
       {Filled<int32_t>(40, 0).Reshaped(Shape{40, 1}), Texts(40, kSize), Filled<int32_t>(1, 1)}},
      {"TensorScatterAdd", {text, Filled<int32_t>(40, 0).Reshaped(Shape{40, 1}), Texts(40, kSize)}},
      {"SelectV2", {Filled(kTexts, true), one, one}},
      {"Substr", {one, zeros, sizes}},
      {"SparseToDense", {Filled<int64_t>(1, 0), Filled<int64_t>(1, kTexts), empty, one}},
      {"AsString", {Filled<int8_t>(4 * kTexts, 1)}, {{"width", int64_t{1000}}}},
      {"DecodeCSV", {Texts(kTexts, 0), text}},
      {"StringSplit", {OneText(2 * kSize).Reshaped(Shape{1}), empty}},
  };
  for (const auto& run : runs) ExpectRefused(RunOp(run.op, run.inputs, run.attrs).status(), run.op);
}

TEST_F(StringRoomTest, ALookupAndADequeueThatWouldPassTheLimitAreRefused) {
  ResourceManager resources;
  KernelRunner runner(&Kernels(), {.pools = nullptr, .resources = &resources});
  const auto run = [&](const std::string& op, std::vector<Tensor> inputs, Attrs attrs = {}) {
    return testing::RunOp(runner, Ops(), op, std::move(inputs), std::move(attrs));
  };
  const Tensor one = OneText(kSize);
  const Tensor table =
      (*run("MutableHashTableV2", {}, {{"key_dtype", DT_INT64}, {"value_dtype", DT_STRING}}))[0];
  ASSERT_TRUE(
      run("LookupTableInsertV2", {table, Filled<int64_t>(1, 0), one.Reshaped(Shape{1})}).ok());
  ExpectRefused(run("LookupTableFindV2", {table, Filled<int64_t>(kTexts, 0), one}).status(),
                "LookupTableFindV2");
  const std::vector<DType> types{DT_STRING};
  const Tensor queue = (*run("FIFOQueueV2", {},
                             {{"component_types", types},
                              {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}}}))[0];
  for (int i = 0; i < 100; ++i)  // which all share one buffer
    ASSERT_TRUE(run("QueueEnqueueV2", {queue, one}, {{"Tcomponents", types}}).ok());
  ExpectRefused(
      run("QueueDequeueManyV2", {queue, Tensor::Scalar<int32_t>(100)}, {{"component_types", types}})
          .status(),
      "QueueDequeueManyV2");
}

TEST_F(StringRoomTest, AnOutputKeepsItsRoomUntilItGoesAndASharedOneCountsOnce) {
  const auto counted = [this] { return HostPool().bytes_reserved() - reserved_; };
  {
    const Tensor joined = Run1("StringJoin", {OneText(kSize), OneText(kSize)});
    EXPECT_NEAR(static_cast<double>(counted()), 2.0 * kSize, 64);
    const Tensor same = Run1("Identity", {joined});
    EXPECT_NEAR(static_cast<double>(counted()), 2.0 * kSize, 64);
  }
  EXPECT_EQ(counted(), 0);
}

}  // namespace
}  // namespace monograph
