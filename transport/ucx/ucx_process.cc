#include "transport/ucx/ucx_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include "base/hash.h"

namespace monograph {
namespace {

struct Stat {
  char state = 0;  // 0: there is no such process
  uint64_t started = 0;
};

// Field 3 of a process's stat is its state, field 22 its start; field 2 is its name in parentheses,
// which may hold anything.
Stat ReadStat(uint32_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text;
  Stat stat;
  if (!std::getline(file, text)) return stat;
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  fields >> stat.state;
  std::string field;
  for (int number = 4; number < 22; ++number) fields >> field;
  fields >> stat.started;
  return fields ? stat : Stat();
}

}  // namespace

uint64_t NamespaceNumber(const char* kind) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::array<char, 64> space;
  const ssize_t length =
      readlink((std::string("/proc/self/ns/") + kind).c_str(), space.data(), space.size());
  if (!std::getline(file, name) || length <= 0) return 0;
  name.append(space.data(), static_cast<size_t>(length));
  return std::max<uint64_t>(Fnv1a(name), 1);
}

UcxProcess ThisProcess() {
  UcxProcess process;
  process.id = static_cast<uint32_t>(getpid());
  const Stat stat = ReadStat(process.id);
  process.started = stat.started;
  process.space = stat.state == 0 ? 0 : NamespaceNumber("pid");
  return process;
}

ProcessState StateOf(const UcxProcess& process) {
  static const uint64_t space = NamespaceNumber("pid");
  if (process.space == 0 || process.space != space) return ProcessState::kUnknown;
  if (kill(static_cast<pid_t>(process.id), 0) != 0 && errno == ESRCH) return ProcessState::kEnded;
  const Stat stat = ReadStat(process.id);
  // Not to be seen does not mean that it has ended.
  if (stat.state == 0) return ProcessState::kUnknown;
  if (stat.started != process.started) return ProcessState::kEnded;
  switch (stat.state) {
    case 'Z':
    case 'X':
      return ProcessState::kEnded;
    case 'T':
    case 't':
      return ProcessState::kStopped;
    default:
      return ProcessState::kRuns;
  }
}

}  // namespace monograph
