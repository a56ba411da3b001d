// Steps of a session on a cluster: workers add to a variable at the ps and send tensors both ways.
// While they run something is cut, slowed or killed. The session is closed, everything is repaired,
// and a new session, to which messages of the old one come again, finds what updates it may find,
// and runs without a failure.
#include <optional>
#include <thread>

#include "base/pool_allocator.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Where nothing is lost and no thread is held up, a step, or the abort of one, takes no longer.
constexpr milliseconds kAtOnce{30};
// What a session keeps for steps of a signature: less than a long vector.
constexpr int64_t kOfPlans = 2048;

class Job {
 public:
  explicit Job(int workers)
      : cluster_(workers), counting_(cluster_.device(cluster_.ps()), Workers(workers)) {
    cluster_.Keeps(counting_.bytes());
  }

  void Run();

 private:
  std::vector<std::string> Workers(int count) const {
    std::vector<std::string> devices;
    for (int i = 0; i < count; ++i) devices.push_back(cluster_.device(i));
    return devices;
  }
  // One step with updates of some workers. With `must` nothing is lost, so it fails only by a
  // deadline of its own.
  void Step(Session& session, int number, bool must);
  void CheckVariable(Session& session);
  // What earlier sessions sent last comes again.
  void ReplayAll();
  // Every place for a step can be used again.
  void UseAllPlaces(Session& session);
  // Steps leave no tensors behind, also those that were given up.
  void CheckMemory(int64_t before) const;

  DisturbedCluster cluster_;
  const CountingGraph counting_;
  Counts counts_;
};

void Job::Step(Session& session, int number, bool must) {
  const size_t workers = counting_.members.size();
  const size_t only = Draw(workers + 1);  // or all
  std::vector<Feed> feeds;
  std::vector<Output> fetches;
  std::vector<Operation> targets;
  std::vector<int> fields;
  RunOptions options;
  if (Draw(4) == 0) options.steps = 1 + static_cast<int64_t>(Draw(5));
  if (Draw(4) == 0) options.timeout = milliseconds(1 + SomeTime(12).count());
  for (size_t i = 0; i < workers; ++i) {
    if (only < workers && i != only) continue;
    const auto field =
        static_cast<int>((static_cast<size_t>(number) * workers + i) % Counts::kFields);
    fields.push_back(field);
    feeds.emplace_back(counting_.members[i].feed, counting_.Of(field));
    fetches.push_back(counting_.members[i].sum);
    targets.push_back(counting_.members[i].update);
  }
  const auto times = static_cast<int>(options.steps);
  for (const int field : fields) counts_.Try(field, times);
  Result<std::vector<Tensor>> ran = [&] {
    const milliseconds ends = must ? options.timeout.value_or(kAtOnce) + kAtOnce : kRunEnds;
    const Within time(ends, "step " + std::to_string(number));
    return session.Run(feeds, fetches, targets, options);
  }();
  Note("step " + std::to_string(number) + ": " + ran.status().ToString());
  if (!ran.ok()) {
    const bool late = options.timeout && ran.status().code() == Code::kDeadlineExceeded;
    if (must && !late) Fail("a step failed: " + ran.status().ToString());
    return;
  }
  for (const int field : fields) counts_.Confirm(field, times);
  for (size_t i = 0; i < fields.size(); ++i) {
    // The sum of the feed and the variable: without the feed, what the variable has held.
    Tensor value = Tensor::Allocate(DT_INT64, Shape{counting_.elements}).value();
    for (int e = 0; e < counting_.elements; ++e) {
      value.data<int64_t>()[e] = ran->at(i).data<int64_t>()[e] - feeds[i].second.data<int64_t>()[e];
    }
    counts_.Check(value, "a fetched value", /*before=*/true);
  }
}

void Job::CheckVariable(Session& session) {
  const Within time(kRunEnds, "reading the variable");
  const auto value = session.Run({}, {counting_.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  counts_.Check(value->at(0), "the variable");
}

void Job::ReplayAll() {
  for (int task = 0; task < cluster_.tasks(); ++task) {
    cluster_.network().Replay(0, cluster_.host(task));
    cluster_.network().Replay(cluster_.host(task), cluster_.host(cluster_.ps()));
  }
}

void Job::UseAllPlaces(Session& session) {
  const Within time(kAllPlaces * kAtOnce, "many steps");
  const auto value = session.Run({}, {counting_.value}, {}, {.steps = kAllPlaces});
  if (!value.ok()) Fail("one of many steps failed: " + value.status().ToString());
}

void Job::CheckMemory(int64_t before) const {
  const Clock::time_point until = Clock::now() + kAtOnce;
  while (HostPool().bytes_in_use() > before + kOfPlans) {
    if (Clock::now() > until) {
      Fail("when its steps are over a session holds " +
           std::to_string(HostPool().bytes_in_use() - before) + " bytes more than before them");
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void Job::Run() {
  int number = 0, ps_life = 0;
  for (int round = 0; round < 2; ++round) {
    const bool disturbed = round == 0 && Draw(8) != 0;
    HoldThreads(disturbed);
    std::unique_ptr<Session> session = MustConnect(cluster_, counting_.graph, seconds(10));
    if (round > 0) ReplayAll();
    if (cluster_.life(cluster_.ps()) != ps_life) {
      ps_life = cluster_.life(cluster_.ps());
      counts_.Forget();
      if (const auto made = session->Run({}, {}, {counting_.init}); !made.ok())
        Fail("the first step failed: " + made.status().ToString());
    }
    // The variable's first update gives it memory of its own.
    const auto& member = counting_.members[0];
    if (const auto made = session->Run({{member.feed, counting_.Of(0, 0)}}, {}, {member.update});
        !made.ok())
      Fail("the first update failed: " + made.status().ToString());
    const int64_t bytes = HostPool().bytes_in_use();
    std::optional<Trouble> trouble;
    if (disturbed) trouble.emplace(&cluster_);
    for (int step = 0; step < 3; ++step) {
      Step(*session, number++, !disturbed);
      if (Draw(2) == 0) std::this_thread::sleep_for(SomeTime(20));
    }
    trouble.reset();
    if (!disturbed) {
      CheckMemory(bytes);
      CheckVariable(*session);
      if (Draw(4) == 0) UseAllPlaces(*session);
    }
    {
      const Within time(disturbed ? kCloseEnds : 3 * kAtOnce, "closing the session");
      const Status closed = session->Close();
      if (!closed.ok() && !disturbed) Fail("closing failed: " + closed.ToString());
    }
    if (round == 0) {
      session = nullptr;
      cluster_.Repair();
      if (Draw(2) == 0) std::this_thread::sleep_for(milliseconds(Draw(5000)));
    }
  }
}

}  // namespace

void RunClusterSteps() { Job(1 + static_cast<int>(Draw(2))).Run(); }

}  // namespace monograph::simulation
