// One training step of the MNIST CNN on one thread: our graph, kernels and executor, without a
// session, against the same oneDNN primitives called back to back; with bfloat16 against ours in
// float, too. All run in one process, in turns; only ratios count.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness.h"
#include "bench/onednn_cnn.h"
#include "executor/device.h"
#include "executor/plan/plan.h"
#include "executor/resource_manager.h"
#include "executor/step/step_executor.h"
#include "executor/thread_pools.h"
#include "graph/gradients.h"
#include "graph/prune.h"
#include "graph/scope.h"
#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/register.h"
#include "ops/rewrites/fuse.h"
#include "ops/shape/shape.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

using bench::CnnPattern;

// Processor time of the calling thread.
double CpuNow() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Check(const Status& status) {
  if (!status.ok()) bench::Die(status.ToString());
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

class Ours {
 public:
  // `compute`: the type of what lies between the layers; variables and loss are float.
  Ours(int64_t batch, int64_t fc, DType compute = DT_FLOAT) : pools_(1, 1), compute_(compute) {
    DefineOps(&ops_);
    RegisterCpuKernels(&kernels_);
    devices_ =
        Check(MakeCpuDevices(Check(DeviceName::Parse("/job:localhost/replica:0/task:0")), 1));

    Graph init(&ops_), train(&ops_);
    init_ = std::make_unique<Scope>(&init);
    Scope root(&train);
    Tensor x = Check(Tensor::Allocate(DT_FLOAT, {batch, 28, 28, 1})),
           y = Check(Tensor::Allocate(DT_INT32, {batch}));
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = CnnPattern(static_cast<size_t>(i), 1);
    for (int64_t i = 0; i < batch; ++i) y.data<int32_t>()[i] = static_cast<int32_t>(i % 10);

    Output h = Cast(root, Const(root.WithOpName("images"), x), compute);
    h = ConvLayer(root.SubScope("conv1"), h, 1, 32);
    h = ConvLayer(root.SubScope("conv2"), h, 32, 64);
    h = Reshape(root, h, {batch, 7 * 7 * 64});
    h = Relu(root.SubScope("fc1"), DenseLayer(root.SubScope("fc1"), h, 7 * 7 * 64, fc));
    h = Cast(root, DenseLayer(root.SubScope("fc2"), h, fc, 10), DT_FLOAT);
    const Output loss = SparseSoftmaxCrossEntropyWithLogits(root.WithOpName("loss"), h,
                                                            Const(root.WithOpName("labels"), y));
    Tensor share = Check(Tensor::Allocate(DT_FLOAT, {batch}));
    std::fill_n(share.data<float>(), batch, 1.f / static_cast<float>(batch));
    const Output mean = Const(root.WithOpName("mean"), share);
    const Outputs gradients = Check(AddGradients(
        root.SubScope("gradients"), std::vector<Output>{loss}, values_, std::vector<Output>{mean}));
    const Scope adam = root.SubScope("adam");
    const auto scalar = [&](const char* name, float value) {
      return Const(adam.WithOpName(name), value);
    };
    const Output power1 = scalar("beta1_power", 0.9f), power2 = scalar("beta2_power", 0.999f),
                 lr = scalar("lr", 1e-4f), beta1 = scalar("beta1", 0.9f),
                 beta2 = scalar("beta2", 0.999f), epsilon = scalar("epsilon", 1e-8f);
    std::vector<NodeId> updates;
    for (size_t i = 0; i < handles_.size(); ++i) {
      const Shape shape = handles_[i].attrs().Get<PartialShape>("shape").AsShape();
      const std::string name(handles_[i].name());
      const Output m = Variable(adam, name + "/m", shape, 0),
                   v = Variable(adam, name + "/v", shape, 0);
      updates.push_back(ResourceApplyAdam(adam, handles_[i].output(0), m, v, power1, power2, lr,
                                          beta1, beta2, epsilon, gradients[i])
                            .id);
    }
    Check(root.status());
    Check(init_->status());
    init_.reset();
    Compile(std::move(init));
    Step();
    Compile(Check(FuseOps(Check(Prune(train, {}, {}, updates, nullptr)))));
  }

  void Step(StepTrace* trace = nullptr) {
    bool finished = false;
    auto step = StepExecutor::Prepare(
        plan_, ++step_id_, nullptr,
        [&](const Status& status) {
          Check(status);
          finished = true;
        },
        trace);
    step->Start(/*inline_all=*/true);
    if (!finished) Check(Internal("a step on one thread did not finish in its Start"));
  }

  // The least of so many steps for each node: what else the machine does is left out.
  void PrintNodes(int steps) {
    std::map<std::string, double> least;
    for (int i = 0; i < steps; ++i) {
      StepTrace trace;
      Step(&trace);
      for (const TraceEvent& e : trace.Events()) {
        const double ms = static_cast<double>(e.end_ns - e.start_ns) * 1e-6;
        const auto [known, fresh] = least.try_emplace(e.op + " " + e.name, ms);
        known->second = std::min(known->second, ms);
      }
    }
    std::vector<std::pair<double, std::string>> rows;
    for (const auto& [name, ms] : least) rows.push_back({ms, name});
    std::sort(rows.rbegin(), rows.rend());
    double sum = 0;
    for (const auto& [ms, name] : rows) sum += ms;
    std::printf("%zu nodes, %.3f ms inside kernels\n", rows.size(), sum);
    for (const auto& [ms, name] : rows) {
      if (ms >= 0.01) std::printf("  %8.3f ms  %s\n", ms, name.c_str());
    }
  }

 private:
  // A handle in the graph that is built, and its first value in the initialisation.
  Output Variable(const Scope& scope, const std::string& name, const Shape& shape, float scale) {
    Tensor value = Check(Tensor::Allocate(DT_FLOAT, shape));
    for (int64_t i = 0; i < value.elements(); ++i)
      value.data<float>()[i] = CnnPattern(static_cast<size_t>(i), scale);
    AssignVariable(*init_, VarHandle(*init_, DT_FLOAT, shape, "", name), Const(*init_, value));
    return VarHandle(scope, DT_FLOAT, shape, "", name);
  }
  Output Weights(const Scope& scope, const char* name, const Shape& shape) {
    const Output handle = Variable(scope.WithOpName(name), scope.prefix() + name, shape, 0.05f);
    handles_.push_back(handle);
    values_.push_back(ReadVariable(scope, handle));
    return Cast(scope, values_.back(), compute_);
  }
  Output ConvLayer(const Scope& s, const Output& x, int64_t in, int64_t out) {
    const Output w = Weights(s, "w", {5, 5, in, out}), b = Weights(s, "b", {out});
    return MaxPool(s, Relu(s, BiasAdd(s, Conv2D(s, x, w, {1, 1, 1, 1}, "SAME"), b)), {1, 2, 2, 1},
                   {1, 2, 2, 1}, "SAME");
  }
  Output DenseLayer(const Scope& s, const Output& x, int64_t in, int64_t out) {
    const Output w = Weights(s, "w", {in, out}), b = Weights(s, "b", {out});
    return BiasAdd(s, MatMul(s, x, w), b);
  }
  void Compile(Graph graph) {
    const DeviceIndex device = Check(graph.InternDevice(devices_[0]->name()));
    for (NodeId id = 0; id < graph.num_nodes(); ++id) graph.SetDevice(id, device);
    plan_ = Check(CompilePlan(graph, {.kernels = &kernels_,
                                      .devices = {devices_[0].get()},
                                      .pools = &pools_,
                                      .resources = &resources_}));
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPools pools_;
  const DType compute_;
  ResourceManager resources_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Scope> init_;
  std::vector<Operation> handles_;
  Outputs values_;
  std::shared_ptr<const Plan> plan_;
  uint64_t step_id_ = 0;
};

int Main(int argc, char** argv) {
  const bench::Args args =
      bench::Args::Parse(argc, argv,
                         "cnn_bench: a training step of the MNIST CNN on one thread, graph, "
                         "kernels and executor alone, in float and in bfloat16, against oneDNN "
                         "back to back; --profile prints the time of every node");
  constexpr int64_t kBatch = 100, kFc = 1024;
  Ours ours(kBatch, kFc), narrow(kBatch, kFc, DT_BFLOAT16);
  if (args.profile) {
    ours.PrintNodes(100);
    narrow.PrintNodes(100);
    return 0;
  }
  bench::OnednnCnn reference(kBatch, kFc), narrow_reference(kBatch, kFc, /*bfloat16=*/true);
  // One step at a time, so that what else the machine does hits both; processor time shows what is
  // left of that.
  const auto step = [](auto* side) {
    return [side] {
      const double start = bench::Now(), cpu = CpuNow();
      side->Step();
      const double wall = bench::Now() - start;
      return std::optional(std::vector<double>{kBatch / wall, kBatch / (CpuNow() - cpu)});
    };
  };
  bench::Report report(args);
  report.Compare(
      "cnn", "images/s", {{"step", bench::Goal{0.90, bench::Goal::kMin}}, {"step, processor time"}},
      {"ours", step(&ours)}, {{"oneDNN back to back", step(&reference)}}, args.Repetitions(60));
  report.Compare("cnn", "images/s", {{"step, bfloat16"}, {"step, bfloat16, processor time"}},
                 {"ours", step(&narrow)},
                 {{"oneDNN back to back", step(&narrow_reference)}, {"ours in float", step(&ours)}},
                 args.Repetitions(60));
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
