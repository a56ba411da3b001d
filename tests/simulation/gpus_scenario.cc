// Collectives of GPUs: random graphs on random clusters. Each GPU computes for random times, in a
// random order of its own, and takes part in collectives of random groups, several steps at once.
// Nothing waits for ever; any two GPUs launch what they share in one order, and what comes of each
// collective is whole. Then: a GPU, a process or a machine is lost on the way, which every client
// is told by name, and the others go on in a session of their own.
//
// A collective's inputs may come after what came of earlier ones on the same GPU: a graph that
// could be run by one collective after the other.
#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "base/thread.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/collective/collective.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/sim_gpus.h"

namespace monograph::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr double kMeetSeconds = 100;
constexpr seconds kStepEnds{20};
// A task that is lost is noticed after 2.5 s of silence, or at once if its process ends; then the
// step's parts are waited for as in other scenarios.
constexpr milliseconds kLossNamed{3'000};
constexpr milliseconds kGpusConnected{20'000};

int DrawInt(int bound) { return static_cast<int>(Draw(static_cast<uint64_t>(bound))); }

nanoseconds SomeTake() { return microseconds(Draw(uint64_t{1} << Draw(10))); }

GpuTopology SomeTopology(int most_gpus) {
  GpuTopology topology;
  // Few more often than many.
  int gpus = 2 << std::min(DrawInt(6), DrawInt(6));
  gpus = std::min(most_gpus, gpus + DrawInt(gpus));
  topology.nodes = SpreadOver(1 + DrawInt(std::min(8, gpus)), gpus);
  topology.process_each = gpus <= 8 && Draw(3) == 0;
  topology.nics = DrawInt(3);
  topology.port = 1e9 * static_cast<double>(50 + Draw(400));
  topology.nic = 1e9 * static_cast<double>(2 + Draw(50));
  return topology;
}

// A collective of some GPUs, in rank order.
struct Meeting {
  enum class Kind { kOne, kMany, kBroadcast, kGather };
  Kind kind = Kind::kOne;
  int group = 0;
  std::vector<int> gpus;
  std::vector<int64_t> elements;  // of each tensor; of a gather: of each rank
  int sender = 0;                 // of a broadcast: a rank
};

std::vector<int> SomeGroup(std::vector<int> gpus, bool in_order) {
  const auto size = static_cast<size_t>(gpus.size());
  if (Draw(2) == 0) {
    for (size_t i = size - 1; i > 0; --i) std::swap(gpus[i], gpus[Draw(i + 1)]);
    gpus.resize(2 + Draw(size - 1));
  }
  if (in_order || Draw(2) == 0) std::sort(gpus.begin(), gpus.end());
  return gpus;
}

// `found`: members find each other, and are ranked by their names.
std::vector<Meeting> SomeMeetings(const std::vector<int>& gpus, bool found) {
  std::vector<std::vector<int>> groups;
  for (int i = 1 + DrawInt(4); i > 0; --i) {
    groups.push_back(SomeGroup(gpus, found));
  }
  std::vector<Meeting> meetings;
  for (int i = 1 + DrawInt(gpus.size() > 16 ? 5 : 10); i > 0; --i) {
    Meeting& meeting = meetings.emplace_back();
    meeting.group = DrawInt(static_cast<int>(groups.size()));
    meeting.gpus = groups[static_cast<size_t>(meeting.group)];
    const auto size = static_cast<int64_t>(meeting.gpus.size());
    const uint64_t kind = Draw(10);
    meeting.kind = kind < 5   ? Meeting::Kind::kOne
                   : kind < 7 ? Meeting::Kind::kMany
                   : kind < 9 ? Meeting::Kind::kBroadcast
                              : Meeting::Kind::kGather;
    int64_t tensors = meeting.kind == Meeting::Kind::kMany ? 1 + DrawInt(4) : 1;
    if (meeting.kind == Meeting::Kind::kGather) tensors = size;
    for (; tensors > 0; --tensors)
      meeting.elements.push_back(1 + static_cast<int64_t>(Draw(uint64_t{1} << Draw(23))));
    meeting.sender = DrawInt(static_cast<int>(size));
  }
  return meetings;
}

// The part of these GPUs in all of it.
struct MeetingGraph {
  MeetingGraph(GpuCluster* cluster, const std::vector<Meeting>& meetings, const std::set<int>& own,
               bool found)
      : graph(NewGraph()), parts(cluster, &graph) {
    std::map<int, std::vector<Operation>> ended;  // by GPU: what read an earlier collective
    for (size_t i = 0; i < meetings.size(); ++i) {
      const Meeting& meeting = meetings[i];
      CollectiveGroup group{.size = static_cast<int>(meeting.gpus.size()),
                            .key = meeting.group + 1,
                            .timeout_seconds = kMeetSeconds};
      for (const int gpu : meeting.gpus) {
        if (!found) group.members.push_back(cluster->device(gpu));
      }
      for (int rank = 0; rank < group.size; ++rank) {
        const int gpu = meeting.gpus[static_cast<size_t>(rank)];
        if (own.contains(gpu))
          Add(cluster, meeting, static_cast<int>(i), group, rank, gpu, &ended[gpu]);
      }
    }
    if (!parts.root().ok()) Fail("the graph is wrong: " + parts.root().status().ToString());
  }

  void Add(GpuCluster* cluster, const Meeting& meeting, int index, const CollectiveGroup& group,
           int rank, int gpu, std::vector<Operation>* ended) {
    std::vector<Operation> after;
    for (const Operation& earlier : *ended) {
      if (Draw(4) == 0) after.push_back(earlier);
    }
    const Scope place = parts.root().WithDevice(cluster->device(gpu));
    const auto make = [&](int tensor, int64_t elements) {
      return parts.Make(gpu, index, rank, tensor, elements, SomeTake(), after);
    };
    const int instance = index + 1;
    Outputs came;
    std::vector<std::pair<int, int>> ranks{{0, group.size}};
    switch (meeting.kind) {
      case Meeting::Kind::kOne:
        came = {CollectiveReduce(place, make(0, meeting.elements[0]), group, instance)};
        break;
      case Meeting::Kind::kMany: {
        Outputs inputs;
        for (const int64_t elements : meeting.elements)
          inputs.push_back(make(static_cast<int>(inputs.size()), elements));
        came = MonographAllReduce(place, inputs, group, instance);
        break;
      }
      case Meeting::Kind::kBroadcast:
        ranks = {{meeting.sender, meeting.sender + 1}};
        came = {rank == meeting.sender
                    ? CollectiveBroadcastSend(place, make(0, meeting.elements[0]), group, instance)
                    : CollectiveBroadcastRecv(place, DT_FLOAT, Shape{meeting.elements[0]}, group,
                                              instance)};
        break;
      case Meeting::Kind::kGather:
        ranks.clear();
        for (int other = 0; other < group.size; ++other) ranks.emplace_back(other, other + 1);
        came = {CollectiveGather(place, make(0, meeting.elements[static_cast<size_t>(rank)]), group,
                                 instance)};
        break;
    }
    for (size_t tensor = 0; tensor < came.size(); ++tensor) {
      targets.push_back(
          parts.Use(gpu, came[tensor], static_cast<int>(tensor), ranks, index, SomeTake()));
    }
    ended->push_back(targets.back());
  }

  Graph graph;
  GpuGraph parts;
  std::vector<Operation> targets;
};

std::unique_ptr<Session> Open(const GpuCluster& cluster, const Graph& graph,
                              std::vector<std::string> tasks = {}) {
  const Within time(kGpusConnected, "connecting");
  SessionOptions options;
  options.optimizer.level = 0;
  options.device_filters = std::move(tasks);
  auto session = Session::Connect(cluster.spec(), graph, std::move(options));
  if (!session.ok()) Fail("no session: " + session.status().ToString());
  return std::move(session).value();
}

Status Step(Session* session, const MeetingGraph& graph) {
  return session->Run(graph.parts.feeds(), {}, graph.targets).status();
}

std::vector<int> AllGpus(const GpuCluster& cluster) {
  std::vector<int> gpus;
  for (int gpu = 0; gpu < cluster.world().topology().gpus(); ++gpu) gpus.push_back(gpu);
  return gpus;
}

// Steps of one client, from several threads at once. None may fail.
void RunSteps(Session* session, const MeetingGraph& graph, int threads, int steps) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.push_back(StartThread("steps-" + std::to_string(i), [=, &graph] {
      for (int step = 0; step < steps; ++step) {
        const Within time(kStepEnds, "a step");
        if (const Status status = Step(session, graph); !status.ok())
          Fail("a step failed: " + status.ToString());
      }
    }));
  }
  for (std::thread& thread : running) thread.join();
}

void NoFault(const std::string& text) { Fail(text); }

// The machine of a task, which its peers do not hear of, its process, or, if it `may_go_on`, only
// one of its GPUs.
void LoseOne(GpuCluster* cluster, int task, bool may_go_on) {
  const std::vector<int> gpus = cluster->world().topology().GpusOf(task);
  const uint64_t what = may_go_on ? std::min<uint64_t>(2, Draw(5)) : Draw(2);
  Note(cluster->task(task) + (what == 0 ? " crashes" : what == 1 ? " is killed" : " loses a GPU"));
  if (what == 2) return cluster->world().Lose(gpus[Draw(gpus.size())]);
  cluster->Kill(task, /*whole_machine=*/what == 0);
}

// Steps of a client until one fails, which must be soon after the loss and name the task.
void StepsUntilLoss(GpuCluster* cluster, Session* session, const MeetingGraph& graph, int task,
                    const Clock::time_point* lost_at) {
  for (;;) {
    const Clock::time_point began = Clock::now();
    const Status status = Step(session, graph);
    const Clock::time_point ended = Clock::now();
    if (status.ok() && ended - kLossNamed < *lost_at) continue;
    const auto took =
        std::chrono::duration_cast<milliseconds>(ended - std::max(began, *lost_at)).count();
    Note("named after " + std::to_string(took) + " ms: " + status.ToString());
    if (ended >= *lost_at && took <= kLossNamed.count() && !status.ok() &&
        status.message().find(cluster->task(task)) != std::string::npos)
      return;
    Fail("a step in which " + cluster->task(task) + " is lost ends after " + std::to_string(took) +
         " ms: " + status.ToString());
  }
}

// A session of these tasks, whose GPUs meet in other ways.
void RunMeetings(GpuCluster* cluster, const std::set<int>& tasks) {
  std::vector<int> gpus;
  std::vector<std::string> names;
  for (const int task : tasks) {
    names.push_back(cluster->task(task));
    for (const int gpu : cluster->world().topology().GpusOf(task)) gpus.push_back(gpu);
  }
  if (gpus.size() < 2) return;
  cluster->world().nodes().clear();
  const MeetingGraph graph(cluster, SomeMeetings(gpus, false),
                           std::set<int>(gpus.begin(), gpus.end()), false);
  const auto session = Open(*cluster, graph.graph, names);
  RunSteps(session.get(), graph, 1, 2);
  (void)session->Close();
}

}  // namespace

void RunGpus() {
  HoldThreads(false);
  ComputeInNoTime(true);
  GpuCluster cluster(SomeTopology(64), NoFault);
  const int tasks = cluster.world().topology().tasks();
  const bool found = tasks > 1 && tasks <= 4 && Draw(4) == 0;
  const std::vector<Meeting> meetings = SomeMeetings(AllGpus(cluster), found);
  const int threads = 1 + DrawInt(3), steps = 1 + DrawInt(2);
  Note(std::to_string(cluster.world().topology().gpus()) + " GPUs of " + std::to_string(tasks) +
       " tasks, " + std::to_string(meetings.size()) + " collectives, " + std::to_string(threads) +
       " x " + std::to_string(steps) + " steps");
  if (found) cluster.world().ForgetSteps();
  std::vector<std::thread> clients;
  for (int client = 0; client < (found ? tasks : 1); ++client) {
    std::set<int> own;
    for (const int gpu : AllGpus(cluster)) {
      if (!found || cluster.task_of(gpu) == client) own.insert(gpu);
    }
    clients.push_back(StartThread("client-" + std::to_string(client), [&, own] {
      const MeetingGraph graph(&cluster, meetings, own, found);
      if (graph.targets.empty()) return;
      const auto session = Open(cluster, graph.graph);
      RunSteps(session.get(), graph, threads, steps);
      (void)session->Close();
    }));
  }
  for (std::thread& client : clients) client.join();
  if (const std::string why = cluster.world().WhyNoOrder(); !why.empty()) Fail(why);
}

namespace {

void RunLosses(bool client_each) {
  HoldThreads(false);
  ComputeInNoTime(true);
  GpuTopology topology = SomeTopology(6);
  if (topology.tasks() == 1) topology.nodes.back() = 1;
  GpuCluster cluster(std::move(topology), NoFault);
  cluster.world().AllowDeadlocks();
  const int clients = client_each ? cluster.world().topology().tasks() : 1;
  if (clients > 1) cluster.world().ForgetSteps();
  const auto all = AllGpus(cluster);
  std::vector<Meeting> meetings = SomeMeetings(all, clients > 1);
  // Each GPU takes part in something, so that each loss ends a step.
  meetings.push_back({.group = 4, .gpus = all, .elements = {1000}});
  const int lost = DrawInt(cluster.world().topology().tasks());
  Clock::time_point lost_at = Clock::time_point::max();
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; ++client) {
    std::set<int> own;
    for (const int gpu : all) {
      if (clients == 1 || cluster.task_of(gpu) == client) own.insert(gpu);
    }
    threads.push_back(StartThread("client-" + std::to_string(client), [&, own] {
      const MeetingGraph graph(&cluster, meetings, own, clients > 1);
      const auto session = Open(cluster, graph.graph);
      StepsUntilLoss(&cluster, session.get(), graph, lost, &lost_at);
      const Within time(kCloseEnds, "closing the session");
      (void)session->Close();
    }));
  }
  threads.push_back(StartThread("trouble", [&] {
    std::this_thread::sleep_for(milliseconds(2) + microseconds(Draw(uint64_t{1} << Draw(16))));
    lost_at = Clock::now();
    // A client whose step begins after the others' have failed joins its groups anew. If the
    // process whose GPU is lost goes on, nobody tells it that they have gone, until its deadline.
    LoseOne(&cluster, lost, /*may_go_on=*/clients == 1);
  }));
  for (std::thread& thread : threads) thread.join();
  std::set<int> tasks;
  for (int task = 0; task < cluster.world().topology().tasks(); ++task) tasks.insert(task);
  std::set<int> survivors = tasks;
  survivors.erase(lost);
  RunMeetings(&cluster, survivors);
  // A process whose GPU is lost is started anew, too.
  if (cluster.cluster().server("worker-" + std::to_string(lost)) != nullptr)
    cluster.Kill(lost, /*whole_machine=*/false);
  cluster.Restart(lost);
  RunMeetings(&cluster, tasks);
}

}  // namespace

void RunGpuLosses() { RunLosses(/*client_each=*/false); }

void RunGpuClientLosses() { RunLosses(/*client_each=*/true); }

}  // namespace monograph::simulation
