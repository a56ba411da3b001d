// Threads that run steps of one session beside each other, and may close it meanwhile: within one
// process, or on a cluster, where the client computes a part of some. A step may end with another
// one, whose thread brings what it waits for. Nothing is lost: no step
// fails but by the close, and neither steps nor the close wait for a deadline of somebody else.
#include <atomic>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/thread.h"
#include "ops/constant/constant.h"
#include "ops/queue/queue.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kCallers = 3, kCallerSteps = 3;
// A call that is told what it waits for is over much sooner; one that is not told looks by itself
// after 64 ms, or after 2 s.
constexpr milliseconds kPrompt{30}, kPromptHeld{1500};

// Counts, and a queue of the client's own.
struct CallersGraph : CountingGraph {
  CallersGraph(const std::string& home, const std::string& worker, const std::string& client)
      : CountingGraph(home, {worker, client, home}) {
    const Scope place = Scope(&graph).WithDevice(client);
    const Output queue = FIFOQueue(place, {DT_INT64});
    element = Placeholder(place, DT_INT64, Shape{});
    put = QueueEnqueue(place, queue, {element});
    taken = QueueDequeue(place, queue)[0];
    if (!place.ok()) Fail("the graph of callers is wrong: " + place.status().ToString());
  }
  Output element, taken;
  Operation put;
};

// One step waits for what another one puts into the queue, and ends on its thread.
void HandOver(Session* session, const CallersGraph& graph, milliseconds at_most) {
  std::thread taker = StartThread("taker", [&] {
    if (const auto taken = session->Run({}, {graph.taken}); !taken.ok())
      Fail("nothing is taken from a queue: " + taken.status().ToString());
  });
  std::this_thread::sleep_for(SomeTime(12));
  const auto put = session->Run({{graph.element, Tensor::Scalar<int64_t>(1)}}, {}, {graph.put});
  if (!put.ok()) Fail("nothing is put into a queue: " + put.status().ToString());
  const Within time(at_most, "a step that ends with another one");
  taker.join();
}

class Callers {
 public:
  Callers(Session* session, const CountingGraph* counting, milliseconds at_most, bool closes)
      : session_(session), counting_(counting), at_most_(at_most), closes_(closes) {}
  void Run();

 private:
  void Call(int caller);
  Result<std::vector<Tensor>> RunAsync(const CountingGraph::Member& member, int field,
                                       const std::vector<Operation>& targets);

  Session* const session_;
  const CountingGraph* const counting_;
  const milliseconds at_most_;
  const bool closes_;
  Mutex mutex_;
  CondVar done_;
  Counts counts_ MG_GUARDED_BY(mutex_);
};

Result<std::vector<Tensor>> Callers::RunAsync(const CountingGraph::Member& member, int field,
                                              const std::vector<Operation>& targets) {
  MG_ASSIGN_OR_RETURN(
      const Callable callable,
      session_->MakeCallable({member.feed}, {counting_->value, member.sum}, targets));
  const Tensor feed = counting_->Of(field);
  std::optional<Result<std::vector<Tensor>>> result;
  session_->RunAsync(callable, {&feed, 1}, [&](Result<std::vector<Tensor>> ended) {
    MutexLock lock(mutex_);
    if (result) Fail("the end of a step is told twice");
    result = std::move(ended);
    done_.NotifyAll();
  });
  MutexLock lock(mutex_);
  done_.Wait(mutex_, [&] { return result.has_value(); });
  return std::move(*result);
}

void Callers::Call(int caller) {
  const auto& member = counting_->members[static_cast<size_t>(caller) % counting_->members.size()];
  for (int step = 0; step < kCallerSteps; ++step) {
    const int field = kCallerSteps * caller + step;
    std::vector<Operation> targets;
    if (Draw(3) != 0) {
      targets.push_back(member.update);
      MutexLock lock(mutex_);
      counts_.Try(field);
    }
    const bool waits = Draw(3) != 0;
    Result<std::vector<Tensor>> ran = [&] {
      const Within time(at_most_, "a step beside others");
      if (!waits) return RunAsync(member, field, targets);
      return session_->Run({{member.feed, counting_->Of(field)}}, {counting_->value, member.sum},
                           targets);
    }();
    MutexLock lock(mutex_);
    if (!ran.ok()) {
      if (!closes_) Fail("a step failed: " + ran.status().ToString());
      continue;
    }
    if (!targets.empty()) counts_.Confirm(field);
    counts_.Check(ran->at(0), "a step's value", /*before=*/true);
  }
}

void Callers::Run() {
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.push_back(
        StartThread("caller-" + std::to_string(caller), [this, caller] { Call(caller); }));
  }
  if (closes_) {
    std::this_thread::sleep_for(SomeTime(12));
    const Within time(at_most_, "closing a session that runs steps");
    (void)session_->Close();
  }
  for (std::thread& thread : threads) thread.join();
  if (closes_) return;
  const auto value = session_->Run({}, {counting_->value});
  if (!value.ok()) Fail("the last step failed: " + value.status().ToString());
  MutexLock lock(mutex_);
  counts_.Check(value->at(0), "the variable");
}

}  // namespace

void RunCallers() {
  const bool held = Draw(2) == 0, closes = Draw(3) == 0, here = Draw(3) == 0;
  HoldThreads(held);
  std::optional<DisturbedCluster> cluster;
  if (!here) cluster.emplace(1);
  const std::string home = here ? "/device:CPU:0" : cluster->device(cluster->ps());
  const CallersGraph counting(home, here ? home : cluster->device(0),
                              here ? home : "/job:client/task:0");
  SessionOptions options;
  options.inter_op_parallelism_threads = 1 + static_cast<int>(Draw(3));
  std::unique_ptr<Session> session =
      here ? Session::Local(counting.graph, options).value()
           : MustConnect(*cluster, counting.graph, seconds(10), options);
  if (const auto made = session->Run({}, {}, {counting.init}); !made.ok())
    Fail("the first step failed: " + made.status().ToString());
  if (cluster) cluster->Keeps(counting.bytes());
  const milliseconds at_most = held ? kPromptHeld : kPrompt;
  if (Draw(2) == 0) HandOver(session.get(), counting, at_most);
  Callers(session.get(), &counting, at_most, closes).Run();
}

}  // namespace monograph::simulation
