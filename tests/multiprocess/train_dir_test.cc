// Whole jobs and their --train_dir: two of them in one, one whose disk is full, one whose newest
// checkpoint is damaged.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "tests/multiprocess/mnist_jobs.h"
#include "tests/temporary_folder.h"
#include "train/saver.h"

namespace monograph {
namespace {

// mnist_replica without a cluster.
std::vector<std::string> Program(const std::string& train_dir,
                                 const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {
      MG_MNIST_REPLICA,    "--replication=in_graph", "--data_name=synthetic",
      "--fc=16",           "--batch_size=20",        "--num_warmup_batches=0",
      "--display_every=1", "--save_steps=2",         "--train_dir=" + train_dir};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

TEST(TrainDir, OfAJobThatRunsIsRefusedToAnotherOneAndFreeWhenItIsKilled) {
  const TemporaryFolder dir;
  ChildProcess first(Program(dir.path(), {kForever}));
  ASSERT_TRUE(first.WaitForOutput("step 3 ", kLimit)) << first.error();
  ChildProcess second(Program(dir.path(), {kForever}));
  ExpectFails(second, {"FAILED_PRECONDITION", "another job writes checkpoints into", dir.path(),
                       "process " + std::to_string(first.pid())});
  EXPECT_TRUE(first.WaitForMoreOutput("step ", kLimit)) << first.error();
  first.Signal(SIGKILL);
  ASSERT_TRUE(first.Wait(kLimit));
  ChildProcess third(Program(dir.path(), {kForever}));
  EXPECT_TRUE(third.WaitForError("Going on at global step ", kLimit)) << third.error();
  EXPECT_TRUE(third.WaitForOutput("step ", kLimit)) << third.error();
}

TEST(TrainDir, WithADamagedNewestCheckpointGoesOnFromTheOneBeforeUnlessThatIsRefused) {
  const TemporaryFolder dir;
  ChildProcess first(Program(dir.path(), {"--num_batches=6"}));
  ASSERT_TRUE(Succeeds(first));
  const std::string newest = LatestCheckpoint(dir.path()).value().value() + ".safetensors";
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 1);
  ChildProcess refused(Program(dir.path(), {"--num_batches=8", "--refuse_damaged_checkpoint"}));
  ExpectFails(refused, {"DATA_LOSS", newest, "truncated"});
  ChildProcess second(Program(dir.path(), {"--num_batches=8"}));
  ASSERT_TRUE(Succeeds(second)) << second.error();
  for (const std::string& text : {newest, std::string("truncated"), dir.File("damaged"),
                                  dir.File("model.ckpt-4"), std::string("at global step 4")})
    EXPECT_NE(second.error().find(text), std::string::npos) << text << ": " << second.error();
}

// The limit of a file's size, which is also a signal that would end the process.
TEST(TrainDir, WithAFullDiskTrainsOnAndSavesWhenThereIsRoomAgain) {
  const TemporaryFolder dir;
  signal(SIGXFSZ, SIG_DFL);  // who started the test may have ignored it
  ChildProcess job(Program(dir.path(), {kForever}));
  ASSERT_TRUE(job.WaitForOutput("step 3 ", kLimit)) << job.error();
  const rlimit none{16384, RLIM_INFINITY}, all{RLIM_INFINITY, RLIM_INFINITY};
  ASSERT_EQ(prlimit(job.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  ASSERT_TRUE(job.WaitForError("File too large; training goes on without the checkpoint", kLimit))
      << job.error();
  EXPECT_TRUE(job.WaitForMoreOutput("step ", kLimit)) << job.error();
  const std::string before = LatestCheckpoint(dir.path()).value().value();
  EXPECT_TRUE(ListVariables(before).ok());
  ASSERT_EQ(prlimit(job.pid(), RLIMIT_FSIZE, &all, nullptr), 0);
  const auto until = Clock::now() + kLimit;
  while (LatestCheckpoint(dir.path()).value() == before && Clock::now() < until)
    std::this_thread::sleep_for(20ms);
  EXPECT_NE(LatestCheckpoint(dir.path()).value(), before) << job.error();
}

// A file system of 1 MiB in a mount namespace of its own.
TEST(TrainDir, OnADiskOfOneMegabyteTrainsOnAndSaysWhatIsNotSaved) {
  const TemporaryFolder dir;
  ChildProcess possible({"unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs",
                         "-o", "size=1m", "none", dir.path()});
  const std::optional<Exit> mounted = possible.Wait(kLimit);
  if (!mounted || mounted->signalled || mounted->code != 0)
    GTEST_SKIP() << "no file system can be mounted here: " << possible.error();
  std::string command = "mount -t tmpfs -o size=1m none " + dir.path() +
                        " && head -c 900000 /dev/zero > " + dir.File("filler") + " && exec";
  for (const std::string& word : Program(dir.path(), {kForever})) command += " '" + word + "'";
  ChildProcess job({"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command});
  ASSERT_TRUE(job.WaitForError("No space left on device; training goes on without", kLimit))
      << job.error();
  EXPECT_TRUE(job.WaitForMoreOutput("step ", kLimit)) << job.error();
}

}  // namespace
}  // namespace monograph
