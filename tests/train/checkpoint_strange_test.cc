// Checkpoints that nobody's saver has written: numbers, names and sizes that make no sense, and
// what is no file at all. Each is an error that names the file, at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/checkpoint/checkpoint.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "ops/shape/shape.h"
#include "tests/temporary_folder.h"
#include "tests/train/saver_programs.h"
#include "train/saver/folder_lock.h"

namespace monograph::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A file of the format, with 16 bytes of tensors.
std::string FileOf(const std::string& header) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header +
         std::string(16, '\x3f');
}
std::string TensorOf(const std::string& shape, const std::string& offsets,
                     const std::string& type = "F32") {
  return R"({"w": {"dtype": ")" + type + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
         offsets + "}}";
}
std::string MetadataOf(const std::string& metadata) {
  return R"({"__metadata__": )" + metadata +
         R"(, "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})";
}

class StrangeCheckpoint : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.File(name); }
  const TemporaryFolder folder_{FolderInMemory()};
};

TEST_F(StrangeCheckpoint, WithAHeaderThatMakesNoSenseIsDataLossAndSaysWhy) {
  const std::string path = Path("m.safetensors");
  const auto error = [&](const std::string& header) {
    std::ofstream(path, std::ios::binary) << FileOf(header);
    const Status status = LoadVariable(Path("m"), "w").status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << header << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr("checkpoint '" + path + "': "));
    return status.message();
  };
  std::ofstream(path, std::ios::binary) << FileOf(TensorOf("[2, 2.0]", "[0.0, 16]"));
  EXPECT_TRUE(LoadVariable(Path("m"), "w").ok());

  const std::map<std::string, std::string> shapes = {
      {"[1e300]", "1e+300 is no whole number"},
      {"[-4]", "-4 is no whole number"},
      {"[2.5]", "2.5 is no whole number"},
      {"[18446744073709551615]", "is no whole number"},
      {"[1e999]", "the number 1e999 is out of range"},
      {"[4611686018427387904, 4]", "has more than 2^63 elements"},
      {"[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "at most"},
      {"4", R"("shape" is no list of numbers)"},
      {R"(["4"])", "is no whole number"}};
  for (const auto& [shape, why] : shapes)
    EXPECT_THAT(error(TensorOf(shape, "[0, 16]")), HasSubstr(why));
  for (const std::string offsets : {"[0, 1e300]", "[-1, 16]", "[0, 2.5]"})
    EXPECT_THAT(error(TensorOf("[4]", offsets)), HasSubstr("is no whole number"));
  for (const std::string offsets : {"[16, 0]", "[0]", "[0, 8, 16]"})
    EXPECT_THAT(error(TensorOf("[4]", offsets)), HasSubstr("are no begin and end"));
  for (const std::string offsets : {"[0, 32]", "[4, 20]"})
    EXPECT_THAT(error(TensorOf("[4]", offsets)), HasSubstr("'w': the file is truncated"));
  for (const std::string offsets : {"[0, 15]", "[0, 0]"})
    EXPECT_THAT(error(TensorOf("[4]", offsets)), HasSubstr("bytes, which are not those of F32[4]"));
  // 2^61 numbers of 8 bytes are 2^64 bytes, which a word takes for none.
  EXPECT_THAT(error(TensorOf("[2305843009213693952]", "[0, 0]", "F64")),
              HasSubstr("it has 0 bytes, which are not those of F64["));
  EXPECT_THAT(error(TensorOf("[4]", "[0, 16]", "F33")), HasSubstr("type 'F33'"));
  EXPECT_THAT(error(TensorOf("[4]", "[0, 16]") + "}"), HasSubstr("not JSON"));
  EXPECT_THAT(error(std::string(5000, '[')), HasSubstr("nested more than"));
  EXPECT_THAT(error("[]"), HasSubstr("it is no object with tensors"));
  EXPECT_THAT(error(R"({"w": 1})"), HasSubstr("'w': "));
  const std::string twice = R"("w": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]})";
  EXPECT_THAT(error("{" + twice + ", " + twice + "}"), HasSubstr(R"(has the key "w" twice)"));
  const std::map<std::string, std::string> metadata = {
      {"7", "it is no object with tensors"},
      {R"({"crc32_block_bytes": "12 apples"})", "crc32_block_bytes is '12 apples'"},
      {R"({"crc32_block_bytes": "0"})", "crc32_block_bytes is '0'"},
      {R"({"crc32_block_bytes": "99999999999999999999"})", "crc32_block_bytes is '9999"},
      {R"({"crc32_block_bytes": 8})", "is no text: 8"},
      {R"({"crc32:w": 8})", "is no text: 8"},
      {R"({"crc32:w": "1234"})", "'w' has 4 digits of CRC-32 instead of 8"}};
  for (const auto& [text, why] : metadata) EXPECT_THAT(error(MetadataOf(text)), HasSubstr(why));
}

TEST_F(StrangeCheckpoint, WithAnIndexThatMakesNoSenseIsDataLossAndSaysWhy) {
  const std::string path = Path("m.safetensors.index.json");
  const std::map<std::string, std::string> texts = {
      {R"({"weight_map": {"w": "f"}, "metadata": {"total_size": 1e300}})", "1e+300 is no whole"},
      {R"({"weight_map": {"w": "f"}, "metadata": {"shards": {"f": {"bytes": -1.5,
            "header_crc32": ""}}}})",
       "-1.5 is no whole number"},
      {R"({"weight_map": {"w": "f"}, "metadata": {"shards": {"f": 3}}})", "a shard is no object"},
      {R"({"weight_map": {"w": "f"}, "metadata": {"parts": {"v": "w"}}})", "the parts of 'v'"},
      {R"({"weight_map": {"w": "f", "w": "g"}})", R"(has the key "w" twice)"},
      {R"({"weight_map": [1]})", R"("weight_map" is no object)"},
      {std::string(5000, '{'), "nested more than"},
      {"[]", "it has no weight_map"}};
  for (const auto& [text, why] : texts) {
    folder_.Write("m.safetensors.index.json", text);
    const Status status = CheckpointReader::Open(Path("m")).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << text;
    EXPECT_THAT(status.message(), HasSubstr("checkpoint '" + path + "': the index"));
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
}

TEST_F(StrangeCheckpoint, WithANameThatAHeaderCannotHaveIsNotWritten) {
  const auto error = [&](const std::vector<std::string>& names) {
    std::vector<CheckpointTensor> tensors;
    for (const std::string& name : names)
      tensors.push_back({name, DT_FLOAT, {}, {Tensor::Scalar(1.0f)}});
    const Status status = WriteCheckpointFile(Path("m.safetensors"), tensors);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    return status.message();
  };
  EXPECT_THAT(error({"w\xff"}), HasSubstr("is called \"w\xef\xbf\xbd\", which is not UTF-8"));
  EXPECT_THAT(error({"w", "v", "w"}), HasSubstr("two tensors of a checkpoint are called 'w'"));
  EXPECT_THAT(error({"__metadata__"}), HasSubstr("is the name of no tensor"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  // By the op, whose names come from the graph.
  Graph graph = NewGraph();
  const Scope root(&graph);
  const auto words = [&](const std::string& word) {
    return Reshape(root, Const(root, word), IntsConst(root, {1}));
  };
  const Operation save = SaveV2(root, Const(root, Path("n.safetensors")), words("w\xc3"), words(""),
                                {Const(root, 1.0f)});
  const auto session = Session::Local(graph).value();
  EXPECT_THAT(session->Run({}, {}, {save}).status().message(), HasSubstr("which is not UTF-8"));
  // The index of a sharded checkpoint has names of files.
  TwoVariables program({.sharded = true});
  const Status status = program.Save(Path("m\xff"), 1).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_TRUE(fs::is_empty(folder_.path())) << FilesOf(folder_.path()).front();
}

TEST_F(StrangeCheckpoint, ThatIsNoFileIsNamedAndNothingWaits) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::pair<std::string, std::string>> strange = {
      {"pipe", "it is a pipe; a file is expected"},
      {"zero", "it is a device; a file is expected"},
      {"folder", "it is a folder; a file is expected"}};
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", Path("zero"));
  fs::create_directory(Path("folder"));
  for (const auto& [name, why] : strange) {
    for (const std::string file : {"m.safetensors", "m.safetensors.index.json", "checkpoint"}) {
      fs::create_symlink(Path(name), Path(file));
      const Status status = file == "checkpoint" ? LatestCheckpoint(folder_.path()).status()
                                                 : ListVariables(Path("m")).status();
      EXPECT_EQ(status.code(), Code::kFailedPrecondition) << file << ": " << status;
      EXPECT_THAT(status.message(), HasSubstr("'" + Path(file) + "': " + why));
      fs::remove(Path(file));
    }
  }
  // Where a save would write.
  TwoVariables program({});
  for (const std::string file : {"m.safetensors.part", "checkpoint.part"}) {
    ASSERT_EQ(mkfifo(Path(file).c_str(), 0600), 0);
    EXPECT_EQ(program.Save(Path("m"), 1).status().code(), Code::kFailedPrecondition) << file;
    fs::remove(Path(file));
    folder_.Write("mine", "a file that is not the saver's");
    fs::create_symlink(Path("mine"), Path(file));
    EXPECT_EQ(program.Save(Path("m"), 1).status().code(), Code::kFailedPrecondition) << file;
    fs::remove(Path(file));
    EXPECT_GT(fs::file_size(Path("mine")), 20u);
  }
  ASSERT_EQ(mkfifo(Path("checkpoint.lock").c_str(), 0600), 0);
  EXPECT_EQ(FolderLock::Take(folder_.path()).status().code(), Code::kFailedPrecondition);
  fs::remove(Path("checkpoint.lock"));
  fs::create_symlink(Path("mine"), Path("checkpoint.lock"));
  EXPECT_EQ(FolderLock::Take(folder_.path()).status().code(), Code::kFailedPrecondition);
  EXPECT_GT(fs::file_size(Path("mine")), 20u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// The names that the system sees end at a zero byte.
TEST_F(StrangeCheckpoint, WithAZeroByteInItsNameIsNotTakenForAnotherFile) {
  ASSERT_TRUE(WriteCheckpointFile(Path("m"), {{"w", DT_FLOAT, {}, {Tensor::Scalar(1.0f)}}}).ok());
  EXPECT_EQ(LoadVariable(Path("m") + std::string(1, '\0'), "w").status().code(), Code::kNotFound);
  EXPECT_EQ(WriteCheckpointFile(Path("n") + std::string(1, '\0'), {}).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(FilesOf(folder_.path()), std::vector<std::string>{"m"});
}

TEST_F(StrangeCheckpoint, WithoutAListIsNotRestoredAndTheLogSaysSo) {
  TwoVariables program({});
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  fs::remove(Path("checkpoint"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(program.saver->RestoreLatest(program.session.get(), folder_.path()).value(),
            std::nullopt);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("has checkpoints, the newest '" + Path("m-1") + "', but no list of them"));
}

// A run that cannot read its list of checkpoints does not begin anew, and write over them.
TEST_F(StrangeCheckpoint, WhoseListCannotBeReadIsNotTakenForNone) {
  TwoVariables program({});
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  fs::rename(Path("checkpoint"), Path("kept"));
  fs::create_symlink("checkpoint", Path("checkpoint"));  // a link to itself
  EXPECT_EQ(LatestCheckpoint(folder_.path()).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(program.saver->RestoreLatest(program.session.get(), folder_.path()).status().code(),
            Code::kFailedPrecondition);
}

TEST_F(StrangeCheckpoint, WithAnyNameThatAFileCanHaveIsFoundAgain) {
  for (const std::string name : {"a b", "a\"b", "a\\b", "a\nb", "a\\", "\"", "#", ": ", "\xc3\xa4",
                                 "a\tmodel_checkpoint_path: \"m\""}) {
    const TemporaryFolder folder;
    TwoVariables program({});
    for (const int64_t step : {1, 2})
      ASSERT_TRUE(program.Save(folder.File(name), static_cast<float>(step), step).ok()) << name;
    EXPECT_EQ(LatestCheckpoint(folder.path()).value(), folder.File(name + "-2"));
    EXPECT_EQ(LatestValues(folder.path()).value(), ValuesOf(2));
  }
  // As TensorFlow writes it.
  folder_.Write("checkpoint",
                "model_checkpoint_path: \"\\303\\244\\n-1\"\n"
                "all_model_checkpoint_paths: \"\\303\\244\\n-1\"\n");
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), Path("\xc3\xa4\n-1"));
}

}  // namespace
}  // namespace monograph::testing
