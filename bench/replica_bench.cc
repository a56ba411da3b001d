// One replica that trains through a session on CPUs, with one thread and with two, in float and in
// bfloat16: mnist_replica's model (batch 100) and ResNet-50 (batch 16), against torch; in bfloat16
// against ours in float, too. By the clock, and by processor time, which other programs disturb
// less.
//
// Ours runs in a child process per number of threads, which is pinned to as many cores. So is
// torch's process.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/harness.h"
#include "bench/session_training.h"
#include "examples/models/resnet.h"

namespace monograph::bench {
namespace {

TrainedModel ModelOf(const std::string& name, DType compute) {
  if (name == "CNN") return MnistTraining(100, compute);
  return {examples::ResNet{.compute = compute}.Training(), Shape{16, 224, 224, 3}, 1000,
          Momentum(0.01, 0.9)};
}

// A command is "MODEL TYPE SECONDS", the answer the two rates; or "MODEL TYPE trace", answered by a
// step's trace.
void Serve(int threads, Child::Channel& parent) {
  std::map<std::string, std::unique_ptr<SessionTraining>> made;
  while (true) {
    const std::string line = parent.ReadLine();
    std::istringstream command(line);
    std::string model, type, what;
    command >> model >> type >> what;
    std::unique_ptr<SessionTraining>& training = made[model + type];
    if (training == nullptr) {
      training = std::make_unique<SessionTraining>(
          ModelOf(model, type == "float" ? DT_FLOAT : DT_BFLOAT16),
          std::vector<std::string>{kLocalCpu}, nullptr, threads);
      for (int i = 0; i < 2; ++i) training->Step();
    }
    if (what == "trace") {
      std::string trace = training->Trace();
      std::ranges::replace(trace, '\n', ' ');  // an answer is a line
      parent.WriteLine(trace);
      continue;
    }
    const Rates rates = RatesOf([&] { training->Step(); }, training->batch(), std::stod(what));
    parent.WriteLine(std::to_string(rates.wall) + " " + std::to_string(rates.processor));
  }
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(
      argc, argv,
      "replica_bench: a replica on CPUs with one thread and with two, in float and in bfloat16, "
      "the MNIST CNN and ResNet-50, against torch; --profile prints traces of steps instead");
  SetLogLevel(LogLevel::kWarning);
  // Forked before anything starts threads.
  std::map<int, std::unique_ptr<Child>> children;
  for (const int threads : {1, 2}) {
    children[threads] = Child::Fork([threads](Child::Channel& parent) { Serve(threads, parent); },
                                    threads == 1 ? 0 : -1);
  }
  Report report(args);
  struct Case {
    std::string model, batch;
    double seconds;
    int repetitions;
  };
  for (const Case& c : {Case{"CNN", "100", 0.4, 20}, Case{"ResNet-50", "16", 1, 5}}) {
    for (auto& [threads, child] : children) {
      const std::string with = threads == 1 ? "1 thread" : "2 threads";
      std::unique_ptr<Peer> torch;
      for (const std::string type : {"float", "bfloat16"}) {
        const std::string name = c.model + ", batch " + c.batch + ", " + type + ", " + with;
        if (!args.Wants(name)) continue;
        const auto ours = [&, &of = *child](const std::string& in) -> Side {
          const std::string seconds = std::to_string(c.seconds);
          return {in == type ? "ours" : "ours in " + in,
                  [&of, command = c.model + " " + in + " " + seconds] {
                    std::istringstream answer(of.Ask(command));
                    std::vector<double> rates(2);
                    answer >> rates[0] >> rates[1];
                    return std::optional(rates);
                  }};
        };
        if (args.profile) {
          std::printf("%s\n", child->Ask(c.model + " " + type + " trace").c_str());
          continue;
        }
        if (torch == nullptr) {
          torch = Peer::Start(
              args.torch, "torch_cnn.py",
              {"--seconds=" + std::to_string(c.seconds), "--threads=" + std::to_string(threads)});
          if (torch != nullptr && !torch->WaitReady()) torch.reset();
        }
        std::vector<Side> references;
        const Goal of_torch{type == "float" ? 1.0 : 1.2, Goal::kMin};
        const auto add = [&](Side side, Goal goal) {
          side.goal = goal;
          references.push_back(std::move(side));
        };
        if (torch != nullptr) {
          const std::vector<std::string> kinds =
              type == "float" ? std::vector<std::string>{"float"}
                              : std::vector<std::string>{"autocast", "bfloat16"};
          for (const std::string& kind : kinds)
            add(torch->AsSide("torch, " + kind, c.model + ", " + kind, 1, {"processor"}), of_torch);
        }
        if (type != "float") add(ours("float"), {1.5, Goal::kMin});
        if (references.empty()) {
          std::fprintf(stderr, "replica, %s: left out, since there is no torch to compare with\n",
                       name.c_str());
          continue;
        }
        const std::optional<Goal> goal = references.front().goal;
        report.Compare("replica", "images/s", {{name, goal}, {name + ", processor time", goal}},
                       ours(type), references, args.Repetitions(c.repetitions));
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
