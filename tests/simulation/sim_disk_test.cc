// The simulated disks, and a network's edges that its transports' conformance does not show.
#include "tests/simulation/sim_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using simulation::Network;
using simulation::SimDisk;
using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

class SimDiskTest : public ::testing::Test {
 protected:
  SimDiskTest() : host_(network_.AddHost("ps-0")) { disk_.Mount(folder_.path(), host_); }
  void LosePower() {
    network_.Crash(host_);
    disk_.LosePower(host_);
    network_.Restart(host_);
  }

  const TemporaryFolder folder_, elsewhere_;
  Network network_{Network::Options{}};
  const int host_;
  SimDisk disk_{&network_};
};

TEST_F(SimDiskTest, KeepsAWholeFileOverALossOfPower) {
  const std::string path = folder_.File("checkpoint");
  for (int i = 0; i < 20; ++i) {
    const std::string text = "number " + std::to_string(i);
    ASSERT_TRUE(WriteFileWhole(path, text).ok());
    LosePower();
    EXPECT_EQ(TextOf(path), text);
  }
}

TEST_F(SimDiskTest, LosesOrTearsWhatWasNotSynced) {
  const std::string text(1000, 'x');
  int whole = 0, torn = 0, gone = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string path = folder_.File("file" + std::to_string(i));
    const int file = disk_.Create(path);
    ASSERT_EQ(disk_.Write(file, text.data(), text.size()), 1000);
    disk_.Close(file);
    EXPECT_EQ(TextOf(path), text);
    LosePower();
    const std::string left = TextOf(path);
    if (left == text) ++whole;
    if (left.empty()) ++gone;
    if (left != text && !left.empty()) ++torn;
  }
  EXPECT_GT(torn, 5);
  EXPECT_GT(gone, 5);
  EXPECT_LT(whole, 20);
}

TEST_F(SimDiskTest, RefusesEverythingWhileItsMachineIsDownAndForProcessesOfItsEarlierLife) {
  const std::string path = folder_.File("checkpoint");
  ASSERT_TRUE(WriteFileWhole(path, "before").ok());
  const int file = disk_.Create(folder_.File("open"));
  network_.Crash(host_);
  const Status down = WriteFileWhole(path, "while it is down");
  EXPECT_EQ(down.code(), Code::kFailedPrecondition) << down;
  EXPECT_THAT(down.message(), HasSubstr("Input/output error"));
  EXPECT_TRUE(WriteFileWhole(elsewhere_.File("file"), "of the machine of the test").ok());
  network_.Restart(host_);
  EXPECT_EQ(disk_.Write(file, "x", 1), -1);
  disk_.Close(file);
  EXPECT_EQ(TextOf(path), "before");
  EXPECT_TRUE(WriteFileWhole(path, "after").ok());
  EXPECT_EQ(TextOf(path), "after");
}

TEST_F(SimDiskTest, IsFullAfterSoManyBytes) {
  disk_.SetRoom(host_, 100);
  EXPECT_TRUE(WriteFileWhole(folder_.File("small"), std::string(60, 'x')).ok());
  const Status full = WriteFileWhole(folder_.File("large"), std::string(60, 'x'));
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full;
  disk_.SetRoom(host_, -1);
  EXPECT_TRUE(WriteFileWhole(folder_.File("large"), std::string(60, 'x')).ok());
  EXPECT_EQ(disk_.renames(host_), 2);
}

}  // namespace
}  // namespace monograph
