// What one client costs. In-graph replication against between-graph on the same daemons; and steps
// of a given length on executors that the client drives, against the same executors running by
// themselves.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "bench/stub_executors.h"
#include "client/registries.h"
#include "client/run_metrics.h"
#include "client/session.h"
#include "ops/control/control.h"

namespace monograph::bench {
namespace {

// Steps of `seconds` on `count` executors: the client's steps per second against their own.
void DrivenAgainstFree(const Args& args, Report* report, const std::string& name,
                       StubExecutors* stubs, double seconds) {
  if (!args.Wants(name)) return;
  const int count = stubs->cluster().num_tasks("worker");
  stubs->SetStepTime(seconds);
  Graph graph = NewGraph();
  const Scope root(&graph);
  std::vector<Operation> targets;
  for (int k = 0; k < count; ++k)
    targets.push_back(NoOp(root.WithDevice("/job:worker/task:" + std::to_string(k))));
  SessionOptions options;
  options.spin =
      std::chrono::milliseconds(20);  // a client that waits for its steps only: no wake-up in them
  const std::unique_ptr<Session> session =
      Check(Session::Connect(stubs->cluster(), graph, options));
  const Callable step = Check(session->MakeCallable({}, {}, targets));
  const auto steps = static_cast<long>(0.1 / seconds);
  report->Compare("replication", "steps/s", {{name, Goal{0.95, Goal::kMin}}},
                  Side::Of("ours",
                           [&] {
                             const double start = Now();
                             for (long i = 0; i < steps; ++i)
                               Check(session->RunCallable(step, {}).status());
                             return static_cast<double>(steps) / (Now() - start);
                           }),
                  {Side::Of("free-running executors", [&] { return 1 / stubs->RunFree(steps); })},
                  args.Repetitions(60));
  Check(session->Close());
}

// Images per second of mnist_replica on 1 ps and 2 workers of its own.
double Train(const std::vector<std::string>& mode) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  char results[] = "/tmp/monograph-bench-XXXXXX";
  const int file = mkstemp(results);
  if (file < 0) Die("cannot make a temporary file");
  close(file);
  std::vector<std::string> words = {
      folder / "monograph",
      "launch",
      "--ps=1",
      "--workers=2",
      "--executor_flags=--log_level=error --inter_op_parallelism_threads=1 "
      "--intra_op_parallelism_threads=1",
      "--",
      folder / "mnist_replica",
      "--data_name=synthetic",
      "--batch_size=100",
      "--fc=512",
      "--dropout=0",
      "--num_warmup_batches=10",
      "--num_batches=60",
      "--display_every=1000",
      "--seed=1",
      std::string("--result_file=") + results};
  words.insert(words.end(), mode.begin(), mode.end());
  const pid_t pid = Spawn(std::move(words), [] {
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(127);
  });
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) Die("mnist_replica failed: " + mode[0]);
  double rate = 0;
  for (int client = 0, clients = 1; client < clients; ++client) {
    const RunResult result = Check(ReadRunResult(ResultPath(results, client)));
    clients = result.clients;
    rate += result.images_per_second();
    unlink(ResultPath(results, client).c_str());
  }
  return rate;
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "replication_bench: in-graph against between-graph on 2 workers; "
                                "steps of K executors that one client drives against K that run by "
                                "themselves");
  SetLogLevel(LogLevel::kWarning);
  StubExecutors two(2), many(32);
  Report report(args);
  DrivenAgainstFree(args, &report, "2 executors, 200 us", &two, 200e-6);
  DrivenAgainstFree(args, &report, "32 executors, 2 ms", &many, 2e-3);
  const std::string training = "2 workers, in-graph";
  if (args.Wants(training)) {
    report.Compare("replication", "images/s", {{training, Goal{0.98, Goal::kMin}}},
                   Side::Of("ours", [] { return Train({"--replication=in_graph"}); }),
                   {Side::Of("between-graph, sync",
                             [] {
                               return Train({"--replication=between_graph", "--sync"});
                             })},
                   args.Repetitions(8));
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
