// Compare: one training program in several ways of replication, one after the other, on daemons
// that are started for each run; a page of plots, a table and the figures as JSON (docs/compare.md
// says how each is measured).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct CompareOptions {
  std::vector<std::string>
      command;  // the program and its arguments; it must know --result_file (tools/run_metrics.h)
  // Names of CompareModeNames(), or "NAME=FLAG FLAG ..." for a way of one's own.
  std::vector<std::string> modes = {"in_graph", "between_graph"};
  std::vector<int> workers = {1, 2, 4};
  int repeats = 3;
  int ps = 1;                // daemons of job ps, for the modes that use them
  int batch_per_worker = 0;  // > 0: --batch_size is this times the workers
  double run_timeout = 900;  // seconds for one run; it is then ended and counts as failed
  std::string executor;      // path of monograph-executor
  std::vector<std::string> executor_flags;
  std::string out = "compare.html";
  std::string json;  // empty: none
  std::string
      log_dir;  // keeps what each run printed; empty: only a failed run's last lines are shown
};

std::vector<std::string> CompareModeNames();

// Runs everything, tells its progress on standard error, prints the table, writes the page. Returns
// the exit code: 0, 1 if a run failed (it is named; table and page show the others), 128 + signal
// after Ctrl-C (they show what had been measured). InvalidArgument for options that cannot be. Uses
// signals and child processes: for main() of a program with one thread.
Result<int> Compare(const CompareOptions& options);

}  // namespace monograph
