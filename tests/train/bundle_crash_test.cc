// A save of TensorFlow's bundles, of one shard or merged of two, whose machine loses its power
// after any of its system calls, or whose disk refuses any of them: under each name stands the old
// checkpoint or the new one, whole, or what stands there is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ops/checkpoint_files/tensor_bundle.h"
#include "tests/temporary_folder.h"
#include "tests/train/recording_disk.h"

namespace monograph::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Scenario {
  std::string name;
  bool merged_before, merged;
  bool in_place;  // of the checkpoint before; else under another name
  bool any_before = true;
};
const Scenario kScenarios[] = {
    {"save", false, false, false},
    {"merge", true, true, false},
    {"save_in_place", false, false, true},
    {"merge_in_place", true, true, true},
    {"merge_in_place_of_a_save", false, true, true},
    {"save_in_place_of_a_merge", true, false, true},
    {"first_save", false, false, false, false},
    {"first_merge", true, true, false, false},
};

BundleTensor Numbers(const std::string& name, const Shape& shape, float value) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, shape).value();
  std::fill_n(tensor.data<float>(), tensor.elements(), value);
  return {name, shape, {}, tensor};
}

// All of a checkpoint is this value.
Status Save(const std::string& prefix, bool merged, float value) {
  const BundleTensor number = Numbers("number", {1}, value), vector = Numbers("vector", {5}, value);
  const BundleTensor word = {"word", {}, {}, Tensor::String(std::to_string(value))};
  if (!merged) return WriteBundle(prefix, {number, vector, word});
  const std::vector<std::string> parts = {prefix + "_temp/part-0", prefix + "_temp/part-1"};
  MG_RETURN_IF_ERROR(WriteBundle(parts[0], {number, word}));
  MG_RETURN_IF_ERROR(WriteBundle(parts[1], {vector}));
  return MergeBundles(parts, prefix);
}

// The value of the checkpoint, all of which is read; DataLoss for one that is mixed of two.
Result<float> Load(const std::string& prefix) {
  MG_ASSIGN_OR_RETURN(BundleReader reader, BundleReader::Open(prefix));
  std::vector<float> values;
  std::string word;
  for (const auto& [name, entry] : reader.entries()) {
    MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(entry.dtype, entry.shape));
    MG_RETURN_IF_ERROR(reader.Read(name, Box::Whole(entry.shape), &tensor));
    if (entry.dtype == DT_STRING) {
      word = *tensor.strings();
    } else {
      const auto span = tensor.values<float>();
      values.insert(values.end(), span.begin(), span.end());
    }
  }
  if (values != std::vector<float>(6, values[0]) || word != std::to_string(values[0]))
    return Internal("a mixture of two checkpoints");
  return values[0];
}

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    files.push_back(entry.path().lexically_relative(folder).string());
  std::sort(files.begin(), files.end());
  return files;
}

class BundleCrash : public ::testing::TestWithParam<Scenario> {
 protected:
  static std::string Folder(const std::string& root) { return root + "/run/train"; }
  static std::string Old(const std::string& root) { return Folder(root) + "/model-1"; }
  static std::string New(const std::string& root) {
    return Folder(root) + (GetParam().in_place ? "/model-1" : "/model-2");
  }
  static void SaveOld(const std::string& root) {
    if (!GetParam().any_before) return;
    EXPECT_TRUE(Save(Old(root), GetParam().merged_before, 1).ok());
  }

  // What is wrong with what a save has left; "" if nothing is.
  static std::string Wrong(const std::string& root, bool ended) {
    if (GetParam().any_before && !GetParam().in_place) {
      const Result<float> old = Load(Old(root));
      if (!old.ok() || *old != 1) return "the old checkpoint: " + old.status().ToString();
    }
    const Result<float> left = Load(New(root));
    if (left.ok() && *left == 2) return "";
    if (ended) return "the new checkpoint: " + left.status().ToString();
    if (left.ok()) return *left == 1 && GetParam().in_place ? "" : "another checkpoint";
    const bool by_name =
        (left.status().code() == Code::kNotFound || left.status().code() == Code::kDataLoss) &&
        left.status().message().find(New(root)) != std::string::npos;
    return by_name ? "" : left.status().ToString();
  }

  static std::string FirstLoss(CrashingDisk* disk, const std::vector<DiskCall>& calls) {
    std::mt19937 random(1);
    for (size_t made = 0; made <= calls.size(); ++made) {
      if (made > 0) disk->Do(calls[made - 1]);
      for (const Crash crash : kCrashes) {
        for (int i = 0; i < (crash == Crash::kLosesSomeNames ? 6 : 2); ++i) {
          const TemporaryFolder after(FolderInMemory());
          disk->LeaveIn(after.path(), crash, &random);
          const std::string wrong = Wrong(after.path(), made == calls.size());
          if (wrong.empty()) continue;
          return std::to_string(made) + " of " + std::to_string(calls.size()) + " calls, crash " +
                 std::to_string(static_cast<int>(crash)) + ": " + wrong;
        }
      }
    }
    return "";
  }
};

TEST_P(BundleCrash, AfterAnyCallOfASaveLeavesOneOfTheCheckpointsOrOneThatIsRefusedByName) {
  const TemporaryFolder root(FolderInMemory());
  SaveOld(root.path());
  CrashingDisk disk(root.path());
  std::map<DiskCall::Kind, CrashingDisk> without;
  for (const DiskCall::Kind kind : {DiskCall::kSync, DiskCall::kSyncFolder})
    without.emplace(kind, root.path());
  RecordingDisk recorder;
  {
    const DiskInPlace in_place(&recorder);
    const Status saved = Save(New(root.path()), GetParam().merged, 2);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  const std::vector<DiskCall> calls = recorder.calls();
  ASSERT_GT(calls.size(), 8u);
  EXPECT_EQ(FirstLoss(&disk, calls), "");
  // The disk of the test is not kinder than a real one.
  for (auto& [left_out, less] : without) {
    std::vector<DiskCall> fewer = calls;
    std::erase_if(fewer, [kind = left_out](const DiskCall& call) { return call.kind == kind; });
    EXPECT_NE(FirstLoss(&less, fewer), "");
  }
}

TEST_P(BundleCrash, OfTheProcessLeavesAFolderInWhichTheNextSaveGoesWell) {
  const TemporaryFolder root(FolderInMemory());
  SaveOld(root.path());
  CrashingDisk disk(root.path());
  RecordingDisk recorder;
  {
    const DiskInPlace in_place(&recorder);
    ASSERT_TRUE(Save(New(root.path()), GetParam().merged, 2).ok());
  }
  std::mt19937 random(1);
  for (const DiskCall& call : recorder.calls()) {
    disk.Do(call);
    const TemporaryFolder after(FolderInMemory());
    disk.LeaveIn(after.path(), Crash::kOfTheProcess, &random);
    const Status saved = Save(New(after.path()), GetParam().merged, 3);
    ASSERT_TRUE(saved.ok()) << saved;
    EXPECT_EQ(Load(New(after.path())).value(), 3);
  }
}

// Where the new files take the old ones' place there is a moment at which neither checkpoint is
// whole. Only a rename that is refused then costs the old one.
TEST_P(BundleCrash, ADiskWithoutRoomCostsThatCheckpointAloneAndLeavesNothingBehind) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    for (int failing = 0;; ++failing) {
      const TemporaryFolder root(FolderInMemory());
      SaveOld(root.path());
      const auto before = FilesBelow(Folder(root.path()));
      RecordingDisk disk;
      int number = 0;
      const DiskCall* failed = nullptr;
      DiskCall kept;
      disk.failure = [&](const DiskCall& call) {
        // These need no room.
        if (call.kind == DiskCall::kRemove || call.kind == DiskCall::kSyncFolder) return 0;
        if (number++ != failing) return 0;
        kept = call;
        failed = &kept;
        return error;
      };
      {
        const DiskInPlace in_place(&disk);
        const Status status = Save(New(root.path()), GetParam().merged, 2);
        if (failed == nullptr) {
          EXPECT_TRUE(status.ok()) << status;
          break;
        }
        EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
        EXPECT_THAT(status.message(), HasSubstr(std::strerror(error)));
      }
      SCOPED_TRACE(failed->path + " to " + failed->to);
      const bool lost = GetParam().in_place && failed->kind == DiskCall::kRename &&
                        failed->to.starts_with(New(root.path()) + ".");
      if (GetParam().any_before && !lost) {
        const Result<float> old = Load(Old(root.path()));
        EXPECT_TRUE(old.ok() && *old == 1) << old.status();
      }
      if (lost || !GetParam().in_place) {
        EXPECT_EQ(Load(New(root.path())).status().code(), Code::kNotFound);
      }
      std::vector<std::string> after = FilesBelow(Folder(root.path()));
      for (const std::string& file : after) EXPECT_FALSE(file.ends_with(".part")) << file;
      // The parts that were to be merged stay, as TensorFlow's do.
      std::erase_if(after, [](const auto& file) { return file.find("_temp") != file.npos; });
      EXPECT_EQ(after, lost ? std::vector<std::string>() : before);
      const Status next = Save(New(root.path()), GetParam().merged, 3);
      EXPECT_TRUE(next.ok()) << next;
      EXPECT_EQ(Load(New(root.path())).value(), 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bundles, BundleCrash, ::testing::ValuesIn(kScenarios),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace monograph::testing
