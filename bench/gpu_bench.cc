// Training steps on one GPU (bench/gpu_steps.h), against the library calls of the same graph
// replayed as one CUDA graph, and against torch where it is; steps with programmatic dependent
// launch, against without; what a steady step allocates; the cost of a launch against a bare one;
// copies and a product against the libraries' own; layers that both our own kernels and cuDNN
// compute, by the way that a search takes, against both; traced steps, whose own kernels are
// compared with a copy; and how long each of cuBLASLt's algorithms takes. With --plan, and no GPU,
// what each node of a step moves.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/cuda_floor.h"
#include "bench/gpu_kernels.h"
#include "bench/gpu_losses.h"
#include "bench/gpu_plan.h"
#include "bench/gpu_steps.h"
#include "bench/gpu_trace.h"
#include "bench/gpu_training.h"
#include "bench/harness.h"
#include "client/registries.h"
#include "client/session.h"
#include "executor/gpu/plugin.h"
#include "executor/worker/task_status.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/executor/allocation_counter.h"
#include "train/variable_scope.h"

namespace monograph::bench {
namespace {

// How many launches such steps are. All of them are warm: what one still captures, or launches for
// want of a graph, is said to be a slower way.
void PrintLaunches(Training& training, const std::string& name, int steps) {
  const TaskStatus before = training.Counts();
  training.Steps(steps);
  const TaskStatus after = training.Counts();
  const uint64_t captured = after.cuda_graphs_captured - before.cuda_graphs_captured;
  const uint64_t refused = after.cuda_graph_fallbacks - before.cuda_graph_fallbacks;
  const auto of_step = [&](uint64_t now, uint64_t then) {
    return static_cast<double>(now - then) / steps;
  };
  std::printf("%s: a step replays %.4g CUDA graphs and launches %.4g nodes one by one\n",
              name.c_str(), of_step(after.cuda_graphs_replayed, before.cuda_graphs_replayed),
              of_step(after.cuda_nodes_launched, before.cuda_nodes_launched));
  if (captured + refused == 0) return;
  std::printf(
      "%s: %llu graphs were captured in %d steps of a warm session, and %llu not to be had:"
      " a slower way takes its place\n",
      name.c_str(), static_cast<unsigned long long>(captured), steps,
      static_cast<unsigned long long>(refused));
}

void CompareSteps(const Args& args, CudaFloors& floors, Report& report, const GpuStep& c,
                  Peer* torch) {
  Training training(c.model, c.images, c.mode);
  const std::unique_ptr<CudaFloor> floor =
      floors.Make(training.graph(), {.allow_tf32 = c.mode.allow_tf32});
  if (!floor->refused().empty())
    std::printf("%s: the reference lacks %s\n", c.name.c_str(), floor->refused().c_str());
  const auto batch = static_cast<double>(training.batch());
  constexpr int kSteps = 16;
  const Side ours = Side::Of("ours", [&] {
    const double start = Now();
    training.Steps(kSteps);
    return kSteps * batch / (Now() - start);
  });
  std::vector<Side> references;
  references.push_back(Side::Of("library calls as one CUDA graph", [&] {
    double seconds = 0;
    for (int i = 0; i < kSteps; ++i) seconds += floor->Step();
    return kSteps * batch / seconds;
  }));
  if (torch != nullptr) {
    for (Side& side : TorchSides(*torch, c)) references.push_back(std::move(side));
  }
  report.Compare("gpu", "images/s", {{c.name, kGoalOfCalls}}, ours, references,
                 args.Repetitions(15));
  PrintLaunches(training, c.name, kSteps);
}

// With programmatic dependent launch, against without.
void CompareProgrammatic(const Args& args, Report& report, const GpuStep& c,
                         const std::string& name) {
  GpuMode overlapped = c.mode;
  overlapped.programmatic = true;
  Training with(c.model, c.images, overlapped), without(c.model, c.images, c.mode);
  constexpr int kSteps = 16;
  const auto rate = [](Training& training) {
    const double start = Now();
    training.Steps(kSteps);
    return kSteps * static_cast<double>(training.batch()) / (Now() - start);
  };
  report.Compare("gpu", "images/s", {{name, Goal{1, Goal::kMin}}},
                 Side::Of("overlapped", [&] { return rate(with); }),
                 {Side::Of("one after the other", [&] { return rate(without); })},
                 args.Repetitions(15));
}

// What steps of a warm session take anew, each against one unit: none is the goal.
void CountAllocations(const Args& args, CudaFloors& floors, Report& report, const GpuStep& c,
                      const std::string& name) {
  Training training(c.model, c.images, c.mode);
  constexpr int kSteps = 50;
  training.Steps(4 * kSteps);
  const auto heap = [&](int steps) {
    const int64_t before = testing::Allocations();
    training.Steps(steps);
    return testing::Allocations() - before;
  };
  const Side one = Side::Of("one", [] { return 1.0; });
  report.Compare("gpu", "a step", {{name + ", of the heap", Goal{0, Goal::kMax}}},
                 Side::Of("ours",
                          [&] {  // without those of the call itself
                            const int64_t call = heap(kSteps);
                            return static_cast<double>(heap(2 * kSteps) - call) / kSteps;
                          }),
                 {one}, args.Repetitions(9));
  report.Compare("gpu", "bytes", {{name + ", of the device", Goal{0, Goal::kMax}}},
                 Side::Of("ours",
                          [&] {
                            const int64_t before = floors.FreeBytes();
                            training.Steps(kSteps);
                            return static_cast<double>(before - floors.FreeBytes());
                          }),
                 {one}, args.Repetitions(9));
}

// A row of small kernels: what a launch costs. Of an op that nothing fuses.
void CompareLaunches(const Args& args, CudaFloors& floors, Report& report, bool replayed,
                     const std::string& name) {
  constexpr int kOps = 2000;
  Graph graph = NewGraph();
  Scope root = Scope(&graph).WithDevice(kGpu0);
  const ModelVariable from = MakeVariable(root, "from", Zeros(root, Shape{1, 32}));
  const Output axis = Const(root, int32_t{0});
  Output x = from.value;
  for (int i = 0; i < kOps; ++i) x = Cumsum(root, x, axis);
  const Operation last = NoOp(root.WithControlDependencies({Operation(x)}));
  SessionOptions options = OnGpu({});
  options.gpu.cuda_graphs = replayed;
  auto session = Check(Session::Local(graph, options));
  Check(session->Run({}, {}, {from.initializer}).status());
  const Callable call = Check(session->MakeCallable({}, {}, {last}));
  const auto step = [&] { Check(session->RunCallable(call, {}).status()); };
  for (int i = 0; i < 3; ++i) step();
  report.Compare(
      "gpu", "us", {{name, Goal{1.3, Goal::kMax}}},
      Side::Of("ours, per op",
               [&] {
                 const double start = Now();
                 step();
                 return 1e6 * (Now() - start) / kOps;
               }),
      {Side::Of("bare launch", [&] { return 1e6 * floors.LaunchSeconds(kOps, replayed); })},
      args.Repetitions(30));
}

void CompareCopies(const Args& args, CudaFloors& floors, Report& report, bool to_device,
                   const std::string& name) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  Graph graph = NewGraph();
  Scope root(&graph);
  const Shape shape{kBytes / 4};
  const Output fed = Placeholder(root, DT_FLOAT, shape);
  const ModelVariable kept =
      MakeVariable(root.WithDevice(kGpu0), "kept", Zeros(root.WithDevice(kGpu0), shape));
  const Operation store = AssignVariable(root.WithDevice(kGpu0), kept.handle, fed);
  auto session = Check(Session::Local(graph, OnGpu({})));
  Check(session->Run({}, {}, {kept.initializer}).status());
  const Callable call = to_device ? Check(session->MakeCallable({fed}, {}, {store}))
                                  : Check(session->MakeCallable({}, {kept.value}));
  const Tensor value = Check(Tensor::Allocate(DT_FLOAT, shape));
  const std::vector<Tensor> feeds = to_device ? std::vector{value} : std::vector<Tensor>();
  const auto rate = [](double seconds) { return static_cast<double>(kBytes) / seconds * 1e-9; };
  report.Compare("gpu", "GB/s", {{name, Goal{0.9, Goal::kMin}}},
                 Side::Of("ours",
                          [&] {
                            const double start = Now();
                            Check(session->RunCallable(call, feeds).status());
                            return rate(Now() - start);
                          }),
                 {Side::Of("pinned cudaMemcpyAsync",
                           [&] {
                             return rate(floors.CopySeconds(
                                 kBytes, to_device ? CopyKind::kToDevice : CopyKind::kToHost));
                           })},
                 args.Repetitions(30));
}

// Of every product of a step, how long cuBLASLt's algorithms take, the first of its ranking, which
// the deterministic mode takes, first.
void TimeProducts(CudaFloors& floors, const GpuStep& c, const std::string& name) {
  Training training(c.model, c.images, c.mode);
  double first = 0, fastest = 0;
  std::printf(
      "%s: m x n x k of each product, how many there are, and the us of up to %d algorithms\n\n"
      "| product | in a step | fastest | us |\n| --- | --- | --- | --- |\n",
      name.c_str(), kMostAlgorithms);
  for (const ProductTimes& one :
       floors.TimeProducts(training.graph(), {.allow_tf32 = c.mode.allow_tf32})) {
    if (one.us.empty()) {
      std::printf("| %s | %d | | cuBLASLt refuses it; a slower way takes its place |\n",
                  one.what.c_str(), one.count);
      continue;
    }
    const auto best = std::min_element(one.us.begin(), one.us.end());
    std::printf("| %s | %d | %d of %zu | ", one.what.c_str(), one.count,
                static_cast<int>(best - one.us.begin()) + 1, one.us.size());
    for (const double us : one.us) std::printf("%.1f ", us);
    std::printf("|\n");
    first += one.count * one.us.front();
    fastest += one.count * *best;
  }
  std::printf("\n%s: a step's take %.1f us by the first algorithms, %.1f us by the fastest\n",
              name.c_str(), first, fastest);
}

struct Row {
  std::string name;
  std::function<void(CudaFloors&, Report&)> run;
  bool with_torch = false;  // torch_gpu.py is a reference
};

std::vector<Row> AllRows(const Args& args, const std::function<Peer*()>& torch) {
  std::vector<Row> rows;
  const std::vector<GpuStep> steps = GpuSteps();
  for (const GpuStep& c : steps) {
    rows.push_back({c.name,
                    [&args, c, torch](CudaFloors& floors, Report& report) {
                      CompareSteps(args, floors, report, c, torch());
                    },
                    true});
  }
  for (const GpuStep& c : {steps[0], steps[4]}) {
    const std::string name = "allocations, " + c.name.substr(0, c.name.find(','));
    rows.push_back({name, [&args, c, name](CudaFloors& floors, Report& report) {
                      CountAllocations(args, floors, report, c, name);
                    }});
  }
  for (const GpuStep& c : {steps[2], steps[5]}) {
    const std::string name = "programmatic launch, " + c.name.substr(0, c.name.find(','));
    rows.push_back({name, [&args, c, name](CudaFloors&, Report& report) {
                      CompareProgrammatic(args, report, c, name);
                    }});
  }
  for (const GpuStep& c : LossSteps(args.small)) {
    const std::string name = "losses, " + c.name;
    // Normalised by a batch, a difference in the last place grows a hundredfold in few steps.
    const int count = c.name == "CNN" ? 8 : 3;
    rows.push_back({name, [&args, c, count, name](CudaFloors&, Report&) {
                      CompareLosses(args, c, count, name);
                    }});
  }
  for (const bool replayed : {false, true}) {
    const std::string name = replayed ? "launch, replayed" : "launch, one by one";
    rows.push_back({name, [&args, replayed, name](CudaFloors& floors, Report& report) {
                      CompareLaunches(args, floors, report, replayed, name);
                    }});
  }
  for (const bool to_device : {true, false}) {
    const std::string name = to_device ? "copy to the GPU, 64 MiB" : "copy from the GPU, 64 MiB";
    rows.push_back({name, [&args, to_device, name](CudaFloors& floors, Report& report) {
                      CompareCopies(args, floors, report, to_device, name);
                    }});
  }
  rows.push_back({"copy on the GPU, 256 MiB", [&args](CudaFloors& floors, Report& report) {
                    CompareMove(args, floors, report, "copy on the GPU, 256 MiB");
                  }});
  for (const DType dtype : {DT_FLOAT, DT_BFLOAT16}) {
    const std::string name = "product of 8192^3, " + std::string(DTypeName(dtype));
    rows.push_back({name, [&args, dtype, name](CudaFloors& floors, Report& report) {
                      CompareProduct(args, floors, report, dtype, name);
                    }});
  }
  for (const GpuStep& c : {steps[12], steps[13]}) {
    const std::string model = c.name.substr(0, c.name.find(','));
    const std::string traced = "trace, " + model, products = "algorithms of products, " + model;
    rows.push_back({traced, [&args, c, traced](CudaFloors& floors, Report& report) {
                      CompareWithCopy(args, floors, report, c, traced);
                    }});
    rows.push_back({products, [c, products](CudaFloors& floors, Report&) {
                      TimeProducts(floors, c, products);
                    }});
  }
  for (const char* op :
       {"MaxPool", "MaxPoolGrad", "FusedBatchNormV3", "FusedBatchNormGradV3", "Softmax"}) {
    for (const DType dtype : {DT_FLOAT, DT_BFLOAT16}) {
      const std::string name = "kernel, " + std::string(op) + ", " + std::string(DTypeName(dtype));
      rows.push_back({name, [&args, op, dtype, name](CudaFloors& floors, Report& report) {
                        CompareKernel(args, floors, report, op, dtype, name);
                      }});
    }
  }
  return rows;
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "gpu_bench: training steps, allocations, launches, copies and "
                                "kernels on a GPU against the same library calls, bare launches "
                                "and copies of CUDA's; without a GPU it says so and ends");
  SetLogLevel(LogLevel::kWarning);
  if (args.plan) {
    EmulateGpu(argv);
    for (const GpuStep& step : GpuSteps()) {
      if (!args.Wants(step.name)) continue;
      Training training(step.model, step.images, step.mode);
      PrintPlan(step.name, training.Step(), [&] { return training.Trace(); });
    }
    return 0;
  }
  std::unique_ptr<Peer> torch;
  bool torch_awaited = false;
  std::vector<Row> wanted;
  for (Row& row : AllRows(args, [&] {
         if (torch && !std::exchange(torch_awaited, true) && !torch->WaitReady()) torch.reset();
         return torch.get();
       })) {
    if (args.Wants(row.name)) wanted.push_back(std::move(row));
  }
  if (args.list) return 0;
  // It has the environment of this program, which the opening of CUDA here changes.
  if (std::any_of(wanted.begin(), wanted.end(), [](const Row& row) { return row.with_torch; }))
    torch = Peer::Start(args.torch, "torch_gpu.py", {"--seconds=1"});
  (void)ListGpus();  // before the reference opens CUDA: as in every program
  std::string why;
  CudaFloors* const floors = OpenCudaFloors(&why);
  if (floors == nullptr) {
    std::printf("gpu: nothing is measured: %s\n", why.c_str());
    return 0;
  }
  Report report(args);
  for (const Row& row : wanted) row.run(*floors, report);
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
