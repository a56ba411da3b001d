// `session.run` from Python: a TensorFlow program on Monograph (python -m monograph.tensorflow)
// against the same program on TensorFlow, in one process and with a server in another.
#include <optional>
#include <string>
#include <vector>

#include "bench/harness.h"

namespace monograph::bench {
namespace {

int Main(int argc, char** argv) {
  const Args args =
      Args::Parse(argc, argv,
                  "python_bench: session.run from Python of a TensorFlow program on Monograph and "
                  "on TensorFlow, in one process and with a server");
  struct Case {
    std::string name;  // bench/peers/python_run.py's
    std::optional<Goal> goal;
    int repetitions;
  };
  const std::vector<Case> cases = {{"no-op", Goal{1.0 / 3, Goal::kMax}, 40},
                                   {"y = 2 x", {}, 40},
                                   {"64 MiB", {}, 15},
                                   {"with a server, no-op", Goal{0.1, Goal::kMax}, 40},
                                   {"with a server, y = 2 x", {}, 40},
                                   {"with a server, 64 MiB", Goal{0.1, Goal::kMax}, 15}};
  if (args.tensorflow.empty()) {
    std::fprintf(stderr, "python: left out, since there is no TensorFlow to compare with\n");
    return 0;
  }
  Report report(args);
  for (const Case& c : cases) {
    if (!args.Wants(c.name)) continue;
    const std::string ours = "monograph.tensorflow, " + c.name, theirs = "TensorFlow, " + c.name;
    const auto programs = Peer::Start(args.tensorflow, "python_run.py",
                                      {"--seconds=0.1", "--case=" + ours, "--case=" + theirs});
    if (!programs->WaitReady()) return 0;
    report.Compare("python", "us", {{c.name, c.goal}}, programs->AsSide("ours", ours, 1),
                   {programs->AsSide("TensorFlow", theirs, 1)}, args.Repetitions(c.repetitions));
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
