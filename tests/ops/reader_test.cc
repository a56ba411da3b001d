// Readers: the records of files whose names stand in a queue; files read, written and found.
#include "ops/reader/reader.h"

#include <zlib.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <limits>

#include "base/crc32c.h"
#include "base/pool_allocator.h"
#include "graph/wire.h"
#include "tests/ops/testing.h"
#include "tests/temporary_folder.h"

namespace monograph::testing {
namespace {

std::string TfRecord(const std::string& value) {
  const uint64_t length = value.size();
  std::string head(reinterpret_cast<const char*>(&length), 8);
  const auto crc = [](const std::string& bytes) {
    const uint32_t masked = MaskedCrc32c(AddToCrc32c(0, bytes.data(), bytes.size()));
    return std::string(reinterpret_cast<const char*>(&masked), 4);
  };
  return head + crc(head) + value + crc(value);
}

class ReaderTest : public ::testing::Test {
 protected:
  ReaderTest() : runner_(&Kernels(), {.pools = nullptr, .resources = &resources_}) {}

  Result<std::vector<Tensor>> Run(const std::string& op, std::vector<Tensor> inputs,
                                  Attrs attrs = {}) {
    return testing::RunOp(runner_, Ops(), op, std::move(inputs), std::move(attrs));
  }
  // A queue of the files, closed.
  Tensor Queue(const std::vector<std::string>& files) {
    const std::string name = "queue" + std::to_string(queues_++);
    const Tensor queue = (*Run("FIFOQueueV2", {},
                               {{"component_types", std::vector<DType>{DT_STRING}},
                                {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}},
                                {"shared_name", name}}))[0];
    for (const std::string& file : files) {
      EXPECT_TRUE(Run("QueueEnqueueV2", {queue, Tensor::String(file)},
                      {{"Tcomponents", std::vector<DType>{DT_STRING}}})
                      .ok());
    }
    EXPECT_TRUE(Run("QueueCloseV2", {queue}).ok());
    return queue;
  }
  Tensor Reader(const std::string& op, Attrs attrs = {}) {
    attrs.Set("shared_name", "reader" + std::to_string(queues_++));
    auto made = Run(op, {}, std::move(attrs));
    EXPECT_TRUE(made.ok()) << made.status();
    return (*made)[0];
  }
  // "key=value" with the folder left out of the key, or the failure's code.
  std::string Next(const Tensor& reader, const Tensor& queue) {
    const auto read = Run("ReaderReadV2", {reader, queue});
    if (!read.ok()) return std::string(CodeName(read.status().code()));
    const std::string& key = *(*read)[0].strings();
    return key.substr(key.rfind('/') + 1) + "=" + (*read)[1].strings()->substr(0, size_t{1} << 20);
  }
  std::vector<std::string> All(const Tensor& reader, const Tensor& queue) {
    std::vector<std::string> all;
    do {
      all.push_back(Next(reader, queue));
    } while (all.back().find('=') != std::string::npos && all.size() < 20);
    return all;
  }

  const TemporaryFolder folder_;
  ResourceManager resources_;
  KernelRunner runner_;
  int queues_ = 0;
};

using Strings = std::vector<std::string>;

TEST_F(ReaderTest, LinesOfFilesOneAfterTheOther) {
  const std::string a = folder_.Write("a", "head\none\r\n\ntwo"), b = folder_.Write("b", ""),
                    c = folder_.Write("c", "head\nthree\n");
  const Tensor reader = Reader("TextLineReaderV2", {{"skip_header_lines", int64_t{1}}});
  EXPECT_EQ(All(reader, Queue({a, b, c})),
            (Strings{"a:2=one", "a:3=", "a:4=two", "c:2=three", "OUT_OF_RANGE"}));
  EXPECT_EQ((*Run("ReaderNumRecordsProducedV2", {reader}))[0].scalar<int64_t>(), 4);
  EXPECT_EQ((*Run("ReaderNumWorkUnitsCompletedV2", {reader}))[0].scalar<int64_t>(), 3);
  ASSERT_TRUE(Run("ReaderResetV2", {reader}).ok());
  EXPECT_EQ((*Run("ReaderNumRecordsProducedV2", {reader}))[0].scalar<int64_t>(), 0);
}

TEST_F(ReaderTest, RecordsPlainAndCompressed) {
  const std::string records = TfRecord("first") + TfRecord("") + TfRecord(std::string(70000, 'x'));
  const std::string plain = folder_.Write("r", records), packed = folder_.File("z");
  gzFile file = gzopen(packed.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, records.data(), static_cast<unsigned>(records.size())),
            static_cast<int>(records.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
  for (const bool gzip : {false, true}) {
    const Tensor reader =
        Reader("TFRecordReaderV2", {{"compression_type", std::string(gzip ? "GZIP" : "")}});
    const Strings all = All(reader, Queue({gzip ? packed : plain}));
    ASSERT_EQ(all.size(), 4u);
    EXPECT_EQ(all[0], (gzip ? "z:0=first" : "r:0=first"));
    EXPECT_EQ(all[1], (gzip ? "z:21=" : "r:21="));
    EXPECT_EQ(all[2].size(), 5u + 70000u);
    EXPECT_EQ(all[3], "OUT_OF_RANGE");
  }
}

TEST_F(ReaderTest, ADamagedRecordIsNamed) {
  std::string record = TfRecord("value");
  record[14] ^= 1;
  const std::string damaged = folder_.Write("d", record),
                    cut = folder_.Write("c", TfRecord("value").substr(0, 18));
  const Tensor reader = Reader("TFRecordReaderV2");
  EXPECT_EQ(Next(reader, Queue({damaged})), "DATA_LOSS");
  EXPECT_EQ(Next(reader, Queue({cut})), "DATA_LOSS");
  EXPECT_EQ(Next(reader, Queue({folder_.File("absent")})), "NOT_FOUND");
  EXPECT_EQ(Next(Reader("TFRecordReaderV2", {{"compression_type", std::string("GZIP")}}),
                 Queue({damaged})),
            "DATA_LOSS");
}

TEST_F(ReaderTest, RecordsOfOneLengthAndWholeFiles) {
  const std::string file = folder_.Write("f", "HHaabbccF");
  const Attrs layout{
      {"header_bytes", int64_t{2}}, {"record_bytes", int64_t{2}}, {"footer_bytes", int64_t{1}}};
  EXPECT_EQ(All(Reader("FixedLengthRecordReaderV2", layout), Queue({file})),
            (Strings{"f:0=aa", "f:1=bb", "f:2=cc", "OUT_OF_RANGE"}));
  Attrs hops = layout;
  hops.Set("hop_bytes", int64_t{3});
  EXPECT_EQ(All(Reader("FixedLengthRecordReaderV2", hops), Queue({file})),
            (Strings{"f:0=aa", "f:1=bc", "OUT_OF_RANGE"}));
  EXPECT_EQ(All(Reader("WholeFileReaderV2"), Queue({file})),
            (Strings{"f=HHaabbccF", "OUT_OF_RANGE"}));
  EXPECT_EQ(All(Reader("IdentityReaderV2"), Queue({"x"})), (Strings{"x=x", "OUT_OF_RANGE"}));
  const auto many = Run("ReaderReadUpToV2", {Reader("FixedLengthRecordReaderV2", layout),
                                             Queue({file, file}), Tensor::Scalar<int64_t>(10)});
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ((*many)[1].shape(), Shape{3});  // of one file
}

// The bytes are TensorFlow's.
TEST_F(ReaderTest, AReaderOfWholeFilesHasAState) {
  using namespace std::string_literals;  // NOLINT(build/namespaces)
  const std::string file = folder_.Write("f", "one\n");
  std::string read_once = "\x08\x01\x10\x01\x18\x01";
  wire_format::PutBytes(&read_once, 4, file);
  for (const bool whole : {true, false}) {
    const Tensor reader = Reader(whole ? "WholeFileReaderV2" : "IdentityReaderV2");
    const auto state = [&] { return *(*Run("ReaderSerializeStateV2", {reader}))[0].strings(); };
    const auto restore = [&](const std::string& bytes) {
      return Run("ReaderRestoreStateV2", {reader, Tensor::String(bytes)}).status();
    };
    const auto counts = [&] {
      return std::vector{(*Run("ReaderNumRecordsProducedV2", {reader}))[0].scalar<int64_t>(),
                         (*Run("ReaderNumWorkUnitsCompletedV2", {reader}))[0].scalar<int64_t>()};
    };
    using Counts = std::vector<int64_t>;
    EXPECT_EQ(state(), "");
    EXPECT_EQ(Next(reader, Queue({file})), whole ? "f=one\n" : "f=" + file);
    EXPECT_EQ(counts(), (Counts{1, 1}));
    EXPECT_EQ(state(), read_once);
    EXPECT_TRUE(restore("\x08\x05\x10\x05\x18\x07").ok());
    EXPECT_EQ(counts(), (Counts{7, 5}));
    EXPECT_EQ(state(), "\x08\x05\x10\x05\x18\x07");
    EXPECT_TRUE(restore("\x08\x04\x10\x07").ok());
    EXPECT_NE(Next(reader, Queue({file})), "");
    EXPECT_EQ(counts(), (Counts{1, 5}));
    EXPECT_TRUE(restore("\x2a\x01q\x18\x03").ok());  // a field of a later time
    EXPECT_EQ(counts(), (Counts{3, 0}));
    EXPECT_TRUE(restore(read_once).ok());
    EXPECT_EQ(state(), read_once);
    EXPECT_EQ(Run("ReaderRestoreStateV2", {reader, Tensor::Allocate(DT_STRING, Shape{2}).value()})
                  .status()
                  .code(),
              Code::kInvalidArgument);
    EXPECT_EQ(state(), read_once);
    // What cannot be a state resets the reader.
    for (const std::string& bytes :
         {"junk"s, "\0\x05"s, "\x08"s, "\x08\x05\x10\x04\x18\x07"s, "\x22\xff\xff\xff\xff\x0f"s,
          "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s}) {
      EXPECT_TRUE(restore(read_once).ok());
      EXPECT_EQ(restore(bytes).code(), Code::kInvalidArgument) << bytes;
      EXPECT_EQ(counts(), (Counts{0, 0}));
      EXPECT_EQ(state(), "");
    }
  }
  for (const char* op : {"TextLineReaderV2", "TFRecordReaderV2"}) {
    const Tensor reader = Reader(op);
    EXPECT_EQ(Run("ReaderSerializeStateV2", {reader}).status().code(), Code::kUnimplemented);
    EXPECT_EQ(Run("ReaderRestoreStateV2", {reader, Tensor::String("")}).status().code(),
              Code::kUnimplemented);
  }
}

// Queues whose order or batches are of their own kind.
TEST_F(ReaderTest, APaddingQueueFillsUpABatch) {
  const Tensor queue = (*Run("PaddingFIFOQueueV2", {},
                             {{"component_types", std::vector<DType>{DT_INT32, DT_STRING}},
                              {"shapes", std::vector<PartialShape>{{-1, 2}, {-1}}}}))[0];
  const Attrs types{{"Tcomponents", std::vector<DType>{DT_INT32, DT_STRING}}};
  Tensor word = Tensor::Allocate(DT_STRING, Shape{1}).value();
  word.strings()[0] = "w";
  ASSERT_TRUE(
      Run("QueueEnqueueV2", {queue, Tensor::FromValues<int32_t>({1, 2}, {1, 2}), word}, types)
          .ok());
  ASSERT_TRUE(Run("QueueEnqueueV2",
                  {queue, Tensor::FromValues<int32_t>({2, 2}, {3, 4, 5, 6}),
                   Tensor::Allocate(DT_STRING, Shape{0}).value()},
                  types)
                  .ok());
  EXPECT_FALSE(
      Run("QueueEnqueueV2", {queue, Tensor::FromValues<int32_t>({1, 1}, {1}), word}, types).ok());
  const auto batch = Run("QueueDequeueManyV2", {queue, Tensor::Scalar<int32_t>(2)},
                         {{"component_types", std::vector<DType>{DT_INT32, DT_STRING}}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)[0].ToString(), "int32[2,2,2] = 1 2 0 0 3 4 5 6");
  EXPECT_EQ((*batch)[1].shape(), (Shape{2, 1}));
  EXPECT_EQ((*batch)[1].strings()[0] + "," + (*batch)[1].strings()[1], "w,");
}

TEST_F(ReaderTest, APriorityQueueGivesOutTheSmallestFirst) {
  const Tensor queue = (*Run("PriorityQueueV2", {},
                             {{"component_types", std::vector<DType>{DT_INT32}},
                              {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}}}))[0];
  const std::vector<DType> types{DT_INT64, DT_INT32};
  ASSERT_TRUE(Run("QueueEnqueueManyV2",
                  {queue, Tensor::Vector<int64_t>({5, -1, 5, 3}),
                   Tensor::Vector<int32_t>({50, 10, 51, 30})},
                  {{"Tcomponents", types}})
                  .ok());
  const auto all =
      Run("QueueDequeueManyV2", {queue, Tensor::Scalar<int32_t>(4)}, {{"component_types", types}});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)[0].ToString(), "int64[4] = -1 3 5 5");
  EXPECT_EQ((*all)[1].ToString(), "int32[4] = 10 30 50 51");
}

// What would end TensorFlow's process; the rest is in tests/golden/graphs/ref_barriers.
TEST_F(ReaderTest, ABarrierRefusesNumbersBelowZero) {
  const std::vector<DType> types{DT_FLOAT, DT_INT64};
  const Tensor barrier =
      (*Run("_Barrier", {},
            {{"component_types", types},
             {"shapes", std::vector<PartialShape>{PartialShape::Scalar(), {2}}}}))[0];
  const Tensor key = Tensor::String("a").Reshaped(Shape{1}), value = Tensor::Vector<float>({1.5f});
  const auto insert = [&](int64_t component, const Tensor& values) {
    return Run("_BarrierInsertMany", {barrier, key, values}, {{"component_index", component}})
        .status();
  };
  EXPECT_EQ(insert(-1, value).code(), Code::kInvalidArgument);
  EXPECT_EQ(insert(std::numeric_limits<int64_t>::min(), value).code(), Code::kInvalidArgument);
  EXPECT_EQ(insert(0, Tensor::Vector<float>({1, 2})).code(), Code::kInvalidArgument);
  EXPECT_TRUE(insert(0, value).ok());
  const Status taken =
      Run("_BarrierTakeMany", {barrier, Tensor::Scalar<int32_t>(-1)}, {{"component_types", types}})
          .status();
  EXPECT_EQ(taken.code(), Code::kInvalidArgument) << taken;
  EXPECT_EQ((*Run("_BarrierIncompleteSize", {barrier}))[0].scalar<int32_t>(), 1);
}

TEST_F(ReaderTest, ABarrierThatWouldPassTheLimitOfMemoryStaysAsItWas) {
  constexpr int64_t kKeys = 200'000;
  const Tensor barrier = (*Run(
      "_Barrier", {},
      {{"component_types", std::vector<DType>{DT_FLOAT, DT_FLOAT}},
       {"shapes", std::vector<PartialShape>{PartialShape::Scalar(), PartialShape::Scalar()}}}))[0];
  Tensor keys = Tensor::Allocate(DT_STRING, Shape{kKeys}).value();
  for (int64_t i = 0; i < kKeys; ++i) keys.strings()[i] = "key " + std::to_string(i);
  const Tensor values = Random<float>(Shape{kKeys});
  const auto insert = [&] {
    return Run("_BarrierInsertMany", {barrier, keys, values}, {{"component_index", int64_t{0}}})
        .status();
  };
  const auto incomplete = [&] {
    return (*Run("_BarrierIncompleteSize", {barrier}))[0].scalar<int32_t>();
  };
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(HostPool().bytes_in_use() + (32 << 20));
  const Status full = insert();
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full;
  EXPECT_EQ(incomplete(), 0);
  HostPool().SetLimit(limit);
  EXPECT_TRUE(insert().ok());
  EXPECT_EQ(incomplete(), kKeys);
}

TEST_F(ReaderTest, APriorityQueueGivesOutManyInLittleTime) {
  constexpr int64_t kCount = 100'000;
  const Tensor queue = (*Run("PriorityQueueV2", {},
                             {{"component_types", std::vector<DType>{DT_INT32}},
                              {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}}}))[0];
  const std::vector<DType> types{DT_INT64, DT_INT32};
  Tensor priorities = Tensor::Allocate(DT_INT64, Shape{kCount}).value();
  Tensor values = Tensor::Allocate(DT_INT32, Shape{kCount}).value();
  for (int64_t i = 0; i < kCount; ++i) {
    priorities.data<int64_t>()[i] = (kCount - i) / 2;
    values.data<int32_t>()[i] = static_cast<int32_t>(i);
  }
  ASSERT_TRUE(
      Run("QueueEnqueueManyV2", {queue, priorities, values}, {{"Tcomponents", types}}).ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto all = Run("QueueDequeueManyV2", {queue, Tensor::Scalar<int32_t>(kCount)},
                       {{"component_types", types}});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_TRUE(all.ok()) << all.status();
  const int32_t* const first = (*all)[1].data<int32_t>();
  EXPECT_EQ(first[0], kCount - 1);
  EXPECT_EQ(first[1], kCount - 3);  // of equal ones the one that came first
  EXPECT_EQ(first[2], kCount - 2);
  EXPECT_EQ(first[kCount - 1], 0);
}

TEST_F(ReaderTest, ABatchOfWhatCannotBeFilledUpOrHasTooManyDimensionsIsRefused) {
  const std::vector<DType> variants{DT_VARIANT};
  const Tensor padded = (*Run("PaddingFIFOQueueV2", {},
                              {{"component_types", variants},
                               {"shapes", std::vector<PartialShape>{PartialShape{-1}}},
                               {"shared_name", std::string("padded")}}))[0];
  EXPECT_EQ(Run("QueueDequeueManyV2", {padded, Tensor::Scalar<int32_t>(0)},
                {{"component_types", variants}})
                .status()
                .code(),
            Code::kInvalidArgument);
  const std::vector<DType> floats{DT_FLOAT};
  const Tensor deep =
      (*Run("FIFOQueueV2", {},
            {{"component_types", floats},
             {"shapes", std::vector<PartialShape>{PartialShape(std::vector<int64_t>(kMaxRank, 1))}},
             {"shared_name", std::string("deep")}}))[0];
  EXPECT_EQ(Run("QueueEnqueueManyV2", {deep, Tensor::Vector<float>({1})}, {{"Tcomponents", floats}})
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST_F(ReaderTest, ManyEmptyFilesAreReadOneAfterTheOther) {
  constexpr int64_t kCount = 50'000;
  const std::vector<DType> strings{DT_STRING};
  const Tensor queue = (*Run("FIFOQueueV2", {},
                             {{"component_types", strings},
                              {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}}}))[0];
  Tensor names = Tensor::Allocate(DT_STRING, Shape{kCount}).value();
  const std::string empty = folder_.Write("empty", "");
  for (int64_t i = 0; i < kCount; ++i) names.strings()[i] = empty;
  ASSERT_TRUE(Run("QueueEnqueueManyV2", {queue, names}, {{"Tcomponents", strings}}).ok());
  ASSERT_TRUE(Run("QueueCloseV2", {queue}).ok());
  EXPECT_EQ(Next(Reader("TextLineReaderV2"), queue), "OUT_OF_RANGE");
}

TEST_F(ReaderTest, WhoEnqueuesTheNameOfAFileDoesNotReadIt) {
  const std::string large = folder_.Write("large", "");
  std::filesystem::resize_file(large, size_t{256} << 20);
  const std::vector<DType> strings{DT_STRING};
  const Tensor queue = (*Run("FIFOQueueV2", {},
                             {{"component_types", strings},
                              {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}}}))[0];
  const Tensor reader = Reader("WholeFileReaderV2");
  KernelRunner beside(&Kernels(), {.pools = nullptr, .resources = &resources_});
  auto read = std::async(std::launch::async, [&] {
    return testing::RunOp(beside, Ops(), "ReaderReadV2", {reader, queue}, {});
  });
  EXPECT_EQ(read.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(
      Run("QueueEnqueueV2", {queue, Tensor::String(large)}, {{"Tcomponents", strings}}).ok());
  const auto enqueued = std::chrono::steady_clock::now() - begin;
  const auto got = read.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[1].strings()->size(), size_t{256} << 20);
  EXPECT_LT(enqueued, (std::chrono::steady_clock::now() - begin) / 2);
}

TEST_F(ReaderTest, ARecordThatWouldPassTheLimitOfMemoryIsRefused) {
  const auto absurd = Run("FixedLengthRecordReaderV2", {},
                          {{"record_bytes", int64_t{1} << 62}, {"encoding", std::string("GZIP")}});
  EXPECT_EQ(absurd.status().code(), Code::kInvalidArgument) << absurd.status();
  const std::string packed = folder_.File("zeros.gz");
  gzFile file = gzopen(packed.c_str(), "wb1");
  const std::string zeros(1 << 20, '\0');
  for (int i = 0; i < 96; ++i) ASSERT_EQ(gzwrite(file, zeros.data(), 1 << 20), 1 << 20);
  ASSERT_EQ(gzclose(file), Z_OK);
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(HostPool().bytes_in_use() + (64 << 20));
  const Attrs gzip{{"record_bytes", int64_t{80} << 20}, {"encoding", std::string("GZIP")}};
  EXPECT_EQ(Next(Reader("FixedLengthRecordReaderV2", gzip), Queue({packed})), "RESOURCE_EXHAUSTED");
  std::filesystem::resize_file(folder_.Write("large", ""), size_t{96} << 20);
  EXPECT_EQ(Next(Reader("TextLineReaderV2"), Queue({folder_.File("large")})), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Next(Reader("WholeFileReaderV2"), Queue({folder_.File("large")})),
            "RESOURCE_EXHAUSTED");
  HostPool().SetLimit(limit);
}

TEST_F(ReaderTest, APatternOfManyStarsTakesLittleTime) {
  folder_.Write(std::string(100, 'a'), "");
  std::string stars = "*";
  for (int i = 0; i < 30; ++i) stars += "a*";
  const auto found = [&](const std::string& pattern) {
    return (*Run("MatchingFiles", {Tensor::String(folder_.File(pattern))}))[0].elements();
  };
  EXPECT_EQ(found(stars), 1);
  EXPECT_EQ(found(stars + "b"), 0);
  EXPECT_EQ(found(std::string(1'000'000, '*')), 1);
  EXPECT_EQ(found("*[a-c]?*\\a"), 1);
}

// A resource that looks for others when it goes, as a handle in a queue does.
TEST_F(ReaderTest, WhatGoesWithItsManagerFindsTheManagerEmpty) {
  class Last : public Resource {
   public:
    Last(const ResourceManager* manager, int* seen) : manager_(manager), seen_(seen) {}
    ~Last() override { *seen_ += manager_->Find<Last>("box", "a").ok() ? 1 : 10; }
    std::string DebugString() const override { return "last"; }

   private:
    const ResourceManager* const manager_;
    int* const seen_;
  };
  int seen = 0;
  {
    ResourceManager manager;
    for (const char* name : {"b", "a", "c"}) {
      ASSERT_TRUE(manager
                      .FindOrCreate<Last>("box", name,
                                          [&] { return std::make_shared<Last>(&manager, &seen); })
                      .ok());
    }
  }
  EXPECT_EQ(seen, 30);
}

TEST_F(ReaderTest, FilesAreWrittenFoundAndRead) {
  for (const char* name : {"sub/b1.txt", "sub/a2.txt", "sub/c.bin"}) {
    ASSERT_TRUE(Run("WriteFile", {Tensor::String(folder_.File(name)), Tensor::String(name)}).ok());
  }
  const auto found = [&](const std::string& pattern) {
    Strings names;
    const auto out = Run("MatchingFiles", {Tensor::String(folder_.File(pattern))});
    EXPECT_TRUE(out.ok()) << out.status();
    for (int64_t i = 0; i < (*out)[0].elements(); ++i)
      names.push_back((*out)[0].strings()[i].substr(folder_.path().size() + 1));
    return names;
  };
  EXPECT_EQ(found("sub/*.txt"), (Strings{"sub/a2.txt", "sub/b1.txt"}));
  EXPECT_EQ(found("s*/[b-z]?*"), (Strings{"sub/b1.txt", "sub/c.bin"}));
  EXPECT_EQ(found("sub/[^a]*.txt"), (Strings{"sub/b1.txt"}));
  EXPECT_EQ(found("none/*"), Strings{});
  EXPECT_EQ(*(*Run("ReadFile", {Tensor::String(folder_.File("sub/c.bin"))}))[0].strings(),
            "sub/c.bin");
  EXPECT_EQ(Run("ReadFile", {Tensor::String(folder_.File("no"))}).status().code(), Code::kNotFound);
}

TEST_F(ReaderTest, PrintShowsTheFirstValues) {
  const Tensor x = Tensor::FromValues<int32_t>({2, 2}, {0, 1, 2, 3});
  ::testing::internal::CaptureStderr();
  const auto out =
      Run("Print", {x, x, Tensor::String("s")},
          {{"message", std::string("x: ")}, {"U", std::vector<DType>{DT_INT32, DT_STRING}}});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "x: [[0 1][2...]...][s]\n");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_TRUE(BitEqual((*out)[0], x));
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(Run("PrintV2", {Tensor::String("line")}).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "line\n");
}

}  // namespace
}  // namespace monograph::testing
