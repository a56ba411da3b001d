// A save whose machine loses its power after any of its system calls, or whose disk refuses any of
// them: what is there afterwards is the old checkpoint or the new one, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/train/recording_disk.h"
#include "tests/train/saver_programs.h"

namespace monograph::testing {
namespace {

using ::testing::HasSubstr;

// A save that follows what `before` has saved.
struct Scenario {
  std::string name;
  bool sharded_before, sharded;
  int64_t step_before, step;  // -1: no number, so that one replaces the other
  bool any_before = true;
};
const Scenario kScenarios[] = {
    {"single", false, false, 1, 2},
    {"sharded", true, true, 1, 2},
    {"single_in_place", false, false, -1, -1},
    {"sharded_in_place", true, true, -1, -1},
    {"sharded_in_place_of_single", false, true, -1, -1},
    {"single_in_place_of_sharded", true, false, -1, -1},
    {"first_single", false, false, 0, 2, false},
    {"first_sharded", true, true, 0, 2, false},
};

// The folder run/train, in which `before` and then `second` save. max_to_keep is 1, so that the old
// checkpoint is removed.
class SaveOf {
 public:
  explicit SaveOf(const Scenario& its_scenario)
      : scenario_(its_scenario),
        before_({.max_to_keep = 1, .sharded = scenario_.sharded_before}),
        after_({.max_to_keep = 1, .sharded = scenario_.sharded}) {
    if (!scenario_.any_before) return;
    // The same saver where it is of the same kind, which then removes what it saved.
    EXPECT_TRUE(Before().Save(Path(), 1, scenario_.step_before).ok());
  }
  Status Save(float value = 2) { return after_.Save(Path(), value, scenario_.step).status(); }
  std::string root() const { return root_.path(); }
  std::string folder() const { return Train(root_.path()); }
  static std::string Train(const std::string& root) { return root + "/run/train"; }
  Values old() const { return scenario_.any_before ? ValuesOf(1) : Values(); }

 private:
  TwoVariables& Before() {
    return scenario_.sharded_before == scenario_.sharded ? after_ : before_;
  }
  std::string Path() const { return folder() + "/model.ckpt"; }

  const Scenario scenario_;
  const TemporaryFolder root_{FolderInMemory()};
  TwoVariables before_, after_;
};

class CheckpointCrash : public ::testing::TestWithParam<Scenario> {};

// What is wrong after some crash, after some of the calls that a save made on `disk`; "" if nothing
// is.
std::string FirstLoss(CrashingDisk* disk, const std::vector<DiskCall>& calls, const Values& old) {
  std::mt19937 random(1);
  for (size_t made = 0; made <= calls.size(); ++made) {
    if (made > 0) disk->Do(calls[made - 1]);
    for (const Crash crash : kCrashes) {
      for (int i = 0; i < (crash == Crash::kLosesSomeNames ? 6 : 2); ++i) {
        const TemporaryFolder after(FolderInMemory());
        disk->LeaveIn(after.path(), crash, &random);
        const Result<Values> left = LatestValues(SaveOf::Train(after.path()));
        if (left.ok() && *left == ValuesOf(2)) continue;
        if (left.ok() && *left == old && made < calls.size()) continue;
        return std::to_string(made) + " of " + std::to_string(calls.size()) + " calls, crash " +
               std::to_string(static_cast<int>(crash)) + ": " +
               (left.ok() ? "another checkpoint" : left.status().ToString());
      }
    }
  }
  return "";
}

TEST_P(CheckpointCrash, AfterAnyCallOfASaveLeavesTheOldCheckpointOrTheNewOne) {
  SaveOf save(GetParam());
  CrashingDisk disk(save.root());
  std::map<DiskCall::Kind, CrashingDisk> without;
  for (const DiskCall::Kind kind : {DiskCall::kSync, DiskCall::kSyncFolder})
    without.emplace(kind, save.root());
  RecordingDisk recorder;
  {
    const DiskInPlace in_place(&recorder);
    const Status saved = save.Save();
    ASSERT_TRUE(saved.ok()) << saved;
  }
  const std::vector<DiskCall> calls = recorder.calls();
  ASSERT_GT(calls.size(), 8u);
  EXPECT_EQ(FirstLoss(&disk, calls, save.old()), "");
  // The disk of the test is not kinder than a real one.
  for (auto& [left_out, less] : without) {
    std::vector<DiskCall> fewer = calls;
    std::erase_if(fewer, [kind = left_out](const DiskCall& call) { return call.kind == kind; });
    EXPECT_NE(FirstLoss(&less, fewer, save.old()), "");
  }
}

TEST_P(CheckpointCrash, OfTheProcessLeavesAFolderInWhichTheNextSaveGoesWell) {
  SaveOf save(GetParam());
  CrashingDisk disk(save.root());
  RecordingDisk recorder;
  {
    const DiskInPlace in_place(&recorder);
    ASSERT_TRUE(save.Save().ok());
  }
  std::mt19937 random(1);
  for (const DiskCall& call : recorder.calls()) {
    disk.Do(call);
    const TemporaryFolder after(FolderInMemory());
    disk.LeaveIn(after.path(), Crash::kOfTheProcess, &random);
    const std::string folder = SaveOf::Train(after.path());
    TwoVariables again({.sharded = GetParam().sharded});
    const Result<std::string> saved = again.Save(folder + "/model.ckpt", 3, GetParam().step);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(LatestValues(folder).value(), ValuesOf(3));
  }
}

TEST_P(CheckpointCrash, ADiskWithoutRoomCostsThatCheckpointAloneAndLeavesNothingBehind) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    for (int failing = 0;; ++failing) {
      SaveOf save(GetParam());
      const bool there = std::filesystem::exists(save.folder());
      const auto before = there ? FilesOf(save.folder()) : std::vector<std::string>();
      RecordingDisk disk;
      int number = 0;
      std::string failed;
      disk.failure = [&](const DiskCall& call) {
        // These need no room.
        if (call.kind == DiskCall::kRemove || call.kind == DiskCall::kSyncFolder) return 0;
        if (number++ != failing) return 0;
        failed = call.path;
        return error;
      };
      const Values old = save.old();
      {
        const DiskInPlace in_place(&disk);
        const Status status = save.Save();
        if (failed.empty()) {
          EXPECT_TRUE(status.ok()) << status;
          break;
        }
        EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
        EXPECT_THAT(status.message(), HasSubstr(std::strerror(error)));
      }
      const Values left = LatestValues(save.folder()).value();
      // Where the new one took the old one's place before the state file was written.
      EXPECT_TRUE(left == old || (GetParam().step < 0 && left == ValuesOf(2))) << failed;
      if (there && GetParam().step < 0 && left == old) {
        EXPECT_EQ(FilesOf(save.folder()), before) << failed;
      }
      if (there) {
        for (const std::string& file : FilesOf(save.folder())) {
          EXPECT_FALSE(file.ends_with(".part") || file.ends_with("_temp")) << file;
        }
      }
      const Status next = save.Save(3);
      EXPECT_TRUE(next.ok()) << next;
      EXPECT_EQ(LatestValues(save.folder()).value(), ValuesOf(3)) << failed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Saver, CheckpointCrash, ::testing::ValuesIn(kScenarios),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace monograph::testing
