// Reports of comparisons that never ran, for tests of what is said of them.
#pragma once

#include <string>

#include "tools/compare/report.h"

namespace monograph {

// A client that trained `steps` steps of `step_us` without pause.
inline RunResult MadeUpClient(int client, int clients, double step_us, int steps, int64_t batch) {
  RunResult result;
  result.client = client;
  result.clients = clients;
  result.batch_size = batch;
  result.started_at = 1000;
  result.seconds = step_us * steps / 1e6;
  result.cpu_seconds = result.seconds / 10;
  result.images = batch / clients * steps;
  for (int i = 0; i < steps; ++i) result.steps.push_back({step_us * i, step_us});
  result.display = {{10, 1, 2.0 + client, 0.25}, {20, 2, 1.0 + client, 0.5}};
  result.tasks = {
      {"/job:client/replica:0/task:0", 1000u * static_cast<unsigned>(steps), 0, 1, 2, 0}};
  result.variables = {{"w", "11"}, {"b", "22"}};
  result.digest = "d1";
  return result;
}

inline ComparedRun MadeUpRun(const std::string& mode, int workers, int repeat, double step_us) {
  ComparedRun run{.mode = mode, .workers = workers, .repeat = repeat, .command = "run"};
  run.clients = {MadeUpClient(0, 1, step_us, 100, 200)};
  return run;
}

inline constexpr RunLoad kCalm{.processors = 2, .load_average = 0.5, .others = 0.02};
inline constexpr RunLoad kBusy{.processors = 2, .load_average = 3, .others = 1.9, .pressure = 0.8};

// In-graph is 1.25 times as fast at 2 workers; at 1 worker the repeats lie on both sides of 1.
inline CompareReport TwoModes(int repeats = 3) {
  CompareReport report;
  report.program = "mnist_replica";
  report.command = "mnist_replica --fc=<1>";
  report.date = "2026-01-02 03:04 UTC";
  report.machine = {"A Cpu", "Linux 6", 2, 8};
  report.repeats = repeats;
  report.workers = {1, 2};
  report.modes = ParseModes({"in_graph", "between_graph"}).value();
  for (int repeat = 1; repeat <= repeats; ++repeat) {
    report.runs.push_back(MadeUpRun("in_graph", 1, repeat, 1000));
    report.runs.push_back(MadeUpRun("between_graph", 1, repeat, 960 + 20 * repeat));
    report.runs.push_back(MadeUpRun("in_graph", 2, repeat, 800));
    report.runs.push_back(MadeUpRun("between_graph", 2, repeat, 1000));
  }
  for (ComparedRun& run : report.runs) run.load = kCalm;
  return report;
}

}  // namespace monograph
