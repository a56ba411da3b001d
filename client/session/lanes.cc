#include "client/session/lanes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace monograph {
namespace {

// Groups of one way that are spelled out.
constexpr size_t kMostGroups = 8;

using Tasks = std::set<size_t>;           // by place in the sorted list of all
using Reached = std::map<size_t, Tasks>;  // by sender

bool Earlier(const DeviceName& a, const DeviceName& b) {
  return std::tie(a.job, a.replica, a.task) < std::tie(b.job, b.replica, b.task);
}

std::string Text(const std::vector<DeviceName>& all, const Tasks& tasks) {
  std::vector<DeviceName> names;
  for (const size_t task : tasks) names.push_back(all[task]);
  return TaskList(std::move(names));
}

// Senders that reach the same tasks are one part. Parts that make up the same whole, each with what
// it reaches, belong together: if nobody else is in the whole, each part reaches all the others.
std::vector<std::string> Groups(const std::vector<DeviceName>& all, const Reached& reached) {
  std::map<Tasks, Tasks> senders;  // by what they reach
  for (const auto& [from, to] : reached) senders[to].insert(from);
  std::map<Tasks, std::vector<Tasks>> parts;  // by the whole
  for (const auto& [to, from] : senders) {
    Tasks whole = to;
    whole.insert(from.begin(), from.end());
    parts[whole].push_back(from);
  }
  std::vector<std::string> groups;
  for (auto& [whole, own] : parts) {
    size_t count = 0;
    for (const Tasks& part : own) count += part.size();
    if (count < whole.size()) {
      for (const Tasks& part : own) {
        groups.push_back("from " + Text(all, part) + " to " + Text(all, reached.at(*part.begin())));
      }
    } else if (own.size() == whole.size()) {
      groups.push_back("among " + Text(all, whole));
    } else {
      std::sort(own.begin(), own.end());
      std::string text;
      for (const Tasks& part : own) text += (text.empty() ? "between " : " | ") + Text(all, part);
      groups.push_back(std::move(text));
    }
  }
  return groups;
}

}  // namespace

std::string TaskList(std::vector<DeviceName> tasks) {
  std::sort(tasks.begin(), tasks.end(), Earlier);
  std::string text;
  for (size_t first = 0; first < tasks.size();) {
    size_t last = first;
    while (last + 1 < tasks.size() && tasks[last + 1].job == tasks[first].job &&
           tasks[last + 1].replica == tasks[first].replica &&
           tasks[last + 1].task == tasks[last].task + 1)
      ++last;
    text += (text.empty() ? "" : ", ") + tasks[first].job + "/" + std::to_string(tasks[first].task);
    if (last > first) text += "-" + std::to_string(tasks[last].task);
    first = last + 1;
  }
  return text;
}

std::vector<std::string> DescribeLanes(std::span<const LaneUse> uses) {
  std::vector<DeviceName> all;
  for (const LaneUse& use : uses) all.insert(all.end(), {use.from, use.to});
  std::sort(all.begin(), all.end(), Earlier);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto place = [&all](const DeviceName& task) {
    return static_cast<size_t>(std::lower_bound(all.begin(), all.end(), task, Earlier) -
                               all.begin());
  };
  std::map<std::string, Reached> ways;
  for (const LaneUse& use : uses) ways[use.way][place(use.from)].insert(place(use.to));
  std::vector<std::string> lines;
  for (const auto& [way, reached] : ways) {
    const std::vector<std::string> groups = Groups(all, reached);
    std::string line = "data plane: " + way;
    for (size_t i = 0; i < groups.size() && i < kMostGroups; ++i)
      line += (i == 0 ? " " : "; ") + groups[i];
    if (groups.size() > kMostGroups)
      line += "; and " + std::to_string(groups.size() - kMostGroups) + " groups more";
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace monograph
