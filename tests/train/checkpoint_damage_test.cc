// Damaged checkpoints: every changed byte is found, by name and place, or changes nothing; and what
// a job does when its newest one is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "tests/temporary_folder.h"
#include "tests/train/saver_programs.h"

namespace monograph::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}
void Put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
void ChangeByte(const std::string& path, size_t at) {
  std::string bytes = BytesOf(path);
  bytes.at(at) = static_cast<char>(bytes[at] ^ 1);
  Put(path, bytes);
}

class CheckpointDamage : public ::testing::TestWithParam<bool> {
 protected:
  bool sharded() const { return GetParam(); }
  std::string Path(const std::string& name) const { return folder_.File(name); }
  // One of each file of the checkpoint m-STEP, by what it is.
  std::string DataFile(int step) const {
    const std::string prefix = Path("m-" + std::to_string(step));
    return CheckpointFileName(sharded() ? ShardPrefix(prefix, 1, 2) : prefix);
  }
  std::string Warnings(const std::function<void()>& work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }

  const TemporaryFolder folder_{FolderInMemory()};
};

// What is wrong with the folder after one of its files was changed: nothing, if it is found by name
// or changes no value.
std::string Wrong(const TemporaryFolder& folder, const std::string& changed,
                  const Values& expected) {
  const Result<Values> left = LatestValues(folder.path());
  if (left.ok()) return *left == expected ? "" : "wrong values are restored";
  if (left.status().code() != Code::kDataLoss) return left.status().ToString();
  return left.status().message().find(changed) == std::string::npos
             ? "the file is not named: " + left.status().message()
             : "";
}

TEST_P(CheckpointDamage, OfAnySingleBitIsFoundOrHarmless) {
  TwoVariables program({.sharded = sharded()});
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  ASSERT_TRUE(program.Save(Path("m"), 2, 2).ok());  // so that another name is one of a checkpoint
  int found = 0;
  for (const std::string& name : FilesOf(folder_.path())) {
    if (name.find("m-1") != std::string::npos) continue;
    const std::string path = Path(name), whole = BytesOf(path);
    for (size_t at = 0; at < whole.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
        Put(path, bytes);
        const std::string wrong = Wrong(folder_, path, ValuesOf(2));
        ASSERT_EQ(wrong, "") << path << ", byte " << at << ", bit " << bit;
        found += LatestValues(folder_.path()).ok() ? 0 : 1;
      }
    }
    Put(path, whole);
  }
  EXPECT_GT(found, 1000);
}

TEST_P(CheckpointDamage, OfManyBytesIsFoundOrHarmless) {
  TwoVariables program({.sharded = sharded()});
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  ASSERT_TRUE(program.Save(Path("m"), 2, 2).ok());
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random()) % limit; };
  for (const std::string& name : FilesOf(folder_.path())) {
    if (name.find("m-1") != std::string::npos) continue;
    const std::string path = Path(name), whole = BytesOf(path);
    for (int round = 0; round < 1500; ++round) {
      std::string bytes = whole;
      const size_t kind = below(5), many = 2 + below(39), at = below(bytes.size());
      const size_t length = std::min(many, bytes.size() - at), from = below(bytes.size() - length);
      if (kind == 0) {  // anywhere
        for (size_t i = 0; i < many; ++i) bytes[below(bytes.size())] = static_cast<char>(random());
      } else if (kind == 1) {  // side by side
        for (size_t i = at; i < at + length; ++i) bytes[i] = static_cast<char>(random());
      } else if (kind == 2) {  // text to text, as of another header
        for (size_t i = 0; i < many; ++i) bytes[below(bytes.size())] = whole[below(whole.size())];
      } else if (kind == 3) {  // a piece of it in another place
        bytes.replace(at, length, whole.substr(from, length));
      } else {
        bytes.resize(at);
      }
      Put(path, bytes);
      ASSERT_EQ(Wrong(folder_, path, ValuesOf(2)), "") << path << ", round " << round;
    }
    Put(path, whole);
  }
}

TEST_P(CheckpointDamage, IsToldWithFileTensorAndBytes) {
  TwoVariables program({.sharded = sharded()});
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  const std::string path = DataFile(1), whole = BytesOf(path);
  const auto error = [&] {
    return program.saver->Restore(program.session.get(), Path("m-1")).message();
  };
  ChangeByte(path, whole.size() - 3);
  const std::string vector = "bytes " + std::to_string(whole.size() - 20) + " to " +
                             std::to_string(whole.size()) + " of the file";
  EXPECT_THAT(error(), HasSubstr("checkpoint '" + path + "': the bytes of 'vector' are damaged"));
  EXPECT_THAT(error(), HasSubstr(vector));
  Put(path, whole);
  ChangeByte(path, 20);
  EXPECT_THAT(error(), HasSubstr("checkpoint '" + path + "': its header (bytes 0 to "));
  EXPECT_THAT(error(), HasSubstr("it is damaged"));
  Put(path, whole + "x");
  EXPECT_THAT(error(), HasSubstr("it has " + std::to_string(whole.size() + 1) + " bytes instead"));
}

// One letter of a key "crc32:...", and forty bytes of the tensor whose key it was: what an older
// version wrote had no other checksum.
TEST_P(CheckpointDamage, OfATensorAndOfTheKeyOfItsChecksumIsFoundInOlderFilesToo) {
  TwoVariables program({.sharded = sharded()});
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  const std::string path = DataFile(1);
  std::string bytes = BytesOf(path);
  // As the version before this one wrote it.
  bytes.replace(bytes.find("monograph_crc32"), 15, "another_member!");
  bytes.replace(bytes.find("\"monograph 2\""), 13, "\"monograph\"  ");
  if (!sharded()) {  // an index would say that it is another file
    Put(path, bytes);
    const std::string said = Warnings([&] {
      EXPECT_EQ(LatestValues(folder_.path()).value(), ValuesOf(1));
      EXPECT_EQ(LatestValues(folder_.path()).value(), ValuesOf(1));
    });
    EXPECT_LE(said.find("has no checksum of its header"), said.rfind("has no checksum"));
  }
  bytes.replace(bytes.find("crc32:vector"), 12, "crc33:vector");
  for (size_t i = 1; i <= 20; ++i) bytes[bytes.size() - i] ^= 1;
  Put(path, bytes);
  EXPECT_EQ(LatestValues(folder_.path()).status().code(), Code::kDataLoss);
}

TEST_P(CheckpointDamage, OfTheNewestMakesRestoreLatestGoBackToTheLastWholeOneAndSaysSo) {
  TwoVariables program({.sharded = sharded()});
  for (int step = 1; step <= 4; ++step)
    ASSERT_TRUE(program.Save(Path("m"), static_cast<float>(step), step).ok());
  const std::string damaged_bytes = BytesOf(DataFile(4));
  ChangeByte(DataFile(4), damaged_bytes.size() - 3);
  fs::remove(DataFile(3));

  // A restore by name does not look elsewhere, nor does one that is told so.
  TwoVariables next({.max_to_keep = 3, .sharded = sharded()});
  EXPECT_FALSE(next.saver->Restore(next.session.get(), Path("m-4")).ok());
  EXPECT_EQ(next.saver->RestoreLatest(next.session.get(), folder_.path(), {.refuse_damaged = true})
                .status()
                .code(),
            Code::kDataLoss);
  EXPECT_FALSE(fs::exists(Path("damaged")));

  std::vector<std::string> told;
  const std::string warnings = Warnings([&] {
    const auto restored =
        next.saver->RestoreLatest(next.session.get(), folder_.path(),
                                  {.say = [&](const std::string& text) { told.push_back(text); }});
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(*restored, Path("m-2"));
  });
  EXPECT_EQ(next.Value(), 2);
  EXPECT_THAT(told, ElementsAre("Restoring parameters from " + Path("m-4"),
                                "Restoring parameters from " + Path("m-3"),
                                "Restoring parameters from " + Path("m-2")));
  EXPECT_THAT(warnings, HasSubstr("'" + Path("m-4") + "' cannot be restored: "));
  EXPECT_THAT(warnings, HasSubstr("the bytes of 'vector' are damaged"));
  EXPECT_THAT(warnings, HasSubstr("'" + Path("m-3") + "' cannot be restored: "));
  EXPECT_THAT(warnings, HasSubstr("its files are in '" + Path("damaged") + "' now"));

  // The damaged one is as it was, elsewhere; the good ones are all there, and count.
  const fs::path aside = Path("damaged") / fs::path(DataFile(4)).filename();
  EXPECT_EQ(BytesOf(aside).size(), damaged_bytes.size());
  EXPECT_FALSE(fs::exists(DataFile(4)));
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), Path("m-2"));
  for (int step = 3; step <= 4; ++step)
    ASSERT_TRUE(next.Save(Path("m"), static_cast<float>(step), step).ok());
  for (int step = 1; step <= 4; ++step) EXPECT_EQ(fs::exists(DataFile(step)), step > 1) << step;
  EXPECT_TRUE(fs::exists(aside));
  // The same name once more.
  ChangeByte(DataFile(4), damaged_bytes.size() - 3);
  TwoVariables last({.sharded = sharded()});
  (void)Warnings([&] {
    EXPECT_EQ(last.saver->RestoreLatest(last.session.get(), folder_.path()).value(), Path("m-3"));
  });
  EXPECT_TRUE(fs::exists(Path("damaged-2") / fs::path(DataFile(4)).filename()));
}

TEST_P(CheckpointDamage, OfEveryCheckpointIsAnErrorAndNoNewBeginning) {
  TwoVariables program({.sharded = sharded()});
  for (int step = 1; step <= 2; ++step) {
    ASSERT_TRUE(program.Save(Path("m"), 1, step).ok());
    ChangeByte(DataFile(step), 30);
  }
  (void)Warnings([&] {
    const Status status =
        program.saver->RestoreLatest(program.session.get(), folder_.path()).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("no checkpoint of '" + folder_.path()));
    EXPECT_THAT(status.message(), HasSubstr(DataFile(2)));
  });
  TwoVariables other({.sharded = sharded()});
  const TemporaryFolder empty;
  EXPECT_EQ(other.saver->RestoreLatest(other.session.get(), empty.path()).value(), std::nullopt);
}

TEST_P(CheckpointDamage, OfTheStateFileMakesRestoreLatestLookWhatIsThere) {
  TwoVariables program({.sharded = sharded()});
  for (int step = 9; step <= 11; ++step)
    ASSERT_TRUE(program.Save(Path("m"), static_cast<float>(step), step).ok());
  std::string state = BytesOf(Path("checkpoint"));
  Put(Path("checkpoint"), state.replace(state.find("m-11"), 4, "m-09"));
  EXPECT_EQ(LatestCheckpoint(folder_.path()).status().code(), Code::kDataLoss);
  EXPECT_EQ(
      program.saver->RestoreLatest(program.session.get(), folder_.path(), {.refuse_damaged = true})
          .status()
          .code(),
      Code::kDataLoss);
  const std::string warnings = Warnings([&] {
    EXPECT_EQ(program.saver->RestoreLatest(program.session.get(), folder_.path()).value(),
              Path("m-11"));
  });
  EXPECT_THAT(warnings, HasSubstr("'" + Path("checkpoint") + "': it is damaged"));
  EXPECT_EQ(program.Value(), 11);
}

INSTANTIATE_TEST_SUITE_P(Saver, CheckpointDamage, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "sharded" : "single"; });

TEST(CheckpointShards, OfAnotherSaveOrMissingAreNamedWithWhatWouldBeRight) {
  const TemporaryFolder folder;
  TwoVariables program({.sharded = true});
  for (int step = 1; step <= 2; ++step)
    ASSERT_TRUE(program.Save(folder.File("m"), static_cast<float>(step), step).ok());
  const auto shard = [&](int step) {
    return CheckpointFileName(ShardPrefix(folder.File("m-" + std::to_string(step)), 0, 2));
  };
  const auto error = [&] {
    const Status status = program.saver->Restore(program.session.get(), folder.File("m-2"));
    EXPECT_EQ(status.code(), Code::kDataLoss) << status;
    return status.message();
  };
  const std::string good = BytesOf(shard(2));
  fs::copy_file(shard(1), shard(2), fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(), HasSubstr("the shard '" + shard(2) + "' is of another save than the index"));
  EXPECT_THAT(error(), HasSubstr("put the files of one save together"));
  Put(shard(2), good);
  // An index that is older than its shards.
  std::string index = BytesOf(CheckpointIndexName(folder.File("m-1")));
  for (size_t at = index.find("m-1"); at != std::string::npos; at = index.find("m-1"))
    index.replace(at, 3, "m-2");
  Put(CheckpointIndexName(folder.File("m-2")), index);
  EXPECT_THAT(error(), HasSubstr("the index: it is damaged"));
  // The same without a seal.
  index.replace(index.find("monograph_crc32"), 15, "monograph_crc31");
  index.replace(index.find("monograph 2"), 11, "monograph 1");
  Put(CheckpointIndexName(folder.File("m-2")), index);
  EXPECT_THAT(error(), HasSubstr("is of another save than the index: it has "));
  fs::remove(shard(2));
  EXPECT_THAT(error(), HasSubstr("the shard '" + shard(2) + "', which has 'number', is missing"));
}

// What the safetensors library writes: no checksums, and metadata of its own or none.
TEST(CheckpointOfAnotherProgram, IsReadAndTheLogSaysOnceThatItHasNoChecksum) {
  const TemporaryFolder folder;
  std::string header =
      R"({"__metadata__":{"format":"pt"},"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  const float value = 2.5f;
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += header + std::string(reinterpret_cast<const char*>(&value), sizeof value);
  Put(folder.File("m.safetensors"), bytes);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(LoadVariable(folder.File("m"), "v").value().data<float>()[0], 2.5f);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("has no checksum"), said.rfind("has no checksum"));
}

}  // namespace
}  // namespace monograph::testing
