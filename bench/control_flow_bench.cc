// What an iteration of a loop and a cond cost, against TensorFlow on the same graph, which it
// writes: loops one in the other and alone, as TensorFlow 1.x's ops and as the functional While and
// If, in a session of this process with one thread and with two. Bodies add scalars, so that all of
// it is the cost of control flow and of small ops.
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "client/registries.h"
#include "client/session.h"
#include "graph/graph_file.h"
#include "tests/temporary_folder.h"

namespace monograph::bench {
namespace {

// bench/peers/tf_control_flow.py builds them.
struct Case {
  std::string name;
  int32_t limit;  // what is fed
  int count;      // of iterations, or conds
  Goal goal;
};

// A session with the graph of `path`.
class Steps {
 public:
  Steps(const std::string& path, int threads, int32_t limit)
      : graph_(Check(ReadGraph(path, &DefaultRegistries().ops))), feeds_{Tensor::Scalar(limit)} {
    SessionOptions options;
    options.inter_op_parallelism_threads = threads;
    options.intra_op_parallelism_threads = 1;
    session_ = Check(Session::Local(graph_, options));
    call_ = Check(session_->MakeCallableByName({"limit:0"}, {"result:0"}));
  }
  // Seconds of a step, median of some.
  double Seconds() {
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      const double start = Now();
      Check(session_->RunCallable(call_, feeds_).status());
      times.push_back(Now() - start);
    }
    return Median(times);
  }

 private:
  const Graph graph_;
  const std::vector<Tensor> feeds_;
  std::unique_ptr<Session> session_;
  Callable call_;
};

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "control_flow_bench: microseconds of a loop's iteration and of a "
                                "cond, against TensorFlow on the same graph");
  SetLogLevel(LogLevel::kWarning);
  const Goal as_fast{1, Goal::kMax}, twice{0.5, Goal::kMax};
  constexpr int kNested = 32 * 32 + 32;
  const std::vector<Case> cases = {{"while_loop, chain", 1000, 1000, as_fast},
                                   {"while_loop, nested", 32, kNested, as_fast},
                                   {"cond", 1, 200, twice},
                                   {"While, chain", 1000, 1000, as_fast},
                                   {"While, nested", 32, kNested, as_fast},
                                   {"If", 1, 200, twice}};
  const TemporaryFolder folder;
  auto tensorflow = Peer::Start(args.tensorflow, "tf_control_flow.py",
                                {"--seconds=0.05", "--graphs=" + folder.path()});
  if (!tensorflow) {
    std::fprintf(stderr, "control_flow: left out, since there is no TensorFlow to write graphs\n");
    return 0;
  }
  if (!tensorflow->WaitReady()) return 0;
  Report report(args);
  for (const Case& c : cases) {
    for (const int threads : {1, 2}) {
      const std::string name = c.name + (threads == 1 ? ", 1 thread" : ", 2 threads");
      if (!args.Wants(name)) continue;
      Steps steps(folder.File(c.name + ".pb"), threads, c.limit);
      report.Compare("control_flow", "us", {{name, c.goal}},
                     Side::Of("ours", [&] { return steps.Seconds() / c.count * 1e6; }),
                     {tensorflow->AsSide("TensorFlow", name, 1)}, args.Repetitions(30));
    }
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
