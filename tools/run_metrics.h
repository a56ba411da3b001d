// RunMetrics: what a training program measures of itself, and the file that it leaves
// (--result_file=FILE). `monograph compare` reads these files.
//
//   RunMetrics metrics({.program = "mnist_replica", .flags = {{"replication", "in_graph"}},
//                       .workers = 2, .batch_size = 100});
//   metrics.Begin(session);  // after the warm-up: clocks, CPU time and counters start
//   for (...) { const auto begin = Clock::now(); ...; metrics.Step(begin, Clock::now(), 100); }
//   metrics.Display(100, loss, accuracy);                    // whenever a progress line is printed
//   metrics.End(session);                                    // right after the last timed step
//   metrics.ReadVariables(session, step.variables);          // their digest
//   metrics.TraceStep(metadata.trace_json);                  // of one step that is not timed
//   metrics.Write(ResultPath(result_file, client));
//
// The file is JSON, one object:
//   monograph_result: 1           the version of this format
//   program, flags: {name: value} the mode, as the user named it
//   client, clients               this client's number, how many take part (between-graph: one per worker)
//   workers, batch_size           replicas of all clients, examples of one step of all replicas together
//   started_at                    seconds since 1970 when the timed part began
//   seconds, images               its length, and the examples that this client trained in it
//   cpu_seconds                   CPU time of this process in it
//   steps: {start_us, us}         each timed step of this client: when it began, counted from
//                                 started_at, and how long it took
//   display: [{step, us, loss, accuracy}]
//   test_accuracy                 null if it was not measured
//   tasks: [{task, bytes_sent, bytes_received, messages_sent, messages_received, cpu_seconds}]
//                                 in the timed part; this client first, then the daemons
//                                 (whose figures are of all clients together), as far as they
//                                 answered
//   variables: {name: digest}     SHA-256 of each variable's bytes at the end, and
//   digest                        of all of them in order of their names; "" if they were not read
//   critical_path                 {total_us, compute_us, transfer_us, wait_us,
//                                  segments: [{kind, name, op, task, start_us, us}]}, or null
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "tools/critical_path.h"
#include "train/optimizer.h"

namespace monograph {

class Session;

// The file's contents.
struct RunResult {
  std::string program;
  std::map<std::string, std::string> flags;
  int client = 0, clients = 1;
  int workers = 1;
  int64_t batch_size = 0;

  double started_at = 0, seconds = 0, cpu_seconds = 0;
  int64_t images = 0;
  struct Step {
    double start_us = 0, us = 0;
  };
  std::vector<Step> steps;
  struct Progress {
    int64_t step = 0;
    double us = 0;  // since started_at
    double loss = 0, accuracy = 0;
  };
  std::vector<Progress> display;
  std::optional<double> test_accuracy;
  struct Task {
    std::string task;
    uint64_t bytes_sent = 0, bytes_received = 0, messages_sent = 0, messages_received = 0;
    double cpu_seconds = 0;
  };
  std::vector<Task> tasks;
  std::map<std::string, std::string> variables;
  std::string digest;
  std::optional<CriticalPath> critical_path;

  double images_per_second() const {
    return seconds > 0 ? static_cast<double>(images) / seconds : 0;
  }
};

std::string ToJson(const RunResult& result);
// InvalidArgument names `source` and what is wrong; Unimplemented for another version.
Result<RunResult> ParseRunResult(const std::string& json, const std::string& source);
// NotFound if there is no such file.
Result<RunResult> ReadRunResult(const std::string& path);
// The file of one client: `path` for client 0, else path + ".1", ...
std::string ResultPath(const std::string& path, int client);

// Threads. Step and Display may be called from several threads at once (steps in flight, a loop per
// tower); the others from one, while no step is being reported.
class RunMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  // `about` says the program, its flags, the client, workers and batch_size.
  explicit RunMetrics(RunResult about) : result_(std::move(about)) {}

  // The timed part is between these two. They ask every task for its counters; of one that was
  // started anew meanwhile only what came after that is known. Where tasks do not answer, End keeps
  // what the others say, fails with the name of one, and may be called again, with a new session,
  // too: the timed part is over at the first call.
  Status Begin(Session* session);
  Status End(Session* session);
  // `steps` of a row, with so many images in all: each counts as its equal part of the time.
  void Step(Clock::time_point begin, Clock::time_point end, int64_t images, int steps = 1);
  void Display(int64_t step, double loss, double accuracy);
  void TestAccuracy(double accuracy) {
    MutexLock lock(mutex_);
    result_.test_accuracy = accuracy;
  }
  // Reads the variables and keeps their digests.
  Status ReadVariables(Session* session, std::span<const ModelVariable> variables);
  // RunMetadata::trace_json of a step.
  Status TraceStep(const std::string& trace_json);
  // FailedPrecondition if the file cannot be written. It appears whole or not at all.
  Status Write(const std::string& path) const;

  RunResult result() const {
    MutexLock lock(mutex_);
    return result_;
  }

 private:
  mutable Mutex mutex_;
  RunResult result_ MG_GUARDED_BY(mutex_);
  Clock::time_point begin_;
  std::optional<Clock::time_point> end_;
  std::vector<RunResult::Task> before_;
};

}  // namespace monograph
