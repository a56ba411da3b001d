// The collectives of several tasks, without sessions and wires: a network that delivers messages in
// any order, lends or copies payloads, and can lose a task.
#include "executor/collective/collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/pool_allocator.h"
#include "executor/collective/message.h"
#include "executor/thread_pools.h"
#include "executor/worker/step_message.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;

std::string Task(int i) { return "/job:w/replica:0/task:" + std::to_string(i); }
std::string DeviceOf(int task, int id = 0) {
  return Task(task) + "/device:CPU:" + std::to_string(id);
}

// Delivers from one thread, in an order of its own.
class TestNetwork {
 public:
  explicit TestNetwork(bool lend) : lend_(lend), thread_([this] { Loop(); }) {}
  ~TestNetwork() { Stop(); }
  // Nothing is delivered any more.
  void Stop() {
    {
      std::lock_guard lock(mutex_);
      end_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  struct Message {
    uint64_t session;
    std::string from, task;
    std::string header;
    Payload payload;
    Done done;
  };

  void Connect(const std::string& task, CollectiveManager* manager) {
    std::lock_guard lock(mutex_);
    managers_[task] = manager;
  }
  std::vector<std::string> tasks() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, manager] : managers_) names.push_back(name);
    return names;
  }
  void Send(Message message) {
    std::lock_guard lock(mutex_);
    bytes_sent_[{message.from, message.task}] += static_cast<int64_t>(message.payload.bytes);
    messages_.push_back(std::move(message));
    changed_.notify_all();
  }
  void WaitUntilSent(const std::string& from) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::none_of(messages_.begin(), messages_.end(),
                          [&](const Message& message) {
                            return message.from == from && message.payload.bytes > 0;
                          }) &&
             delivering_ != from;
    });
  }
  void WaitUntilDelivered() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return messages_.empty() && delivering_.empty(); });
  }
  // Payloads.
  int64_t BytesSent(const std::string& from, const std::string& to) {
    std::lock_guard lock(mutex_);
    return bytes_sent_[{from, to}];
  }
  // Nothing is delivered until it is let go.
  void Hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  // What goes to it from now on is lost.
  void Lose(const std::string& task) {
    std::lock_guard lock(mutex_);
    managers_[task] = nullptr;
  }

 private:
  void Loop() {
    std::mt19937 random(7);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return end_ || (!held_ && !messages_.empty()); });
      if (end_) return;
      const auto at = static_cast<std::ptrdiff_t>(random() % messages_.size());
      Message message = std::move(messages_[static_cast<size_t>(at)]);
      messages_.erase(messages_.begin() + at);
      CollectiveManager* manager = managers_[message.task];
      delivering_ = message.from;
      lock.unlock();
      Deliver(manager, std::move(message));
      lock.lock();
      delivering_.clear();
      changed_.notify_all();
    }
  }
  void Deliver(CollectiveManager* manager, Message message) {
    if (manager == nullptr) {
      if (message.done) message.done(Cancelled("disconnected"));
      return;
    }
    StepMessage decoded;
    ASSERT_TRUE(DecodeStepMessage(message.header, &decoded).ok());
    if (lend_ || message.payload.bytes == 0) {
      manager->OnDelivered(decoded, std::move(message.payload));
    } else if (PayloadSink sink = manager->OnMessage(decoded, message.payload.bytes);
               sink.data != nullptr) {
      std::memcpy(sink.data, message.payload.data(), message.payload.bytes);
      sink.keep = Buffer();
      sink.done(Status());
    }
    if (message.done) message.done(Status());
  }

  const bool lend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, CollectiveManager*> managers_;
  std::vector<Message> messages_;
  std::string delivering_;  // whose message
  std::map<std::pair<std::string, std::string>, int64_t> bytes_sent_;
  bool held_ = false;
  bool end_ = false;
  std::thread thread_;
};

class Host : public CollectiveHost {
 public:
  Host(TestNetwork* network, int task, int tasks_per_host)
      : network_(network),
        task_(Task(task)),
        tasks_per_host_(tasks_per_host),
        pools_(2, 2),
        manager_(this, &pools_) {
    network_->Connect(task_, &manager_);
  }
  ~Host() override { manager_.Stop(); }
  const std::string& task() const override { return task_; }
  std::vector<std::string> TasksOfJob(uint64_t, std::string_view) const override {
    return network_->tasks();
  }
  std::vector<uint64_t> HostsOf(uint64_t, const std::vector<std::string>& tasks) const override {
    std::vector<uint64_t> hosts;
    for (size_t task = 0; task < tasks.size(); ++task)
      hosts.push_back(tasks_per_host_ == 0 ? 0 : 1 + task / static_cast<size_t>(tasks_per_host_));
    return hosts;
  }
  Status SendCollective(uint64_t session, std::string_view task, StepMessage message,
                        Payload payload, Done done) override {
    message.session = session;
    char header[kMaxHeaderBytes];
    const size_t length = EncodeStepMessage(message, header);
    network_->Send({session, task_, std::string(task), std::string(header, length),
                    std::move(payload), std::move(done)});
    return Status();
  }
  CollectiveManager& manager() { return manager_; }

 private:
  TestNetwork* const network_;
  const std::string task_;
  const int tasks_per_host_;  // 0: nobody knows
  ThreadPools pools_;
  CollectiveManager manager_;
};

// The end of one member's operation.
struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  Status status;
  std::vector<Tensor> outputs;

  Status Wait() {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::seconds(20), [&] { return ended; }))
      return Internal("no end");
    return status;
  }
};

template <typename T>
void Plus(const void* x, const void* y, void* z, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(z)[i] = T(static_cast<const T*>(x)[i] + static_cast<const T*>(y)[i]);
}

Tensor Values(int64_t size, int rank, int round = 0) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, Shape{size}).value();
  for (int64_t i = 0; i < size; ++i)
    tensor.data<float>()[i] = static_cast<float>((i * 31 + rank * 17 + round) % 1013) /
                              static_cast<float>(3 + rank + i % 11);
  return tensor;
}

Tensor SumOf(int64_t size, int ranks, int round = 0) {
  Tensor sum = Values(size, 0, round);
  for (int rank = 1; rank < ranks; ++rank) {
    const Tensor next = Values(size, rank, round);
    Plus<float>(sum.raw(), next.raw(), sum.raw(), size);
  }
  return sum;
}

class Group {
 public:
  // Member i is device i % per_task of task i / per_task.
  Group(int members, int per_task, bool lend, bool given, bool one_session = true,
        int tasks_per_host = 0)
      : members_(members), one_session_(one_session), network_(lend) {
    std::vector<std::string> devices;
    for (int i = 0; i < members; ++i) devices.push_back(DeviceOf(i / per_task, i % per_task));
    for (int task = 0; task * per_task < members; ++task)
      hosts_.push_back(std::make_unique<Host>(&network_, task, tasks_per_host));
    per_task_ = per_task;
    if (given) given_ = MakeCollectiveMembers(devices).value();
  }
  ~Group() {
    for (auto& host : hosts_) host->manager().Stop();
    network_.Stop();
  }

  std::shared_ptr<CollectiveRequest> Request(int member, uint64_t step, int instance) {
    auto request = std::make_shared<CollectiveRequest>();
    request->op = "CollectiveReduceV2";
    request->device = DeviceOf(member / per_task_, member % per_task_);
    request->session = session(member);
    request->step = step;
    request->group_size = members_;
    request->group_key = 5;
    request->instance_key = instance;
    request->members = given_;
    request->dtype = DT_FLOAT;
    request->merge = &Plus<float>;
    request->merge_op = 1;
    request->timeout = timeout;
    return request;
  }
  std::shared_ptr<Outcome> Start(int member, const std::shared_ptr<CollectiveRequest>& request) {
    auto outcome = std::make_shared<Outcome>();
    request->done = [outcome](const Status& status, std::vector<Tensor> outputs) {
      std::lock_guard lock(outcome->mutex);
      EXPECT_FALSE(outcome->ended) << "ended twice";
      outcome->ended = true;
      outcome->status = status;
      outcome->outputs = std::move(outputs);
      outcome->changed.notify_all();
    };
    manager(member).Start(request);
    return outcome;
  }
  std::shared_ptr<Outcome> Sum(int member, uint64_t step, int instance,
                               const std::vector<int64_t>& sizes, int round = 0) {
    auto request = Request(member, step, instance);
    for (const int64_t size : sizes) request->inputs.push_back(Values(size, member, round));
    return Start(member, request);
  }
  CollectiveManager& manager(int member) {
    return hosts_[static_cast<size_t>(member / per_task_)]->manager();
  }
  uint64_t session(int member) const {
    return one_session_ ? 100 : 100 + static_cast<uint64_t>(member);
  }
  TestNetwork& network() { return network_; }

  milliseconds timeout{20'000};

 private:
  const int members_;
  const bool one_session_;
  int per_task_ = 1;
  std::shared_ptr<const CollectiveMembers> given_;
  TestNetwork network_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

struct Layout {
  int members, per_task;
  bool lend, given, one_session;
  int tasks_per_host = 0;
};

class CollectiveLayouts : public ::testing::TestWithParam<Layout> {};

TEST_P(CollectiveLayouts, SumsOfAllSizesHaveTheBitsOfAddingInRankOrder) {
  const Layout l = GetParam();
  Group group(l.members, l.per_task, l.lend, l.given, l.one_session, l.tasks_per_host);
  const std::vector<std::vector<int64_t>> cases = {
      {0}, {1}, {3, 0, 17}, {16'000}, {20'001}, {700'003}, {5, 300'000, 1, 64, 40'000}};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<std::shared_ptr<Outcome>>> outcomes;
    for (size_t c = 0; c < cases.size(); ++c) {
      outcomes.emplace_back();
      for (int member = l.members - 1; member >= 0; --member)
        outcomes.back().push_back(group.Sum(member, static_cast<uint64_t>(round) + 1,
                                            static_cast<int>(c), cases[c], round));
    }
    for (size_t c = 0; c < cases.size(); ++c) {
      std::vector<Tensor> expected;
      for (const int64_t size : cases[c]) expected.push_back(SumOf(size, l.members, round));
      for (const auto& outcome : outcomes[c]) {
        const Status status = outcome->Wait();
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(outcome->outputs.size(), cases[c].size());
        for (size_t t = 0; t < cases[c].size(); ++t)
          EXPECT_TRUE(BitEqual(outcome->outputs[t], expected[t])) << c << " " << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, CollectiveLayouts,
    ::testing::Values(Layout{2, 1, true, true, true}, Layout{2, 1, false, true, true},
                      Layout{3, 1, false, true, true}, Layout{5, 1, false, false, true},
                      Layout{3, 3, true, false, true}, Layout{4, 2, false, true, true},
                      Layout{5, 2, false, false, false}, Layout{2, 1, false, false, false},
                      Layout{3, 1, true, false, false}));

// Two hosts with two tasks each; a third with one of two members; twelve tasks on three hosts, and
// on twelve.
INSTANTIATE_TEST_SUITE_P(
    Hosts, CollectiveLayouts,
    ::testing::Values(Layout{4, 1, false, true, true, 2}, Layout{4, 1, true, false, false, 2},
                      Layout{10, 2, false, true, true, 2}, Layout{8, 1, true, true, true, 1},
                      Layout{9, 1, false, false, false, 1}, Layout{12, 1, false, false, false, 4},
                      Layout{12, 1, false, true, true, 1}));

TEST(CollectiveHosts, SumsOfManyMiBGoAlongTheHostsWithTheBitsOfAddingInRankOrder) {
  for (const bool one_session : {true, false}) {
    Group group(6, 1, false, one_session, one_session, 2);
    const std::vector<std::vector<int64_t>> cases = {{1'500'007}, {3, 900'001, 0, 65'536, 1}};
    std::vector<std::pair<size_t, std::shared_ptr<Outcome>>> outcomes;
    for (uint64_t step = 1; step <= 4; ++step) {  // all in flight
      for (size_t c = 0; c < cases.size(); ++c) {
        for (int member = 0; member < 6; ++member)
          outcomes.emplace_back(c,
                                group.Sum((member * 5) % 6, step, static_cast<int>(c), cases[c]));
      }
    }
    std::vector<std::vector<Tensor>> expected;
    for (const auto& sizes : cases) {
      expected.emplace_back();
      for (const int64_t size : sizes) expected.back().push_back(SumOf(size, 6));
    }
    for (const auto& [c, outcome] : outcomes) {
      ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
      for (size_t t = 0; t < cases[c].size(); ++t)
        EXPECT_TRUE(BitEqual(outcome->outputs[t], expected[c][t])) << c << " " << t;
    }
  }
}

TEST(CollectiveHosts, AHostSendsEachByteTwiceHoweverManyRanksThereAre) {
  for (const int members : {4, 8, 12}) {
    const int64_t size = 1'500'000, bytes = 4 * size;
    Group group(members, 1, false, true, true, members / 2);
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (int member = 0; member < members; ++member)
      outcomes.push_back(group.Sum(member, 1, 1, {size}));
    for (const auto& outcome : outcomes) ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
    // The first host sends its prefix, the second one the sum.
    int64_t between = 0;
    for (int from = 0; from < members; ++from) {
      for (int to = 0; to < members; ++to) {
        if (from / (members / 2) != to / (members / 2))
          between += group.network().BytesSent(Task(from), Task(to));
      }
    }
    EXPECT_EQ(between, 2 * bytes) << members;
  }
}

TEST(CollectiveHosts, ATaskAmongManySendsEachByteTwiceAndOnlyToItsNeighbours) {
  const int members = 10;
  const int64_t size = 1'500'000, bytes = 4 * size;
  Group group(members, 1, false, true, true, 1);
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (int member = 0; member < members; ++member)
    outcomes.push_back(group.Sum(member, 1, 1, {size}));
  for (const auto& outcome : outcomes) ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
  for (int from = 0; from < members; ++from) {
    for (int to = 0; to < members; ++to) {
      const bool neighbours = from - to == 1 || to - from == 1;
      EXPECT_EQ(group.network().BytesSent(Task(from), Task(to)), neighbours ? bytes : 0)
          << from << " to " << to;
    }
  }
}

TEST(Collectives, AMemberThatNeverComesIsNamedWithGroupAndInstance) {
  Group group(3, 1, false, true);
  group.timeout = milliseconds(200);
  auto a = group.Sum(0, 1, 7, {100'000}), b = group.Sum(1, 1, 7, {100'000});
  for (const auto& outcome : {a, b}) {
    const Status status = outcome->Wait();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
    for (const char* part :
         {"group 5", "instance 7", "rank 2 (/job:w/replica:0/task:2/device:CPU:0)", "0.2 s"})
      EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
}

TEST(CollectiveHosts, AMemberInTheMiddleOfAChainThatNeverComesIsNamedByAll) {
  for (const auto& [absent, given] :
       {std::pair(0, true), std::pair(4, false), std::pair(5, true), std::pair(9, false)}) {
    Group group(10, 1, false, given, given, 2);
    if (!given) {
      std::vector<std::shared_ptr<Outcome>> formed;
      for (int member = 0; member < 10; ++member) formed.push_back(group.Sum(member, 1, 1, {5}));
      for (const auto& outcome : formed) ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
    }
    // Long enough for the others to come, also where the machine is busy.
    group.timeout = milliseconds(2500);
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (int member = 0; member < 10; ++member)
      if (member != absent) outcomes.push_back(group.Sum(member, 2, 7, {1'500'000}));
    for (const auto& outcome : outcomes) {
      const Status status = outcome->Wait();
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
      const std::string name =
          "2.5 s for rank " + std::to_string(absent) + " (" + DeviceOf(absent) + ")";
      EXPECT_TRUE(status.message().ends_with(name)) << status;
    }
  }
}

TEST(CollectiveHosts, ATaskInTheMiddleOfAChainThatAnswersNothingIsNamed) {
  Group group(10, 1, false, true, true, 1);
  group.timeout = milliseconds(300);
  group.network().Lose(Task(4));
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (const int member : {3, 5, 9}) outcomes.push_back(group.Sum(member, 1, 7, {1'500'000}));
  for (const auto& outcome : outcomes) {
    const Status status = outcome->Wait();
    // Who sends to it hears at once that it is gone.
    EXPECT_NE(status.message().find(Task(4)), std::string::npos) << status;
  }
}

TEST(Collectives, StepsInFlightOfSeveralClientsMeetInTheOrderOfTheirNumbers) {
  Group group(3, 1, false, false, false);
  // Held by the graph of a session; the manager learns from the first step what it does.
  std::vector<std::unique_ptr<CollectiveHome>> homes;
  for (int member = 0; member < 3; ++member)
    homes.push_back(
        std::make_unique<CollectiveHome>(&group.manager(member), group.session(member)));
  constexpr uint64_t kSteps = 12, kWindow = 4;
  for (uint64_t first = 1; first <= kSteps; first += kWindow) {
    std::vector<std::pair<uint64_t, std::shared_ptr<Outcome>>> outcomes;
    for (int member = 0; member < 3; ++member) {
      // Client 1 has done other steps before.
      const uint64_t from = first + (member == 1 ? 70 : 0);
      for (uint64_t k = 0; k < kWindow; ++k)
        group.manager(member).StepBegins(group.session(member), from + k,
                                         homes[static_cast<size_t>(member)].get());
      // Its kernels come to their collectives in another order.
      for (const uint64_t k : {2, 0, 3, 1}) {
        for (const int instance : {2, 1})
          outcomes.emplace_back(first + k, group.Sum(member, from + k, instance, {100'000},
                                                     static_cast<int>(first + k)));
      }
    }
    for (const auto& [step, outcome] : outcomes) {
      ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
      EXPECT_TRUE(BitEqual(outcome->outputs[0], SumOf(100'000, 3, static_cast<int>(step))))
          << "step " << step;
    }
    for (int member = 0; member < 3; ++member) {
      for (uint64_t k = 0; k < kWindow; ++k)
        group.manager(member).StepEnds(group.session(member), first + k + (member == 1 ? 70 : 0),
                                       true);
    }
  }
}

TEST(Collectives, AStepThatWaitsForAnEarlierOneGoesOnWhenThatEnds) {
  Group group(2, 1, false, false, false);
  const CollectiveHome home(&group.manager(0), group.session(0));
  group.manager(0).StepBegins(group.session(0), 1, &home);
  group.manager(0).StepBegins(group.session(0), 2, &home);
  auto a = group.Sum(0, 2, 1, {10}), b = group.Sum(1, 1, 1, {10});
  group.manager(0).StepEnds(group.session(0), 1, true);  // without the collective
  ASSERT_TRUE(a->Wait().ok()) << a->Wait();
  ASSERT_TRUE(b->Wait().ok()) << b->Wait();
  // One that never does is not waited for without end.
  group.manager(0).StepBegins(group.session(0), 3, &home);
  group.manager(0).StepBegins(group.session(0), 4, &home);
  group.timeout = milliseconds(200);
  auto held = group.Sum(0, 4, 1, {10});
  EXPECT_EQ(held->Wait().code(), Code::kDeadlineExceeded) << held->Wait();
}

TEST(Collectives, AMemberThatNeverJoinsAGroupIsNamedByItsLeader) {
  Group group(3, 1, false, false, false);
  group.timeout = milliseconds(200);
  auto a = group.Sum(2, 1, 7, {10}), b = group.Sum(1, 1, 7, {10});
  for (const auto& outcome : {a, b}) {
    const Status status = outcome->Wait();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
    for (const char* part : {"group 5", "nobody came from /job:w/replica:0/task:0"})
      EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
}

TEST(Collectives, ALeaderThatDoesNotAnswerCountsAsLost) {
  Group group(2, 1, false, false, false);
  group.timeout = milliseconds(200);
  group.network().Lose(Task(0));
  const Status status = group.Sum(1, 1, 7, {10})->Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_EQ(status.lost_task(), Task(0)) << status;
}

TEST(Collectives, OfAGroupThatIsPartOfAJobTheTasksThatMayBeMissingAreNamed) {
  Group group(3, 1, false, false, false);
  group.timeout = milliseconds(200);
  auto request = group.Request(0, 1, 7);
  request->group_size = 2;
  request->inputs.push_back(Values(3, 1));
  const Status status = group.Start(0, request)->Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  for (const char* part :
       {"of 2 members", "1 of these had to come, too: ", "/job:w/replica:0/task:1", "task:2"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
}

TEST(Collectives, MembersThatDisagreeOnTheSizeOfTheirGroupAreToldSo) {
  Group group(3, 1, false, false, false);
  auto request = group.Request(1, 1, 7);
  request->group_size = 2;
  request->inputs.push_back(Values(3, 1));
  auto a = group.Sum(0, 1, 7, {3}), b = group.Start(1, request);
  EXPECT_EQ(a->Wait().code(), Code::kInvalidArgument) << a->Wait();
  EXPECT_EQ(b->Wait().code(), Code::kInvalidArgument) << b->Wait();
}

TEST(Collectives, MembersThatDisagreeOnShapesAreToldSo) {
  for (const int64_t size : {3, 100'000}) {
    Group group(2, 1, false, true);
    auto a = group.Sum(0, 1, 7, {size}), b = group.Sum(1, 1, 7, {size + 1});
    EXPECT_EQ(a->Wait().code(), Code::kInvalidArgument) << a->Wait();
    EXPECT_EQ(b->Wait().code(), Code::kInvalidArgument) << b->Wait();
  }
}

TEST(Collectives, ALostTaskIsNamedByAllThatWaitForIt) {
  for (const bool given : {true, false}) {
    Group group(3, 1, false, given);
    if (!given) {  // the group has formed
      auto a = group.Sum(0, 1, 1, {5}), b = group.Sum(1, 1, 1, {5}), c = group.Sum(2, 1, 1, {5});
      for (const auto& outcome : {a, b, c}) ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
    }
    auto a = group.Sum(0, 2, 7, {100'000}), b = group.Sum(1, 2, 7, {100'000});
    group.network().Lose(Task(2));
    group.manager(0).PeerLost(group.session(0), Task(2), TaskLost(Task(2), Task(2) + " is lost"));
    group.manager(1).PeerLost(group.session(1), Task(2), TaskLost(Task(2), Task(2) + " is lost"));
    for (const auto& outcome : {a, b}) {
      EXPECT_EQ(outcome->Wait().code(), Code::kUnavailable) << outcome->Wait();
      EXPECT_NE(outcome->Wait().message().find(Task(2)), std::string::npos) << outcome->Wait();
    }
    // Also at once, later.
    auto again = group.Sum(0, 3, 7, {10});
    EXPECT_EQ(again->Wait().code(), Code::kUnavailable) << again->Wait();
    EXPECT_NE(again->Wait().message().find(Task(2)), std::string::npos) << again->Wait();
  }
}

TEST(Collectives, AnAbortedStepOfOneClientEndsTheRoundOfTheOthersAndTheNextOneIsRight) {
  Group group(2, 1, false, false, false);
  for (int round = 0; round < 3; ++round) {
    const auto step = static_cast<uint64_t>(2 * round + 1);
    auto request = group.Request(0, step, 1);
    request->inputs.push_back(Values(100'000, 0));
    auto aborted = group.Start(0, request);
    // The first bucket of the step was summed, the second is aborted.
    auto before = group.Sum(1, step, 1, {100'000});
    ASSERT_TRUE(before->Wait().ok()) << before->Wait();
    ASSERT_TRUE(aborted->Wait().ok()) << aborted->Wait();
    request = group.Request(0, step, 2);
    request->inputs.push_back(Values(100'000, 0));
    aborted = group.Start(0, request);
    group.manager(0).Cancel(request);
    group.manager(0).StepFailed(group.session(0), step, Cancelled("stop"));
    EXPECT_FALSE(aborted->Wait().ok());
    // The other one is told, or finds it at its own second bucket.
    auto other = group.Sum(1, step, 2, {100'000});
    EXPECT_EQ(other->Wait().code(), Code::kAborted) << other->Wait();
    auto a = group.Sum(0, step + 1, 1, {100'000}, round),
         b = group.Sum(1, step + 1, 1, {100'000}, round);
    ASSERT_TRUE(a->Wait().ok()) << a->Wait();
    ASSERT_TRUE(b->Wait().ok()) << b->Wait();
    EXPECT_TRUE(BitEqual(a->outputs[0], SumOf(100'000, 2, round)));
    EXPECT_TRUE(BitEqual(b->outputs[0], SumOf(100'000, 2, round)));
  }
}

TEST(Collectives, AMemberThatComesBackWithANewSessionMeetsTheOthersAgain) {
  Group group(2, 1, false, false, false);
  auto a = group.Sum(0, 1, 1, {50'000}), b = group.Sum(1, 1, 1, {50'000});
  ASSERT_TRUE(a->Wait().ok()) << a->Wait();
  ASSERT_TRUE(b->Wait().ok()) << b->Wait();
  group.manager(1).SessionClosed(group.session(1));
  auto request = group.Request(1, 1, 1);
  request->session = 777;
  request->inputs.push_back(Values(50'000, 1, 4));
  b = group.Start(1, request);
  a = group.Sum(0, 2, 1, {50'000}, 4);
  if (!a->Wait().ok()) {  // it began before it heard of the end
    EXPECT_EQ(a->Wait().code(), Code::kAborted) << a->Wait();
    a = group.Sum(0, 3, 1, {50'000}, 4);
  }
  ASSERT_TRUE(a->Wait().ok()) << a->Wait();
  ASSERT_TRUE(b->Wait().ok()) << b->Wait();
  EXPECT_TRUE(BitEqual(a->outputs[0], SumOf(50'000, 2, 4)));
  EXPECT_TRUE(BitEqual(b->outputs[0], SumOf(50'000, 2, 4)));
}

// What concerns device 0 of task 1, by a session of its client that is older than the one by which
// it joins.
void DeliverOld(CollectiveManager& to, CollectiveWhat what) {
  CollectiveMessage message;
  message.what = what;
  message.device = DeviceOf(1);
  message.index = 2;
  message.timeout_ms = 20'000;
  if (what == CollectiveWhat::kRefused) message.SetFailure(Unavailable("the old one is lost"));
  const std::string body = EncodeCollective(message);
  StepMessage step;
  step.kind = StepMessageKind::kCollective;
  step.session = 101;
  step.id = 5;
  step.step = 1;
  step.body = body;
  to.OnDelivered(step, {});
}

std::shared_ptr<Outcome> JoinAnew(Group& group, uint64_t step) {
  auto request = group.Request(1, step, 1);
  request->session = 777;
  request->inputs.push_back(Values(100, 1));
  return group.Start(1, request);
}

TEST(Collectives, AMemberThatJoinsByANewSessionIsNotMistakenForItsOldSelf) {
  for (const CollectiveWhat late :
       {CollectiveWhat::kLeave, CollectiveWhat::kRefused, CollectiveWhat::kJoin}) {
    Group group(2, 1, false, false, false);
    auto b = JoinAnew(group, 1);
    group.network().WaitUntilDelivered();
    DeliverOld(group.manager(late == CollectiveWhat::kRefused ? 1 : 0), late);
    if (late == CollectiveWhat::kJoin) {
      EXPECT_EQ(b->Wait().code(), Code::kAborted) << b->Wait();
      DeliverOld(group.manager(0), CollectiveWhat::kLeave);
      b = JoinAnew(group, 2);
    }
    auto a = group.Sum(0, 1, 1, {100});
    ASSERT_TRUE(a->Wait().ok()) << a->Wait();
    ASSERT_TRUE(b->Wait().ok()) << b->Wait();
    EXPECT_TRUE(BitEqual(a->outputs[0], SumOf(100, 2)));
    EXPECT_TRUE(BitEqual(b->outputs[0], SumOf(100, 2)));
  }
}

TEST(Collectives, AGroupThatFormedWithAnOldSessionFormsAgainWithTheNewOne) {
  Group group(2, 1, false, false, false);
  DeliverOld(group.manager(0), CollectiveWhat::kJoin);
  group.network().Hold(true);
  auto b = JoinAnew(group, 1);
  auto a = group.Sum(0, 1, 1, {100});
  group.network().Hold(false);
  EXPECT_EQ(a->Wait().code(), Code::kAborted) << a->Wait();
  a = group.Sum(0, 2, 1, {100});
  ASSERT_TRUE(a->Wait().ok()) << a->Wait();
  ASSERT_TRUE(b->Wait().ok()) << b->Wait();
}

// A cut may end one client's session and spare another's: whose parts came by the one that ended
// cannot tell it.
TEST(Collectives, AMemberIsNotAwaitedOnceItsSessionLosesItsTaskOrIsClosedHere) {
  for (const bool lost : {true, false}) {
    Group group(2, 1, false, false, false);
    auto a = group.Sum(0, 1, 1, {50'000}), b = group.Sum(1, 1, 1, {50'000});
    ASSERT_TRUE(a->Wait().ok()) << a->Wait();
    ASSERT_TRUE(b->Wait().ok()) << b->Wait();
    a = group.Sum(0, 2, 1, {50'000});
    EXPECT_TRUE(group.manager(0).AwaitsPartsOf(group.session(1)));
    EXPECT_FALSE(group.manager(0).AwaitsPartsOf(group.session(0)));
    if (lost) {
      group.manager(0).PeerLost(group.session(1), Task(1), TaskLost(Task(1), Task(1) + " is lost"));
      EXPECT_EQ(a->Wait().code(), Code::kUnavailable) << a->Wait();
      EXPECT_EQ(a->Wait().lost_task(), Task(1));
    } else {
      group.manager(0).SessionGone(group.session(1));
      EXPECT_EQ(a->Wait().code(), Code::kAborted) << a->Wait();
      EXPECT_NE(a->Wait().message().find(Task(1)), std::string::npos) << a->Wait();
    }
    EXPECT_FALSE(group.manager(0).AwaitsPartsOf(group.session(1)));
  }
}

// As GPUs do that exchange by themselves (executor/gpu/members.h).
TEST(Collectives, WhoHasEnteredARoundMeetsTheOthersInItAndHearsHowItEndsUntilItLeaves) {
  Group group(2, 1, false, false, false);
  struct Entry {
    std::shared_ptr<CollectiveRequest> request;
    std::shared_ptr<Outcome> known = std::make_shared<Outcome>(),
                             broken = std::make_shared<Outcome>();
  };
  const auto enter = [&](int member, uint64_t step) {
    Entry entry{group.Request(member, step, 1)};
    const auto end = [](const std::shared_ptr<Outcome>& outcome, const Status& status) {
      std::lock_guard lock(outcome->mutex);
      EXPECT_FALSE(outcome->ended) << "ended twice";
      outcome->ended = true;
      outcome->status = status;
      outcome->changed.notify_all();
    };
    entry.request->done = [end, known = entry.known](const Status& status, std::vector<Tensor>) {
      end(known, status);
    };
    entry.request->broken = [end, broken = entry.broken](const Status& status) {
      end(broken, status);
    };
    group.manager(member).Enter(entry.request);
    return entry;
  };
  const auto meet = [&](const Entry& entry, int member, uint64_t step, uint8_t meeting) {
    auto request = group.Request(member, step, 1);
    request->entered = entry.request;
    request->meeting = meeting;
    request->inputs.push_back(Values(50, member, meeting));
    return group.Start(member, request);
  };
  std::vector<Entry> first, second;
  for (const uint64_t step : {1, 2}) {
    std::vector<Entry>& entries = step == 1 ? first : second;
    for (const int member : {0, 1}) entries.push_back(enter(member, step));
    for (const Entry& entry : entries) {
      ASSERT_TRUE(entry.known->Wait().ok()) << entry.known->Wait();
      EXPECT_EQ(entry.request->members->size(), 2);
      EXPECT_EQ(entry.request->links.size(), 2u);
      EXPECT_EQ(entry.request->epoch, first[0].request->epoch);
      EXPECT_EQ(entry.request->round, step);
    }
    for (const uint8_t meeting : {0, 1}) {
      const auto a = meet(entries[0], 0, step, meeting), b = meet(entries[1], 1, step, meeting);
      for (const auto& outcome : {a, b}) {
        ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
        EXPECT_TRUE(BitEqual(outcome->outputs[0], SumOf(50, 2, meeting)));
      }
    }
    for (const int member : {0, 1}) {
      if (step == 1) group.manager(member).Leave(first[static_cast<size_t>(member)].request);
    }
  }
  EXPECT_TRUE(group.manager(0).AwaitsPartsOf(group.session(1)));
  group.manager(0).PeerLost(group.session(0), Task(1), TaskLost(Task(1), Task(1) + " is lost"));
  for (const Entry& entry : second) {
    EXPECT_EQ(entry.broken->Wait().code(), Code::kUnavailable) << entry.broken->Wait();
    EXPECT_EQ(entry.broken->Wait().lost_task(), Task(1));
  }
  EXPECT_EQ(meet(second[0], 0, 2, 2)->Wait().lost_task(), Task(1));
  EXPECT_FALSE(group.manager(0).AwaitsPartsOf(group.session(1)));
  for (const Entry& entry : first) EXPECT_FALSE(entry.broken->ended);
}

TEST(Collectives, ALostClientIsNamedByAllThatMeetItAndNewSessionsMeetAgain) {
  enum { kBetween, kInTheMiddle, kAfterABrokenTransfer };
  for (const int when : {kBetween, kInTheMiddle, kAfterABrokenTransfer}) {
    Group group(3, 1, false, false, false);
    std::vector<std::shared_ptr<Outcome>> sums;
    for (int member = 0; member < 3; ++member) sums.push_back(group.Sum(member, 1, 1, {50'000}));
    for (const auto& sum : sums) ASSERT_TRUE(sum->Wait().ok()) << sum->Wait();
    sums.clear();
    if (when != kBetween) sums = {group.Sum(0, 2, 1, {50'000}), group.Sum(1, 2, 1, {50'000})};
    if (when == kAfterABrokenTransfer)
      group.manager(2).StepFailed(group.session(2), 2, Unavailable("no more").AsDerived());
    group.manager(2).SessionClosed(group.session(2), Unavailable("/job:client at 1.2.3.4:5"));
    if (when == kBetween) sums = {group.Sum(0, 2, 1, {50'000}), group.Sum(1, 2, 1, {50'000})};
    for (int member : {0, 1}) sums.push_back(group.Sum(member, 3, 1, {50'000}));
    for (const auto& sum : sums) {
      EXPECT_EQ(sum->Wait().code(), Code::kUnavailable) << sum->Wait();
      EXPECT_NE(sum->Wait().message().find(DeviceOf(2) + " is lost"), std::string::npos)
          << sum->Wait();
      EXPECT_NE(sum->Wait().message().find("/job:client at 1.2.3.4:5"), std::string::npos)
          << sum->Wait();
    }
    sums.clear();
    for (int member = 0; member < 3; ++member) {
      auto request = group.Request(member, 1, 1);
      request->session = 700 + static_cast<uint64_t>(member);
      request->inputs.push_back(Values(50'000, member, 4));
      sums.push_back(group.Start(member, request));
    }
    for (const auto& sum : sums) {
      ASSERT_TRUE(sum->Wait().ok()) << sum->Wait();
      EXPECT_TRUE(BitEqual(sum->outputs[0], SumOf(50'000, 3, 4)));
    }
  }
}

TEST(Collectives, AMemberThatHasItsSumAndLeavesTakesNothingFromTheOthers) {
  for (const int64_t size : {10, 100'000}) {
    for (int round = 0; round < 30; ++round) {
      Group group(3, 1, false, false, false);
      std::vector<std::shared_ptr<Outcome>> outcomes;
      for (int member = 0; member < 3; ++member)
        outcomes.push_back(group.Sum(member, 1, 1, {size}));
      // Whoever is first; the network brings what is on its way in any order, but the end of a
      // client only when its payloads have left (Worker::CloseSession waits for them).
      ASSERT_TRUE(outcomes[2]->Wait().ok()) << outcomes[2]->Wait();
      group.network().WaitUntilSent(Task(2));
      group.manager(2).SessionClosed(group.session(2));
      for (const auto& outcome : outcomes) {
        ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
        EXPECT_TRUE(BitEqual(outcome->outputs[0], SumOf(size, 3)));
      }
      if (round > 0) continue;
      // The next round has nobody to meet.
      auto next = group.Sum(0, 2, 1, {size});
      group.timeout = milliseconds(100);
      EXPECT_FALSE(group.Sum(1, 2, 1, {size})->Wait().ok());
      group.manager(0).SessionClosed(group.session(0));
      EXPECT_FALSE(next->Wait().ok());
    }
  }
}

// A message of session 100 to member 0, for an operation of step 3 that nobody has begun.
void SendEarly(Group* group, uint64_t epoch, int instance, size_t bytes,
               uint32_t timeout_ms = UINT32_MAX) {
  CollectiveMessage early;
  early.what = CollectiveWhat::kPiece;
  early.rank = 1;
  early.instance = instance;
  early.epoch = epoch;
  early.timeout_ms = timeout_ms;
  const std::string body = EncodeCollective(early);
  StepMessage message;
  message.kind = StepMessageKind::kCollective;
  message.session = 100;
  message.step = 3;
  message.id = 5;
  message.body = body;
  group->manager(0).OnDelivered(message, {Buffer::Allocate(HostAllocator(), bytes), 0, bytes});
}

TEST(Collectives, TooManyMessagesAheadOfTheirOperationFailItWithANumberAndNothingElse) {
  const int64_t before = HostPool().bytes_in_use();
  {
    Group group(2, 1, false, true);
    for (int instance = 1; instance <= (1 << 17) + 1; ++instance)
      SendEarly(&group, 100, instance, 1);
    const Status refused = group.Sum(0, 3, (1 << 17) + 1, {10})->Wait();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_NE(refused.message().find("the tasks of session 100 are too far ahead of " + Task(0)),
              std::string::npos)
        << refused;
    EXPECT_NE(refused.message().find("at most 131072 messages"), std::string::npos) << refused;
    // The other end of the session, and the next step of this one, go on.
    const auto a = group.Sum(0, 4, 1, {10}), b = group.Sum(1, 4, 1, {10});
    EXPECT_TRUE(a->Wait().ok() && b->Wait().ok());
    group.manager(0).SessionClosed(100, Status());
    EXPECT_LE(HostPool().bytes_in_use(), before + (1 << 20));
  }
}

TEST(Collectives, TooManyBytesAheadOfTheirOperationFailIt) {
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(4 * HostPool().bytes_mapped() + (64 << 20));
  const auto most = static_cast<size_t>(HostPool().limit() / 2);
  {
    Group group(2, 1, false, true);
    for (int instance = 1; instance <= 3; ++instance)
      SendEarly(&group, 100, instance, most / 2 - 1000);
    const Status refused = group.Sum(0, 3, 3, {10})->Wait();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_NE(refused.message().find("2 messages of"), std::string::npos) << refused;
    EXPECT_NE(refused.message().find("instance 3 of collective group 5"), std::string::npos)
        << refused;
  }
  HostPool().SetLimit(limit);
}

TEST(Collectives, JunkForEpochsThatNeverComeIsBoundedAndGoesWithItsTime) {
  constexpr int64_t kBound = 1 << 17, kBytes = 1024;
  Group group(2, 1, false, false);
  const int64_t before = HostPool().bytes_in_use();
  for (int i = 0; i < 2 * kBound; ++i)
    SendEarly(&group, 1000 + static_cast<uint64_t>(i), 1, kBytes, 1);
  EXPECT_LE(HostPool().bytes_in_use(), before + kBound * kBytes + (16 << 20));
  const auto a = group.Sum(0, 4, 1, {10}), b = group.Sum(1, 4, 1, {10});
  EXPECT_TRUE(a->Wait().ok() && b->Wait().ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (HostPool().bytes_in_use() > before + (1 << 20) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_LE(HostPool().bytes_in_use(), before + (1 << 20));
}

TEST(Collectives, WhatArrivesWhileItsSessionIsBeingClosedIsForgottenWithIt) {
  constexpr int64_t kBytes = 4 << 20;
  Group group(2, 1, false, true);
  group.manager(0).SessionClosed(100, Status());
  const int64_t before = HostPool().bytes_in_use();
  SendEarly(&group, 100, 1, kBytes);
  EXPECT_GE(HostPool().bytes_in_use(), before + kBytes);
  group.manager(0).SessionGone(100);
  EXPECT_LT(HostPool().bytes_in_use(), before + kBytes);
}

TEST(Collectives, ALeaderTakesSoManyDevicesThatWaitForTheirGroups) {
  Group group(2, 1, false, false);
  const auto join = [&](int device, uint32_t of) {
    CollectiveMessage text;
    text.what = CollectiveWhat::kJoin;
    text.index = 100'000;
    text.timeout_ms = UINT32_MAX;
    text.device = DeviceOf(1, device);
    const std::string body = EncodeCollective(text);
    StepMessage message;
    message.kind = StepMessageKind::kCollective;
    message.session = 100;
    message.step = 1;
    message.id = of;
    message.body = body;
    group.manager(0).OnDelivered(message, {});
  };
  for (uint32_t i = 0; i < (1 << 10); ++i) join(0, 100 + i);
  const Status groups = group.Sum(1, 4, 1, {10})->Wait();
  EXPECT_EQ(groups.code(), Code::kResourceExhausted);
  EXPECT_EQ(groups.message(),
            "1024 devices wait at " + Task(0) + " for 1024 collective groups; more are not taken");
  for (int i = 1; i <= (1 << 16) - (1 << 10); ++i) join(i, 100);
  const Status devices = group.Sum(1, 5, 1, {10})->Wait();
  EXPECT_EQ(devices.code(), Code::kResourceExhausted);
  EXPECT_EQ(devices.message(),
            "65536 devices wait at " + Task(0) + " for 1024 collective groups; more are not taken");
}

TEST(Collectives, ABroadcastReachesAllMembers) {
  Group group(3, 1, false, true);
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (int member = 0; member < 3; ++member) {
    auto request = group.Request(member, 1, 1);
    request->kind = CollectiveKind::kBroadcast;
    if (member == 1) request->inputs.push_back(Values(70'000, 1));
    request->shape = Shape{70'000};
    outcomes.push_back(group.Start(member, request));
  }
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
    EXPECT_TRUE(BitEqual(outcome->outputs[0], Values(70'000, 1)));
  }
}

TEST(Collectives, ASenderThatNeverComesIsNamedAndNotThoseThatWaitForIt) {
  for (const bool given : {true, false}) {
    Group group(4, 1, false, given, given);
    if (!given) {
      std::vector<std::shared_ptr<Outcome>> formed;
      for (int member = 0; member < 4; ++member) formed.push_back(group.Sum(member, 1, 1, {5}));
      for (const auto& outcome : formed) ASSERT_TRUE(outcome->Wait().ok()) << outcome->Wait();
    }
    // Long enough for the others to come, also where the machine is busy.
    group.timeout = milliseconds(2500);
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (const int member : {0, 1, 3}) {
      auto request = group.Request(member, 2, 7);
      request->kind = CollectiveKind::kBroadcast;
      request->shape = Shape{70'000};
      outcomes.push_back(group.Start(member, request));
    }
    for (const auto& outcome : outcomes) {
      const Status status = outcome->Wait();
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
      EXPECT_TRUE(status.message().ends_with("2.5 s for rank 2 (" + DeviceOf(2) + ")")) << status;
    }
  }
}

}  // namespace
}  // namespace monograph
