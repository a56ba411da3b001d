// IDX files, data sets, batches, and the op that reads them.
#include "ops/input/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "ops/input/batches.h"
#include "ops/input/dataset.h"
#include "ops/input/idx.h"
#include "ops/input/shuffle.h"
#include "ops/register.h"
#include "tests/executor/run_op.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InputTest : public ::testing::Test {
 protected:
  InputTest() {
    std::string name = (std::filesystem::temp_directory_path() / "monograph_input_XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~InputTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& file) const { return directory_ + "/" + file; }
  std::string Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(Path(file), std::ios::binary) << bytes;
    return Path(file);
  }
  std::string WriteGzip(const std::string& file, const std::string& bytes) const {
    gzFile out = gzopen(Path(file).c_str(), "wb");
    gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(out);
    return Path(file);
  }
  static std::string Contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Four files of `train` and `test` examples of 2x2 pixels; pixel k of image i is i * 4 + k, label
  // i % 10.
  void WriteMnist(int train, int test, bool gzip) const;

  std::string directory_;
};

std::string Header(std::initializer_list<uint32_t> dims) {
  std::string bytes = {0, 0, 8, static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dim >> shift));
  }
  return bytes;
}

std::string Count(int n, int from = 0) {
  std::string bytes;
  for (int i = 0; i < n; ++i) bytes.push_back(static_cast<char>(from + i));
  return bytes;
}

void InputTest::WriteMnist(int train, int test, bool gzip) const {
  for (const auto& [prefix, count] :
       {std::pair<std::string, int>("train", train), std::pair<std::string, int>("t10k", test)}) {
    std::string labels = Header({static_cast<uint32_t>(count)});
    for (int i = 0; i < count; ++i) labels.push_back(static_cast<char>(i % 10));
    const std::string images = Header({static_cast<uint32_t>(count), 2, 2}) + Count(4 * count);
    if (gzip) {
      WriteGzip(prefix + "-images-idx3-ubyte.gz", images);
      WriteGzip(prefix + "-labels-idx1-ubyte.gz", labels);
    } else {
      Write(prefix + "-images-idx3-ubyte", images);
      Write(prefix + "-labels-idx1-ubyte", labels);
    }
  }
}

TEST_F(InputTest, ReadsPlainAndCompressedFiles) {
  const std::string bytes = Header({2, 3}) + Count(6);
  for (const std::string& path : {Write("plain", bytes), WriteGzip("packed.gz", bytes)}) {
    Result<IdxArray> array = ReadIdx(path, 2);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_THAT(array->dims, ElementsAre(2, 3));
    EXPECT_THAT(array->values, ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST_F(InputTest, AFileThatIsNoIdxFileIsNamedWithWhatWasExpectedAndFound) {
  struct Case {
    const char* what;
    std::string bytes;
    const char* message;
  };
  const Case cases[] = {
      {"empty", "", "an empty file"},
      {"text", "hello", "must begin with the bytes 00 00 08 01, found 68 65 6c 6c"},
      {"floats", std::string({0, 0, 0x0d, 1}) + Count(8),
       "element type 0d in the IDX header; expected 08"},
      {"images", Header({1, 2, 2}) + Count(4), "the IDX header says 3 dimensions; expected 1"},
      {"short_header", Header({4}).substr(0, 6), "truncated in the IDX header"},
      {"short", Header({4}) + Count(3), "truncated: the IDX header promises 4 values, found 3"},
      {"long", Header({4}) + Count(5), "bytes after the 4 values"},
      {"huge", Header({0xffffffff}) + Count(5),
       "truncated: the IDX header promises 4294967295 values, found 5"},
  };
  for (const Case& c : cases) {
    const std::string path = Write(c.what, c.bytes);
    const Status status = ReadIdx(path, 1).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << c.what;
    EXPECT_THAT(status.message(), HasSubstr(path));
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_THAT(ReadIdx(Write("absurd", Header({0xffffffff, 0xffffffff, 2})), 3).status().message(),
              HasSubstr("absurdly large"));
}

TEST_F(InputTest, ADamagedGzipStreamIsReported) {
  std::string values;
  SplitMix64 random(1);
  for (int i = 0; i < 10000; ++i) values.push_back(static_cast<char>(random.Next()));
  const std::string packed = Contents(WriteGzip("whole.gz", Header({10000}) + values));

  const Status cut = ReadIdx(Write("cut.gz", packed.substr(0, packed.size() / 2)), 1).status();
  EXPECT_EQ(cut.code(), Code::kDataLoss);
  EXPECT_THAT(cut.message(), HasSubstr(Path("cut.gz")));
  EXPECT_THAT(cut.message(), HasSubstr("truncated"));

  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 0x40;  // the checksum
  const Status damaged = ReadIdx(Write("damaged.gz", flipped), 1).status();
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("damaged"));
}

TEST_F(InputTest, FindsMnistsFilesPlainOrCompressed) {
  for (const bool gzip : {true, false}) {
    WriteMnist(12, 5, gzip);
    auto train = LoadDataset({.name = "mnist", .data_dir = directory_, .split = "train"});
    ASSERT_TRUE(train.ok()) << train.status();
    EXPECT_EQ((*train)->examples, 12);
    EXPECT_EQ((*train)->pixels(), 4);
    EXPECT_EQ((*train)->images[7], 7);
    EXPECT_EQ((*train)->labels[11], 1);
    auto test = LoadDataset({.name = "mnist", .data_dir = directory_, .split = "test"});
    ASSERT_TRUE(test.ok()) << test.status();
    EXPECT_EQ((*test)->examples, 5);
  }
}

TEST_F(InputTest, AMissingDirectoryOrFileNamesTheDebianPackage) {
  const Status directory = LoadDataset({.data_dir = Path("nowhere")}).status();
  EXPECT_EQ(directory.code(), Code::kNotFound);
  EXPECT_THAT(directory.message(), HasSubstr(Path("nowhere")));
  EXPECT_THAT(directory.message(), HasSubstr("dataset-fashion-mnist"));
  const Status file = LoadDataset({.data_dir = directory_}).status();
  EXPECT_EQ(file.code(), Code::kNotFound);
  EXPECT_THAT(file.message(), HasSubstr("train-images-idx3-ubyte"));
  EXPECT_THAT(file.message(), HasSubstr("dataset-fashion-mnist"));
  EXPECT_EQ(LoadDataset({.name = "imagenet"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadDataset({.name = "synthetic", .split = "dev"}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(InputTest, LabelsMustFitTheImagesAndBeClasses) {
  WriteMnist(12, 5, false);
  Write("train-labels-idx1-ubyte", Header({11}) + std::string(11, '\0'));
  const Status count = LoadDataset({.name = "mnist", .data_dir = directory_}).status();
  EXPECT_EQ(count.code(), Code::kDataLoss);
  EXPECT_THAT(count.message(), HasSubstr("12 images but 11 labels"));

  Write("train-labels-idx1-ubyte", Header({12}) + Count(12));
  const Status label = LoadDataset({.name = "mnist", .data_dir = directory_}).status();
  EXPECT_EQ(label.code(), Code::kDataLoss);
  EXPECT_THAT(label.message(), HasSubstr("label 10 of example 10; expected 0 to 9"));
}

TEST(Synthetic, DependsOnSeedAndSplitAlone) {
  const Dataset a = SyntheticDataset(1, "train", 50), b = SyntheticDataset(1, "train", 50);
  EXPECT_EQ(a.images, b.images);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_NE(a.images, SyntheticDataset(2, "train", 50).images);
  EXPECT_NE(a.images, SyntheticDataset(1, "test", 50).images);
}

TEST(Shuffle, IsTheSameOnEveryMachine) {
  SplitMix64 random(0);
  EXPECT_EQ(random.Next(),
            0xe220a8397b1dcdafu);  // the generator's published first value for seed 0
  EXPECT_THAT(Permutation(8, 1, 0), ElementsAre(0, 3, 7, 1, 4, 2, 6, 5));
  EXPECT_NE(Permutation(100, 1, 0), Permutation(100, 1, 1));
  EXPECT_NE(Permutation(100, 1, 0), Permutation(100, 2, 0));
}

// A set whose label i % 7 and pixels tell which example a row is: pixel 0 and 1 are its number.
std::shared_ptr<const Dataset> Numbered(int64_t examples) {
  Dataset set;
  set.name = "numbered";
  set.examples = examples;
  set.height = 1;
  set.width = 2;
  for (int64_t i = 0; i < examples; ++i) {
    set.images.push_back(static_cast<uint8_t>(i / 256));
    set.images.push_back(static_cast<uint8_t>(i % 256));
    set.labels.push_back(static_cast<int32_t>(i % 7));
  }
  return std::make_shared<const Dataset>(std::move(set));
}

std::vector<int> RowNumbers(const Batch& batch) {
  std::vector<int> numbers;
  for (int64_t i = 0; i < batch.images.shape()[0]; ++i) {
    const uint8_t* row = batch.images.data<uint8_t>() + 2 * i;
    numbers.push_back(row[0] * 256 + row[1]);
    EXPECT_EQ(batch.labels.data<int32_t>()[i], numbers.back() % 7);
  }
  return numbers;
}

BatchOptions Options(int64_t batch_size, int shard = 0, int num_shards = 1, int prefetch = 2) {
  return {.batch_size = batch_size,
          .seed = 5,
          .shard = shard,
          .num_shards = num_shards,
          .image_type = DT_UINT8,
          .prefetch = prefetch};
}

TEST(Batches, EachEpochHoldsEachExampleOnceInAnotherOrder) {
  auto stream = BatchStream::Make(Numbered(300), Options(70)).value();
  std::vector<int> sequence;
  for (int64_t index = 0; index < 9;
       ++index) {  // 630 examples: batches reach over the ends of epochs
    const std::vector<int> rows = RowNumbers(stream->Get(index).value());
    sequence.insert(sequence.end(), rows.begin(), rows.end());
  }
  const std::set<int> first(sequence.begin(), sequence.begin() + 300),
      second(sequence.begin() + 300, sequence.begin() + 600);
  EXPECT_EQ(first.size(), 300u);
  EXPECT_EQ(second.size(), 300u);
  EXPECT_FALSE(std::equal(sequence.begin(), sequence.begin() + 300, sequence.begin() + 300));
}

TEST(Batches, ABatchDependsOnItsNumberAloneNotOnTheWayThere) {
  auto in_order = BatchStream::Make(Numbered(300), Options(70)).value();
  auto direct = BatchStream::Make(Numbered(300), Options(70, 0, 1, 0)).value();
  auto jumping = BatchStream::Make(Numbered(300), Options(70, 0, 1, 3)).value();
  std::vector<std::vector<int>> rows;
  for (int64_t index = 0; index < 12; ++index) {
    rows.push_back(RowNumbers(in_order->Get(index).value()));
    EXPECT_EQ(rows.back(), RowNumbers(direct->Get(index).value()));
  }
  for (const int64_t index : {7, 3, 3, 4, 11, 0, 5, 6, 1}) {
    EXPECT_EQ(RowNumbers(jumping->Get(index).value()), rows[static_cast<size_t>(index)]) << index;
  }
}

TEST(Batches, SeveralThreadsMayAskAtOnce) {
  auto direct = BatchStream::Make(Numbered(300), Options(10, 0, 1, 0)).value();
  auto shared = BatchStream::Make(Numbered(300), Options(10)).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t index = 0; index < 50; ++index) {
        EXPECT_EQ(RowNumbers(shared->Get(index).value()), RowNumbers(direct->Get(index).value()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Batches, ShardsPartitionTheBatch) {
  auto whole = BatchStream::Make(Numbered(300), Options(10)).value();
  for (int64_t index = 0; index < 3; ++index) {
    std::vector<int> joined;
    for (int shard = 0; shard < 3; ++shard) {
      auto part = BatchStream::Make(Numbered(300), Options(10, shard, 3)).value();
      const std::vector<int> rows = RowNumbers(part->Get(index).value());
      EXPECT_EQ(rows.size(), shard < 2 ? 3u : 4u);  // floor(10 i / 3): 0, 3, 6, 10
      joined.insert(joined.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(joined, RowNumbers(whole->Get(index).value()));
  }
}

TEST(Batches, FloatImagesAreTheBytesOverTwoHundredFiftyFive) {
  BatchOptions options = Options(4);
  options.shuffle = false;
  options.image_type = DT_FLOAT;
  auto stream = BatchStream::Make(Numbered(300), options).value();
  const Batch batch = stream->Get(0).value();
  EXPECT_EQ(batch.images.shape(), (Shape{4, 2}));
  EXPECT_EQ(batch.images.data<float>()[7], 3 * (1.0f / 255.0f));
}

TEST(Batches, RefuseWhatCannotBe) {
  EXPECT_THAT(BatchStream::Make(Numbered(10), Options(3, 0, 4)).status().message(),
              HasSubstr("the batch of 3 examples is smaller than its 4 replicas"));
  EXPECT_EQ(BatchStream::Make(Numbered(10), Options(3, 2, 2)).status().code(),
            Code::kInvalidArgument);
  auto stream = BatchStream::Make(Numbered(10), Options(3)).value();
  EXPECT_EQ(stream->Get(-1).status().code(), Code::kOutOfRange);
  EXPECT_EQ(stream->Get(int64_t{1} << 62).status().code(), Code::kOutOfRange);
}

class InputOpTest : public InputTest {
 protected:
  InputOpTest() {
    DefineOps(&ops_);
    RegisterCpuKernels(&kernels_);
  }
  Result<std::vector<Tensor>> RunOp(int64_t index, Attrs attrs) {
    KernelRunner runner(&kernels_);
    return testing::RunOp(runner, ops_, "MonographDatasetBatch", {Tensor::Scalar<int64_t>(index)},
                          std::move(attrs));
  }
  OpRegistry ops_;
  KernelRegistry kernels_;
};

TEST_F(InputOpTest, GivesTheRowsThatAClientWouldFeed) {
  auto data = LoadDataset({.name = "synthetic", .seed = 3}).value();
  for (int shard = 0; shard < 3; ++shard) {
    auto stream =
        BatchStream::Make(data, {.batch_size = 20, .seed = 3, .shard = shard, .num_shards = 3})
            .value();
    for (const int64_t index : {0, 1, 700}) {
      auto outputs = RunOp(index, {{"dataset", std::string("synthetic")},
                                   {"seed", int64_t{3}},
                                   {"batch_size", int64_t{20}},
                                   {"shard", int64_t{shard}},
                                   {"num_shards", int64_t{3}}});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const Batch expected = stream->Get(index).value();
      EXPECT_TRUE(BitEqual((*outputs)[0], expected.images));
      EXPECT_TRUE(BitEqual((*outputs)[1], expected.labels));
    }
  }
}

TEST_F(InputOpTest, ShapesAreKnownWhileBuilding) {
  Graph graph(&ops_);
  Scope root(&graph);
  const Output index = OpBuilder(root, "Placeholder").Attr("dtype", DT_INT64).BuildOutput();
  const DatasetBatchOutputs batch = DatasetBatch(
      root, index, {.batch_size = 10, .shard = 2, .num_shards = 3, .image_type = DT_UINT8});
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(batch.images.shape(), (PartialShape{4, 784}));
  EXPECT_EQ(batch.images.dtype(), DT_UINT8);
  EXPECT_EQ(batch.labels.shape(), (PartialShape{4}));
  DatasetBatch(root, index, {.batch_size = 2, .num_shards = 3});
  EXPECT_THAT(root.status().message(),
              HasSubstr("the batch of 2 examples is smaller than its 3 replicas"));
}

TEST_F(InputOpTest, AStepFailsWithTheReasonWhereFilesAreMissingOrOfAnotherSize) {
  EXPECT_THAT(
      RunOp(0, {{"data_dir", Path("nowhere")}, {"batch_size", int64_t{5}}}).status().message(),
      HasSubstr("dataset-fashion-mnist"));
  WriteMnist(12, 5, true);
  EXPECT_THAT(RunOp(0, {{"data_dir", directory_}, {"batch_size", int64_t{5}}}).status().message(),
              HasSubstr("have 4 pixels; the graph expects 784"));
}

}  // namespace
}  // namespace monograph
