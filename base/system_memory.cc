// /proc/self/cgroup has a line "0::/path" for the unified hierarchy (v2) and one
// "9:memory:/path" for memory's own (v1). A group's limit holds for all below it, so the path is
// walked up to its root. In a container the path may be the host's, of which only the root is
// there: then the root is the container's own group.
#include "base/system_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

namespace monograph {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number after `key` at the beginning of a line; with an empty key the file's only word.
std::optional<int64_t> Number(const std::string& path, const std::string& key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    if (!key.empty() && (!(words >> word) || word != key)) continue;
    int64_t number = 0;
    if (words >> number) return number;
    return std::nullopt;  // "max"
  }
  return std::nullopt;
}

// A group's files.
struct Files {
  const char *limit, *use, *cached, *events;
};
constexpr Files kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "memory.oom_control"};
constexpr Files kVersion2 = {"memory.max", "memory.current", "inactive_file", "memory.events"};

struct Group {
  std::string folder;
  const Files* files;
};

void AddGroups(const std::string& mount, std::string path, const Files& files,
               std::vector<Group>* groups) {
  while (true) {
    groups->push_back({mount + path, &files});
    const size_t slash = path.rfind('/');
    if (path.size() <= 1 || slash == std::string::npos) return;
    path.erase(std::max<size_t>(slash, 1));
  }
}

// The groups that this process is in. Some may not be there.
std::vector<Group> Groups(const std::string& root) {
  std::vector<Group> groups;
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (line.starts_with("0:")) {
      AddGroups(mount, path, kVersion2, &groups);
      AddGroups(mount + "/unified", path, kVersion2, &groups);
    } else if (controllers.find(",memory,") != std::string::npos) {
      AddGroups(mount + "/memory", path, kVersion1, &groups);
    }
  }
  return groups;
}

}  // namespace

SystemMemory ReadSystemMemory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  SystemMemory memory;
  memory.total = Number(meminfo, "MemTotal:").value_or(kUnlimited >> 10) << 10;
  memory.available = Number(meminfo, "MemAvailable:").value_or(memory.total >> 10) << 10;
  for (const Group& group : Groups(root)) {
    const std::string folder = group.folder + "/";
    const std::optional<int64_t> limit = Number(folder + group.files->limit);
    if (!limit) continue;
    memory.total = std::min(memory.total, *limit);
    const int64_t used = Number(folder + group.files->use).value_or(0) -
                         Number(folder + "memory.stat", group.files->cached).value_or(0);
    memory.available = std::min(memory.available, *limit - used);
  }
  memory.available = std::max<int64_t>(memory.available, 0);
  return memory;
}

std::optional<int64_t> OutOfMemoryKills(const std::string& root) {
  std::optional<int64_t> kills = Number(root + "/proc/vmstat", "oom_kill");
  for (const Group& group : Groups(root)) {
    if (const auto here = Number(group.folder + "/" + group.files->events, "oom_kill"))
      kills = kills.value_or(0) + *here;
  }
  return kills;
}

void PreferToBeKilled() {
  constexpr char kPath[] = "/proc/self/oom_score_adj";
  if (Number(kPath) == 0) std::ofstream(kPath) << 200;
}

}  // namespace monograph
