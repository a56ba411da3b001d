// What one client costs. In-graph replication against between-graph on the same daemons; steps of a
// given length on executors that the client drives, against the same executors running by
// themselves; and what it gains where one worker is slower.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "bench/stub_executors.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/control/control.h"
#include "tools/run_metrics.h"

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
  options.transport.spin =
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

std::string Program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

struct Trained {
  double images_per_second = 0;   // all clients together
  double client_us_per_step = 0;  // processor time of the first one
};

// A run of mnist_replica. `words`: the command so far.
Trained Train(std::vector<std::string> words, const std::vector<std::string>& flags) {
  char results[] = "/tmp/monograph-bench-XXXXXX";
  if (Descriptor(mkstemp(results)).get() < 0) Die("cannot make a temporary file");
  words.insert(words.end(), {"--data_name=synthetic", "--dropout=0", "--display_every=1000",
                             "--seed=1", std::string("--result_file=") + results});
  words.insert(words.end(), flags.begin(), flags.end());
  const pid_t pid = Spawn(std::move(words), [] {
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(127);
    setenv("MONOGRAPH_LOG_LEVEL", "error", 1);
  });
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) Die("mnist_replica failed: " + flags[0]);
  Trained trained;
  for (int client = 0, clients = 1; client < clients; ++client) {
    const RunResult result = Check(ReadRunResult(ResultPath(results, client)));
    clients = result.clients;
    trained.images_per_second += result.images_per_second();
    if (client == 0)
      trained.client_us_per_step =
          1e6 * result.cpu_seconds / static_cast<double>(result.steps.size());
    unlink(ResultPath(results, client).c_str());
  }
  return trained;
}

const std::vector<std::string> kOneThread = {"--inter_op_parallelism_threads=1",
                                             "--intra_op_parallelism_threads=1"};

// On 1 ps and 2 workers of its own. Steps take about 35 ms where a core does 1300 images/s.
Trained TrainLaunched(const std::vector<std::string>& mode) {
  std::vector<std::string> flags = mode;
  flags.insert(flags.end(),
               {"--batch_size=90", "--fc=512", "--num_warmup_batches=10", "--num_batches=60"});
  return Train({Program("monograph"), "launch", "--ps=1", "--workers=2",
                "--executor_flags=--log_level=error " + kOneThread[0] + " " + kOneThread[1], "--",
                Program("mnist_replica")},
               flags);
}

// A loop that does nothing else takes half of a core.
class Burner {
 public:
  explicit Burner(int core)
      : pid_(Spawn({"/bin/sh", "-c", "while :; do :; done"}, [core] {
          PinTo(core);
          prctl(PR_SET_PDEATHSIG, SIGKILL);
        })) {}
  ~Burner() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Burner(const Burner&) = delete;

 private:
  const pid_t pid_;
};

// In-graph on two workers with a core each, of which the second has half: the batch cut by measured
// speed against halves.
void MeasuredAgainstEven(const Args& args, Report* report) {
  const std::string name = "one of 2 workers at half speed, --split=measured";
  if (!args.Wants(name)) return;
  Daemons daemons(2);
  daemons.Start(kOneThread, /*pinned=*/true);
  const Burner burner(1);
  const auto train = [&](const std::string& split) {
    return Train({Program("mnist_replica"), "--cluster=" + daemons.cluster().ToJson()},
                 {"--split=" + split, "--variable_update=central", "--batch_size=120", "--fc=256",
                  "--num_warmup_batches=4", "--num_batches=30"})
        .images_per_second;
  };
  report->Compare("replication", "images/s", {{name, Goal{1.2, Goal::kMin}}},
                  Side::Of("ours", [&] { return train("measured"); }),
                  {Side::Of("--split=even", [&] { return train("even"); })}, args.Repetitions(8));
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "replication_bench: in-graph against between-graph on 2 workers; "
                                "what the client costs if it hears of each step, and of each 30th; "
                                "a batch that is cut by speed against halves, one worker slowed "
                                "down; steps of K executors that one client drives against K that "
                                "run by themselves");
  SetLogLevel(LogLevel::kWarning);
  Report report(args);
  const std::string training = "2 workers, in-graph";
  if (args.Wants(training)) {
    report.Compare(
        "replication", "images/s", {{training, Goal{0.98, Goal::kMin}}},
        Side::Of("ours",
                 [] { return TrainLaunched({"--replication=in_graph"}).images_per_second; }),
        {Side::Of(
            "between-graph, sync",
            [] {
              return TrainLaunched({"--replication=between_graph", "--sync"}).images_per_second;
            })},
        args.Repetitions(8));
  }
  const std::string client = "2 workers, in-graph, 30 steps per run, client's processor time";
  if (args.Wants(client)) {
    const auto time = [](const char* steps) {
      return TrainLaunched({"--input=executor", steps}).client_us_per_step;
    };
    report.Compare("replication", "us/step", {{client, Goal{0.3, Goal::kMax}}},
                   Side::Of("ours", [&] { return time("--steps_per_run=30"); }),
                   {Side::Of("one step per run", [&] { return time("--steps_per_run=1"); })},
                   args.Repetitions(8));
  }
  MeasuredAgainstEven(args, &report);
  StubExecutors two(2), many(32);
  DrivenAgainstFree(args, &report, "2 executors, 200 us", &two, 200e-6);
  DrivenAgainstFree(args, &report, "32 executors, 2 ms", &many, 2e-3);
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
