// CompareReport: the figures of a comparison, from the runs' result files. Table, page and JSON are
// made of it and of nothing else, so that they agree.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/load.h"
#include "tools/compare/mode.h"
#include "tools/run_metrics.h"

namespace monograph {

// Over the repeats.
struct Spread {
  double median = 0, low = 0, high = 0;
  int count = 0;
};
Spread SpreadOf(std::vector<double> values);
// The value below which a share `q` of the values lies, between neighbours by proportion. REQUIRES:
// sorted, not empty.
double Quantile(const std::vector<double>& sorted, double q);

// One run: all its clients together.
struct ComparedRun {
  std::string mode;
  int workers = 0, repeat = 0;  // repeats count from 1
  std::string command;
  std::string error;  // empty: it ran through
  std::vector<RunResult> clients;
  std::optional<RunLoad> load;  // nullopt: it could not be measured
  bool busy() const { return load && load->busy(); }
};

// What one run comes to. A "step" trains one global batch, whoever trains it: figures per step can
// be compared between modes.
struct RunFigures {
  double images_per_second = 0;
  double step_p50_us = 0, step_p99_us = 0;
  double client_cpu_us = 0;  // per step, all clients together
  double daemon_cpu_us = 0;  // per step, all daemons together
  struct Traffic {
    std::string task;
    double sent = 0, received = 0, messages_sent = 0, messages_received = 0;  // per step
  };
  std::vector<Traffic> tasks;
  std::vector<RunResult::Progress> loss;  // mean of the clients
  std::vector<double> step_us;            // sorted, of all clients
};
// Several clients: images per second are those trained while every client was training; if that is
// less than half of the run, those of the whole run.
RunFigures FiguresOf(const std::vector<RunResult>& clients);

struct Machine {
  std::string cpu, kernel;
  int cores = 0;
  double memory_gib = 0;
};
Machine ThisMachine();

struct CompareReport {
  std::string program, command, version, date;  // date: UTC
  Machine machine;
  int repeats = 0;
  std::vector<CompareMode> modes;
  std::vector<int> workers;
  std::vector<ComparedRun> runs;  // in the order in which they ran
  bool interrupted = false;
};

// One mode at one number of workers.
struct Cell {
  const CompareMode* mode = nullptr;
  int workers = 0;
  std::vector<const ComparedRun*> runs;  // that ran through
  std::vector<RunFigures> figures;       // of those
  Spread images_per_second, step_p50_us, step_p99_us, client_cpu_us, daemon_cpu_us;
};
// Every mode at every number of workers; cells in which no run went through have no runs.
std::vector<Cell> Cells(const CompareReport& report);

// Fewer repeats than this give no conclusion.
inline constexpr int kMinRepeats = 3;
// Ratios that lie on both sides of 1 within this distance of it are equal.
inline constexpr double kEqualWithin = 0.05;

enum class Conclusion {
  kClear,       // every repeat lies on the same side of 1
  kEqual,       // not clear, or 1.00 by median, and every repeat lies within kEqualWithin of 1
  kUnclear,     // neither
  kFewRepeats,  // none: fewer than kMinRepeats
  kBusy,        // none: there were enough, but too many of them on a busy machine
};
// "clear", "equal", "unclear", "few repeats", "busy".
std::string ConclusionName(Conclusion conclusion);
inline bool Concludes(Conclusion conclusion) {
  return conclusion != Conclusion::kFewRepeats && conclusion != Conclusion::kBusy;
}

// Images per second of one mode over those of another, at one number of workers: of runs of the
// same repeat, which stand beside each other in time. Repeats on a busy machine are left out if
// kMinRepeats others remain.
struct Ratio {
  std::string mode, baseline;
  int workers = 0;
  Spread ratio;     // of `baseline` over `mode`; no count: they have no repeat in common
  int repeats = 0;  // in which both ran through
  int busy = 0;     // of those, on a busy machine
  Conclusion conclusion = Conclusion::kFewRepeats;
};
Ratio RatioOf(const Cell& baseline, const Cell& mode);
// Of the first mode over each other.
std::vector<Ratio> Ratios(const CompareReport& report, const std::vector<Cell>& cells);

// The repeat whose critical paths stand side by side at one number of workers: the one in which
// most modes traced a step; of several, one on a machine that was not busy, then the one whose
// steps were most like the median. 0: no run traced a step.
int PathRepeat(const std::vector<Cell>& cells, int workers);
// Of the cell's run of that repeat; nullptr: it traced none.
const CriticalPath* PathOf(const Cell& cell, int repeat);

// Whether synchronous runs ended with the same weights, at one number of workers.
struct Equality {
  int workers = 0;
  int runs = 0;                        // that have a digest
  std::map<std::string, int> digests;  // digest: how many runs
  std::vector<std::string> differ;     // variables that are not the same in all
  bool equal() const { return digests.size() == 1; }
};
std::vector<Equality> Equalities(const CompareReport& report);
bool Synchronous(const CompareReport& report, const ComparedRun& run);
// Of each task the median over the repeats.
std::vector<RunFigures::Traffic> MedianTraffic(const Cell& cell);
double BytesPerStep(const Cell& cell);  // what all tasks sent

std::string ReportJson(const CompareReport& report);
std::string ReportTable(const CompareReport& report);
// One self-contained page: no script, style, font or picture comes from anywhere else.
std::string ReportPage(const CompareReport& report);

}  // namespace monograph
