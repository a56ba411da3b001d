// What a step costs that computes nothing: one no-op on each of K executor daemons, run by a
// prepared call, against bare UCX messages to K processes and back; and the time from starting two
// daemons to the end of their first step.
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "bench/raw_ucx.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/control/control.h"

namespace monograph::bench {
namespace {

// Starts two daemons, connects, and runs a no-op on each.
double StartToFirstStep() {
  Daemons daemons(2);
  const double start = Now();
  daemons.Start();
  Graph graph = NewGraph();
  const Scope root(&graph);
  std::vector<Operation> targets;
  for (int k = 0; k < 2; ++k) targets.push_back(NoOp(root.WithDevice(daemons.device(k))));
  const std::unique_ptr<Session> session = Check(Session::Connect(daemons.cluster(), graph));
  Check(session->Run({}, {}, targets).status());
  const double seconds = Now() - start;
  Check(session->Close());
  return seconds;
}

int Main(int argc, char** argv) {
  const Args args =
      Args::Parse(argc, argv,
                  "null_step_bench: a step of K no-ops on K daemons against bare UCX messages to K "
                  "processes; two daemons from start to first step");
  constexpr int kMost = 8;
  const std::string start_case = "2 daemons, start to first step";
  const bool wants_start = args.Wants(start_case);
  SetLogLevel(LogLevel::kWarning);
  RawServers raw(kMost, 0);
  auto tensorflow =
      Peer::Start(args.tensorflow, "tf_null_step.py", {"--tasks=1,2,8", "--seconds=0.1"});
  auto ray = Peer::Start(args.ray, "ray_null_step.py", {"--tasks=1,2,8", "--seconds=0.1"});
  if (tensorflow && !tensorflow->WaitReady()) tensorflow.reset();
  if (ray && !ray->WaitReady()) ray.reset();

  Report report(args);
  {
    Daemons daemons(kMost);
    daemons.Start();
    raw.Connect();
    Graph graph = NewGraph();
    const Scope root(&graph);
    std::vector<Operation> ops;
    for (int k = 0; k < kMost; ++k) ops.push_back(NoOp(root.WithDevice(daemons.device(k))));
    const std::unique_ptr<Session> session = Check(Session::Connect(daemons.cluster(), graph));
    for (const int fan_out : {1, 2, 8}) {
      const std::string name = "K=" + std::to_string(fan_out);
      if (!args.Wants(name)) continue;
      const Callable step =
          Check(session->MakeCallable({}, {}, {ops.begin(), ops.begin() + fan_out}));
      const long steps = fan_out == 8 ? 100 : 400;
      const Side ours = Side::Of("ours", [&] {
        const double start = Now();
        for (long i = 0; i < steps; ++i) Check(session->RunCallable(step, {}).status());
        return (Now() - start) / static_cast<double>(steps) * 1e6;
      });
      std::vector<Side> references = {
          Side::Of("raw UCX fan-out", [&] { return raw.NullStep(fan_out, steps) * 1e6; })};
      if (tensorflow) references.push_back(tensorflow->AsSide("TensorFlow", name, 10));
      if (ray) references.push_back(ray->AsSide("Ray Compiled Graph", name, 10));
      // One process answers in another time when it happens to share a core's cache with the
      // client: shown, no goal.
      std::optional<Goal> goal;
      if (fan_out > 1) goal = Goal{6, Goal::kMax};
      report.Compare("null_step", "us", {{name, goal}}, ours, references, args.Repetitions(100));
    }
    Check(session->Close());
  }
  if (wants_start) {
    report.Compare("null_step", "s", {{start_case, Goal{1, Goal::kMax}}},
                   Side::Of("ours", StartToFirstStep), {Side::Of("budget", [] { return 0.5; })},
                   args.Repetitions(6));
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
