// What a session says: the lanes of its data plane, and the tasks that a step waited for.
#include <gtest/gtest.h>

#include "client/session/lanes.h"
#include "client/session/late.h"
#include "executor/step/unfinished.h"

namespace monograph {
namespace {

DeviceName Task(const std::string& job, int task) {
  return {.job = job, .replica = 0, .task = task};
}

// Every pair of `tasks`, each on the host of its place in `hosts`.
std::vector<LaneUse> Pairs(const std::vector<DeviceName>& tasks, const std::vector<int>& hosts) {
  std::vector<LaneUse> uses;
  for (size_t a = 0; a < tasks.size(); ++a) {
    for (size_t b = 0; b < tasks.size(); ++b) {
      if (a != b) uses.push_back({tasks[a], tasks[b], hosts[a] == hosts[b] ? "shm" : "tcp"});
    }
  }
  return uses;
}

using Lines = std::vector<std::string>;

TEST(Lanes, RunsOfTasksAreListedInShort) {
  EXPECT_EQ(TaskList({}), "");
  EXPECT_EQ(TaskList({Task("worker", 10), Task("worker", 9), Task("ps", 0), Task("worker", 2),
                      Task("worker", 8)}),
            "ps/0, worker/2, worker/8-10");
}

TEST(Lanes, AWayThatAllTasksTakeIsOneLine) {
  std::vector<DeviceName> tasks = {Task("client", 0)};
  for (int i = 0; i < 12; ++i) tasks.push_back(Task("worker", i));
  EXPECT_EQ(DescribeLanes(Pairs(tasks, std::vector<int>(13, 0))),
            Lines{"data plane: shm among client/0, worker/0-11"});
  EXPECT_EQ(DescribeLanes({}), Lines{});
}

TEST(Lanes, TasksOfSeveralHostsAreShownHostByHost) {
  std::vector<DeviceName> tasks = {Task("client", 0)};
  std::vector<int> hosts = {0};
  for (int i = 0; i < 12; ++i) tasks.push_back(Task("worker", i)), hosts.push_back(i / 4);
  EXPECT_EQ(DescribeLanes(Pairs(tasks, hosts)),
            (Lines{"data plane: shm among client/0, worker/0-3; among worker/4-7; among "
                   "worker/8-11",
                   "data plane: tcp between client/0, worker/0-3 | worker/4-7 | worker/8-11"}));
}

TEST(Lanes, AWayThatGoesInOneDirectionSaysSo) {
  EXPECT_EQ(DescribeLanes(std::vector<LaneUse>{{Task("ps", 0), Task("worker", 0), "fast"},
                                               {Task("ps", 0), Task("worker", 1), "fast"},
                                               {Task("worker", 0), Task("ps", 0), "slow"}}),
            (Lines{"data plane: fast from ps/0 to worker/0-1",
                   "data plane: slow from worker/0 to ps/0"}));
}

TEST(Lanes, ManyGroupsAreCounted) {
  std::vector<DeviceName> tasks;
  std::vector<int> hosts;
  for (int i = 0; i < 40; ++i) tasks.push_back(Task("worker", i)), hosts.push_back(i / 2);
  const Lines lines = DescribeLanes(Pairs(tasks, hosts));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("among worker/14-15; and 12 groups more"), std::string::npos) << lines[0];
}

TEST(LateParts, ThoseThatOnlyWaitForOthersComeLastAndManyAreCounted) {
  std::vector<LatePart> parts;
  for (int i = 0; i < 100; ++i)
    parts.push_back({i, "w" + std::to_string(i), true, i == 50 ? "node 'get' (Get)" : "awaits x"});
  EXPECT_EQ(
      DescribeLateParts(parts),
      "w50 (node 'get' (Get)), w0 (awaits x), w1 (awaits x), w2 (awaits x), w3 (awaits x), w4 "
      "(awaits x), w5 (awaits x), w6 (awaits x), and 92 more");
  EXPECT_EQ(DescribeLateParts({{0, "w0"}, {1, "w1"}}), "w0, w1");
  EXPECT_EQ(DescribeLateParts({}), "");
}

TEST(Unfinished, IsOneShortLine) {
  Unfinished unfinished;
  EXPECT_EQ(unfinished.ToString(), "");
  unfinished.Awaits("get:0", "/job:ps");
  EXPECT_EQ(unfinished.ToString(), "awaits 'get:0' from /job:ps");
  for (int i = 0; i < 4; ++i) unfinished.Awaits("x", "/job:ps");
  EXPECT_EQ(unfinished.ToString(),
            "awaits 'get:0' from /job:ps, 'x' from /job:ps, 'x' from /job:ps, and 2 more tensors");
  // What had begun is to blame, not what it is waited for.
  unfinished.Began("n", "Op", Status());
  EXPECT_EQ(unfinished.ToString(), "node 'n' (Op)");
  unfinished.Began(std::string(1000, 'm'), "Op", Cancelled("two\nlines" + std::string(1000, '.')));
  unfinished.Began("o", "Op", Cancelled("why"));
  unfinished.Began("p", "Op", Cancelled("why"));
  const std::string text = unfinished.ToString();
  EXPECT_NE(text.find("; node 'o' (Op): why; and 1 more node"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_LT(text.size(), 900u);
}

}  // namespace
}  // namespace monograph
