#include "tools/compare/load.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "base/input_file.h"

namespace monograph {
namespace {

// Empty if the system has no such file.
std::string SystemText(const std::string& path) {
  Result<std::string> text = ReadInputFile("file of the system", path);
  return text.ok() ? std::move(text).value() : std::string();
}

double ProcessorSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::set<int> AllowedProcessors() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::set<int> processors;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) processors.insert(i);
  }
  return processors;
}

}  // namespace

void AddProcStat(const std::string& text, const std::set<int>& of, double ticks_per_second,
                 LoadCounters* counters) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu") || name.size() == 3) continue;
    if (!of.contains(std::atoi(name.c_str() + 3))) continue;
    double user = 0, nice = 0, system = 0, idle = 0, io_wait = 0, irq = 0, soft_irq = 0, steal = 0;
    words >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq >> steal;
    ++counters->processors;
    counters->idle += (idle + io_wait) / ticks_per_second;
    counters->interrupts += (irq + soft_irq) / ticks_per_second;
    counters->stolen += steal / ticks_per_second;
  }
}

std::optional<double> WaitingSeconds(const std::string& text) {
  const size_t some = text.find("some "), total = text.find("total=", some);
  if (some == std::string::npos || total == std::string::npos) return std::nullopt;
  return std::strtod(text.c_str() + total + 6, nullptr) / 1e6;
}

std::optional<LoadCounters> ReadLoadCounters() {
  LoadCounters counters;
  AddProcStat(SystemText("/proc/stat"), AllowedProcessors(),
              static_cast<double>(sysconf(_SC_CLK_TCK)), &counters);
  if (counters.processors == 0) return std::nullopt;
  counters.clock =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  counters.own = ProcessorSeconds(RUSAGE_SELF) + ProcessorSeconds(RUSAGE_CHILDREN);
  counters.waiting = WaitingSeconds(SystemText("/proc/pressure/cpu"));
  counters.load_average = std::strtod(SystemText("/proc/loadavg").c_str(), nullptr);
  return counters;
}

RunLoad LoadBetween(const LoadCounters& before, const LoadCounters& after) {
  RunLoad load{.processors = before.processors, .load_average = before.load_average};
  const double seconds = after.clock - before.clock;
  if (seconds <= 0) return load;
  // What was not idle, and not ours. Counting from the idle time and not from the kernel's user and
  // system time has a reason: those are sampled at ticks, idle time is measured. Interrupts serve
  // our own traffic, mostly.
  const double others = seconds * before.processors - (after.idle - before.idle) -
                        (after.interrupts - before.interrupts) - (after.own - before.own);
  load.others = std::max(0.0, others / seconds);
  load.stolen = std::max(0.0, (after.stolen - before.stolen) / seconds);
  if (before.waiting && after.waiting)
    load.pressure = std::clamp((*after.waiting - *before.waiting) / seconds, 0.0, 1.0);
  return load;
}

}  // namespace monograph
