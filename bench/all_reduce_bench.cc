// The gradients of mnist_replica's model (13.1 MB, eight tensors), which lie on two daemons, summed
// on both, against what one daemon would do at least: pulling the other one's by bare UCX and one
// pass of adding, all memory on huge pages. Ours counts the whole step, with the client's message
// to both daemons and their answers.
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "bench/raw_ucx.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/variable/variable.h"
#include "train/all_reduce.h"

namespace monograph::bench {
namespace {

constexpr int kSteps = 20;  // of a repetition

// In the order of the backward pass.
std::vector<Shape> Gradients() {
  return {{10}, {1024, 10}, {1024}, {3136, 1024}, {64}, {5, 5, 32, 64}, {32}, {5, 5, 1, 32}};
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(
      argc, argv,
      "all_reduce_bench: 13.1 MB of gradients summed over two daemons, against pulling and adding");
  SetLogLevel(LogLevel::kWarning);
  size_t bytes = 0;
  for (const Shape& shape : Gradients())
    bytes += static_cast<size_t>(shape.elements()) * sizeof(float);
  RawServers raw(1, bytes);
  const std::string size = "--bytes=" + std::to_string(bytes);
  auto gloo = Peer::Start(args.torch, "torch_all_reduce.py", {size});
  auto tensorflow = Peer::Start(args.tensorflow, "tf_add_n.py", {size});
  if (gloo && !gloo->WaitReady()) gloo.reset();
  if (tensorflow && !tensorflow->WaitReady()) tensorflow.reset();

  Daemons daemons(2);
  daemons.Start();
  raw.Connect();
  Graph graph = NewGraph();
  const Scope root(&graph);
  std::vector<Outputs> gradients(2);
  std::vector<Operation> init;
  for (int rank = 0; rank < 2; ++rank) {
    const Scope place = root.WithDevice(daemons.device(rank));
    for (const Shape& shape : Gradients()) {
      const std::string name =
          "gradient_" + std::to_string(gradients[static_cast<size_t>(rank)].size());
      const Output handle = VarHandle(place, DT_FLOAT, shape, "", name);
      const Output value = Fill(place, IntsConst(place, shape.dims()), Const(place, 1.0f));
      init.push_back(AssignVariable(place, handle, value));
      gradients[static_cast<size_t>(rank)].push_back(ReadVariable(place, handle));
    }
  }
  const auto summed = [&](int key, int64_t bucket_bytes) {
    AllReduceOptions options{
        .group = {.size = 2, .key = key, .members = {daemons.device(0), daemons.device(1)}}};
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, bucket_bytes);
    options.bucket_bytes = bucket_bytes;
    if (bucket_bytes > static_cast<int64_t>(bytes)) options.first_bucket_bytes = bucket_bytes;
    std::vector<Operation> ends;
    for (const Outputs& sums : Check(AllReduceReplicas(root, gradients, options))) {
      for (const Output& sum : sums) ends.push_back(sum);
    }
    return ends;
  };
  const std::vector<Operation> together = summed(1, int64_t{64} << 20),
                               buckets = summed(2, int64_t{4} << 20);
  Check(root.status());
  const std::unique_ptr<Session> session = Check(Session::Connect(daemons.cluster(), graph));
  Check(session->Run({}, {}, init).status());

  Report report(args);
  const auto compare = [&](const std::string& name, const std::vector<Operation>& ends,
                           bool with_peers) {
    if (!args.Wants(name)) return;
    const Callable call = Check(session->MakeCallable({}, {}, ends));
    const Side ours = Side::Of("ours", [&] {
      const double start = Now();
      for (int i = 0; i < kSteps; ++i) Check(session->RunCallable(call, {}).status());
      return (Now() - start) / kSteps * 1e3;
    });
    std::vector<Side> references = {
        Side::Of("raw UCX and one add", [&] { return raw.TransferAndAdd(bytes, kSteps) * 1e3; })};
    if (with_peers && gloo) {
      references.push_back(gloo->AsSide("gloo", "all_reduce", 4));
      references.back().goal = Goal{0.25, Goal::kMax};
    }
    if (with_peers && tensorflow) {
      references.push_back(tensorflow->AsSide("TensorFlow's AddN on a ps", "add_n", 4));
      references.back().goal = Goal{0.125, Goal::kMax};
    }
    report.Compare("all_reduce", "ms", {{name, Goal{2, Goal::kMax}}}, ours, references,
                   args.Repetitions(40));
  };
  compare("one bucket", together, true);
  compare("1 and 4 MiB buckets", buckets, false);
  Check(session->Close());
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
