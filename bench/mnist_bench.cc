// Training of mnist_replica's model (without dropout). One replica on one thread through a session,
// against oneDNN's primitives called back to back; two in-graph replicas on two daemons with a core
// each, variables on the first, against two free copies of ours that run at once.
//
// The one replica, the free copies and oneDNN run in child processes that are pinned to a core
// each.
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "bench/onednn_cnn.h"
#include "bench/session_training.h"

namespace monograph::bench {
namespace {

constexpr int64_t kFc = 1024;

// A child's commands: "ours BATCH SECONDS", "onednn BATCH SECONDS"; the answer is images per
// second.
void ServeCopy(Child::Channel& parent) {
  std::vector<std::pair<int64_t, std::unique_ptr<SessionTraining>>> ours;
  std::vector<std::pair<int64_t, std::unique_ptr<OnednnCnn>>> onednn;
  const auto of = [](auto* kept, int64_t batch, auto make) {
    for (auto& [size, made] : *kept) {
      if (size == batch) return made.get();
    }
    kept->push_back({batch, make()});
    return kept->back().second.get();
  };
  while (true) {
    std::istringstream command(parent.ReadLine());
    std::string what;
    int64_t batch = 0;
    double seconds = 0;
    command >> what >> batch >> seconds;
    double value;
    if (what == "onednn") {
      OnednnCnn* const cnn =
          of(&onednn, batch, [&] { return std::make_unique<OnednnCnn>(batch, kFc); });
      value = RatesOf([&] { cnn->Step(); }, batch, seconds).wall;
    } else {
      SessionTraining* const training = of(&ours, batch, [&] {
        return std::make_unique<SessionTraining>(MnistTraining(batch),
                                                 std::vector<std::string>{kLocalCpu}, nullptr);
      });
      value = RatesOf([&] { training->Step(); }, batch, seconds).wall;
    }
    parent.WriteLine(std::to_string(value));
  }
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(
      argc, argv,
      "mnist_bench: one replica on one thread against oneDNN back to back; two in-graph "
      "replicas on two daemons against two free copies");
  SetLogLevel(LogLevel::kWarning);
  std::vector<std::unique_ptr<Child>> copies;
  for (const int core : {0, 1}) copies.push_back(Child::Fork(ServeCopy, core));
  auto tensorflow = Peer::Start(args.tensorflow, "tf_mnist.py", {"--seconds=0.3"});
  if (tensorflow && !tensorflow->WaitReady()) tensorflow.reset();

  constexpr int64_t kBatch = 100;
  const auto ask = [&](Child& copy, const std::string& what, int64_t batch, double seconds) {
    copy.Tell(what + " " + std::to_string(batch) + " " + std::to_string(seconds));
  };
  const auto answer = [&](Child& copy) {
    const std::optional<std::string> line = copy.Hear();
    if (!line) Die("a copy has ended");
    return std::stod(*line);
  };
  Report report(args);
  if (args.Wants("1 replica")) {
    const auto alone = [&](const std::string& what) {
      return [&, what] {
        ask(*copies[0], what, kBatch, 0.15);
        return answer(*copies[0]);
      };
    };
    std::vector<Side> references = {Side::Of("oneDNN back to back", alone("onednn"))};
    if (tensorflow) references.push_back(tensorflow->AsSide("TensorFlow", "1 replica", 3));
    report.Compare("mnist", "images/s", {{"1 replica", Goal{0.90, Goal::kMin}}},
                   Side::Of("ours", alone("ours")), references, args.Repetitions(40));
  }
  // "half": the global batch of one replica, so that each has half of it.
  for (const bool half : {false, true}) {
    const std::string name = half ? "2 replicas, half" : "2 replicas";
    if (!args.Wants(name)) continue;
    Daemons daemons(2);
    daemons.Start({"--inter_op_parallelism_threads=1", "--intra_op_parallelism_threads=1"},
                  /*pinned=*/true);
    const int64_t each = half ? kBatch / 2 : kBatch;
    SessionTraining training(MnistTraining(2 * each), {daemons.device(0), daemons.device(1)},
                             &daemons.cluster());
    if (args.profile) {
      for (int i = 0; i < 5; ++i) training.Step();
      std::printf("%s\n", training.Trace().c_str());
      continue;
    }
    std::vector<Side> references = {Side::Of("two free copies", [&] {
      for (const auto& copy : copies) ask(*copy, "ours", each, 0.3);
      double sum = 0;
      for (const auto& copy : copies) sum += answer(*copy);
      return sum;
    })};
    if (tensorflow) references.push_back(tensorflow->AsSide("TensorFlow", name, 3));
    std::optional<Goal> goal;
    if (!half) goal = Goal{0.85, Goal::kMin};
    report.Compare(
        "mnist", "images/s", {{name, goal}},
        Side::Of("ours", [&] { return RatesOf([&] { training.Step(); }, 2 * each, 0.3).wall; }),
        references, args.Repetitions(20));
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
