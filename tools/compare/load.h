// RunLoad: what else the machine did during a run. A comparison concludes nothing from runs on a
// busy machine.
//
// Busy by this rule: while the run was on its way, processes that are not of this comparison, and
// the host of a virtual machine, kept more than 5 % of the processors busy. Our own load does not
// count: it is the processor time of this process and of all that it started and waited for. Load
// average and pressure count our own load too; they are shown and decide nothing.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace monograph {

inline constexpr double kBusyShare = 0.05;

struct RunLoad {
  int processors = 0;              // that this process may run on
  double load_average = 0;         // of one minute, right before the run
  double others = 0;               // processors that others kept busy, on average
  double stolen = 0;               // the part of `others` that the host of a virtual machine took
  std::optional<double> pressure;  // share of the time in which a process, one of ours or not,
                                   // waited for a processor; nullopt: this kernel does not tell
  bool busy() const { return others > kBusyShare * processors; }
};

// What the counters of kernel and process say at one point in time, in seconds since some past one.
struct LoadCounters {
  double clock = 0;
  int processors = 0;
  double idle = 0, interrupts = 0, stolen = 0;  // of all processors together
  double own = 0;  // processor time of this process and of its children that have ended
  std::optional<double> waiting;
  double load_average = 0;
};

// nullopt where there is no /proc/stat.
std::optional<LoadCounters> ReadLoadCounters();
// Sums up the lines of /proc/stat of the processors `of` into idle, interrupts, stolen and
// processors.
void AddProcStat(const std::string& text, const std::set<int>& of, double ticks_per_second,
                 LoadCounters* counters);
// The "some" line of /proc/pressure/cpu; nullopt for other text.
std::optional<double> WaitingSeconds(const std::string& text);

// REQUIRES: every process that was started in between has ended and was waited for.
RunLoad LoadBetween(const LoadCounters& before, const LoadCounters& after);

}  // namespace monograph
