#include "executor/collective/route.h"

#include <algorithm>
#include <optional>

namespace monograph::collective {
namespace {

// Tasks [first, end) of one host, whose ranks follow each other.
struct Run {
  int first = 0, end = 0;
  int tasks() const { return end - first; }
};

// By task: its first rank, and the number of ranks at the end. Nothing if some task's ranks do not
// follow each other.
std::optional<std::vector<int>> FirstRanks(const CollectiveMembers& members) {
  std::vector<int> first;
  for (int rank = 0; rank < members.size(); ++rank) {
    const int task = members.task_of[static_cast<size_t>(rank)];
    if (task == static_cast<int>(first.size())) first.push_back(rank);
    if (task + 1 != static_cast<int>(first.size())) return std::nullopt;
  }
  first.push_back(members.size());
  return first;
}

std::vector<Run> RunsOf(const std::vector<uint64_t>& hosts) {
  std::vector<Run> runs;
  for (size_t task = 0; task < hosts.size(); ++task) {
    const int index = static_cast<int>(task);
    if (task == 0 || hosts[task] != hosts[task - 1]) runs.push_back({index, index});
    runs.back().end = index + 1;
  }
  return runs;
}

Lane AllAt(int task, size_t tasks, int ranks) {
  Lane lane{.stations = {{task, 0, ranks}}, .passes_on = {}};
  lane.passes_on.resize(tasks);
  return lane;
}

Route Shares(size_t tasks, int ranks) {
  Route route;
  for (size_t owner = 0; owner < tasks; ++owner) {
    Lane& lane = route.lanes.emplace_back(AllAt(static_cast<int>(owner), tasks, ranks));
    for (size_t task = 0; task < tasks; ++task) {
      if (task != owner) lane.passes_on[owner].push_back(static_cast<int>(task));
    }
  }
  return route;
}

Route Chain(const std::vector<Run>& runs, const std::vector<int>& first_rank, int lanes) {
  Route route{.way = Route::Way::kChain, .lanes = {}};
  for (int i = 0; i < lanes; ++i) {
    Lane& lane = route.lanes.emplace_back();
    lane.passes_on.resize(first_rank.size() - 1);
    for (const Run& run : runs) {
      const int task = run.first + i * run.tasks() / lanes;
      auto& passes_on = lane.passes_on[static_cast<size_t>(task)];
      if (!lane.stations.empty()) passes_on.push_back(lane.stations.back().task);
      for (int other = run.first; other < run.end; ++other) {
        if (other != task) passes_on.push_back(other);
      }
      lane.stations.push_back({task, first_rank[static_cast<size_t>(run.first)],
                               first_rank[static_cast<size_t>(run.end)]});
    }
  }
  return route;
}

}  // namespace

Route ChooseRoute(const CollectiveMembers& members, int self, size_t bytes,
                  const std::function<std::vector<uint64_t>()>& hosts) {
  const size_t tasks = members.tasks.size();
  if (tasks > 1 && bytes <= kSmallBytes && bytes * (tasks - 1) <= kSmallSentBytes) {
    return {.way = Route::Way::kWhole,
            .piece_bytes = std::max<size_t>(bytes, 1),
            .lanes = {AllAt(self, tasks, members.size())}};
  }
  // With two tasks a chain is no better in any way.
  const auto first_rank = tasks > 2 ? FirstRanks(members) : std::nullopt;
  if (first_rank && bytes >= 2 * kChainFill * kChainPieceBytes) {
    const std::vector<Run> runs = RunsOf(hosts());
    const int widest = std::max_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
                         return a.tasks() < b.tasks();
                       })->tasks();
    const size_t piece = bytes / (kChainFill * runs.size() * static_cast<size_t>(widest));
    if (runs.size() > 1 && piece >= kChainPieceBytes && (widest > 1 || tasks >= kManyTasks)) {
      Route route = Chain(runs, *first_rank, widest);
      route.piece_bytes = std::min(piece, kPieceBytes);
      return route;
    }
  }
  return Shares(tasks, members.size());
}

}  // namespace monograph::collective
