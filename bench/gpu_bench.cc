// Training steps on one GPU (bench/gpu_steps.h), against the library calls of the same graph
// replayed as one CUDA graph, and against torch where it is; steps with programmatic dependent
// launch, against without; what a steady step allocates; the cost of a launch against a bare one;
// copies against pinned cudaMemcpyAsync; and layers that both our own kernels and cuDNN compute, by
// the way that a search takes, against both. With --plan, and no GPU, what each node of a step
// moves.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/cuda_floor.h"
#include "bench/gpu_plan.h"
#include "bench/gpu_steps.h"
#include "bench/harness.h"
#include "client/registries.h"
#include "client/session.h"
#include "executor/gpu/plugin.h"
#include "graph/prune.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/executor/allocation_counter.h"
#include "train/collections.h"
#include "train/optimizer.h"
#include "train/variable_scope.h"

namespace monograph::bench {
namespace {

constexpr char kGpu0[] = "/job:localhost/replica:0/task:0/device:GPU:0";

void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

SessionOptions OnGpu(const GpuMode& mode) {
  SessionOptions options;
  options.gpu.allow_tf32 = mode.allow_tf32;
  options.gpu.deterministic = mode.deterministic;
  options.gpu.programmatic_dependent_launch = mode.programmatic;
  options.gpu.allow_growth = true;  // the reference and torch need memory, too
  return options;
}

// A model that trains on a batch that lies on the GPU.
class Training {
 public:
  Training(const ModelFn& model, const Shape& images, DType images_type, const GpuMode& mode)
      : batch_(images[0]) {
    Scope root = Scope(&graph_).WithSeed(1).WithDevice(kGpu0);
    Collections collections;
    std::vector<Operation> initializers;
    const auto held = [&](const char* name, Tensor value) {
      const ModelVariable variable = MakeVariable(root, name, Const(root, std::move(value)));
      initializers.push_back(variable.initializer);
      return variable.value;
    };
    Tensor labels = Check(Tensor::Allocate(DT_INT32, Shape{batch_}));
    for (int64_t i = 0; i < batch_; ++i) labels.data<int32_t>()[i] = static_cast<int32_t>(i % 10);
    Tensor pixels = Check(Tensor::Allocate(images_type, images));
    for (int64_t i = 0; i < pixels.elements(); ++i)
      pixels.data<float>()[i] = static_cast<float>((i * 2654435761u) % 1024) / 1024.f;
    const Outputs batch{held("images", std::move(pixels)), held("labels", std::move(labels))};
    ScopedModelVariables variables(VariableScope(root, &collections));
    const Outputs results = Check(model(root, batch, variables));
    const std::vector<ModelVariable> trained = TrainableVariables(collections);
    for (const ModelVariable& variable : trained) initializers.push_back(variable.initializer);
    const Operation train =
        Check(Momentum(0.01, 0.9).Minimize(root, results[0], trained, &initializers));
    Check(root.status());
    session_ = Check(Session::Local(graph_, OnGpu(mode)));
    Check(session_->Run({}, {}, initializers).status());
    call_ = Check(session_->MakeCallable({}, {results[0]}, {train}));
    loss_ = results[0].endpoint;
    train_ = train.id;
    Steps(3);
  }

  const Graph& graph() const { return graph_; }
  // What of it a step needs.
  Graph Step() const { return Check(Prune(graph_, {}, {&loss_, 1}, {&train_, 1}, nullptr)); }
  int64_t batch() const { return batch_; }
  void Steps(int count) { Check(session_->RunCallable(call_, {}, {.steps = count}).status()); }
  std::string Trace() {
    RunMetadata metadata;
    Check(session_->RunCallable(call_, {}, {.trace = true}, &metadata).status());
    return std::move(metadata.trace_json);
  }

 private:
  Graph graph_ = NewGraph();
  const int64_t batch_;
  std::unique_ptr<Session> session_;
  Callable call_;
  Endpoint loss_;
  NodeId train_ = -1;
};

void CompareSteps(const Args& args, CudaFloors& floors, Report& report, const GpuStep& c,
                  Peer* torch) {
  Training training(c.model, c.images, DT_FLOAT, c.mode);
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
}

// With programmatic dependent launch, against without.
void CompareProgrammatic(const Args& args, Report& report, const GpuStep& c,
                         const std::string& name) {
  GpuMode overlapped = c.mode;
  overlapped.programmatic = true;
  Training with(c.model, c.images, DT_FLOAT, overlapped),
      without(c.model, c.images, DT_FLOAT, c.mode);
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
  Training training(c.model, c.images, DT_FLOAT, c.mode);
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
                           [&] { return rate(floors.PinnedCopySeconds(kBytes, to_device)); })},
                 args.Repetitions(30));
}

// A layer's kernel, several times on data of its own in one step: as a search takes it, against our
// own alone and against cuDNN's call.
class KernelCase {
 public:
  static constexpr int kCopies = 8;

  KernelCase() : root_(Scope(&graph_).WithSeed(1).WithDevice(kGpu0)) {}
  const Scope& root() const { return root_; }

  // A tensor that lies on the GPU before the step; `value` is computed once.
  Output Held(const Output& value) {
    const ModelVariable variable =
        MakeVariable(root_, "held" + std::to_string(initializers_.size()), value);
    initializers_.push_back(variable.initializer);
    return variable.value;
  }
  Output Numbers(const Shape& shape, DType dtype) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    return Held(Cast(root_, RandomUniform(root_, IntsConst(root_, dims), DT_FLOAT), dtype));
  }
  // A node that is measured.
  void Measure(const std::string& op, const std::vector<Output>& inputs, const Attrs& attrs) {
    measured_.push_back(root_.Add(op, inputs, attrs));
  }

  void Compare(const Args& args, CudaFloors& floors, Report& report, const std::string& op,
               const std::string& name) {
    const Operation all = NoOp(root_.WithControlDependencies(measured_));
    Check(root_.status());
    const std::unique_ptr<CudaFloor> floor = floors.Make(graph_, {.only = op});
    Steps searched(*this, all, ""), own(*this, all, "own");
    std::printf("%s: a search takes %s\n", name.c_str(), searched.way().c_str());
    std::vector<Side> references{Side::Of("our own kernel", [&] { return own.Microseconds(); })};
    if (!floor->refused().empty() || floor->calls() == 0) {
      std::printf("%s: the library has no such call: %s\n", name.c_str(), floor->refused().c_str());
    } else {
      references.push_back(Side::Of("cuDNN", [&] {
        double seconds = 0;
        for (int i = 0; i < kSteps; ++i) seconds += floor->Step();
        return 1e6 * seconds / (kSteps * floor->calls());
      }));
    }
    report.Compare("gpu", "us", {{name, Goal{1, Goal::kMax}}},
                   Side::Of("ours", [&] { return searched.Microseconds(); }), references,
                   args.Repetitions(15));
  }

 private:
  static constexpr int kSteps = 20;

  // The measured nodes in a session of their own, by `way` (ops/gpu/layer.h); empty: by a search.
  class Steps {
   public:
    Steps(const KernelCase& of, const Operation& all, const std::string& way) {
      static int files = 0;
      file_ = std::filesystem::temp_directory_path() /
              ("gpu_bench_" + std::to_string(getpid()) + "_" + std::to_string(files++));
      if (!way.empty()) {
        std::ofstream file(file_);
        for (const char* family : {"pool", "softmax", "norm"})
          file << family << " 1\t*\t" << way << "\n";
      }
      SessionOptions options = OnGpu({});
      options.gpu.algorithm_cache = file_;
      session_ = Check(Session::Local(of.graph_, options));
      for (const Operation& initializer : of.initializers_)  // some need others
        Check(session_->Run({}, {}, {initializer}).status());
      call_ = Check(session_->MakeCallable({}, {}, {all}));
      Run();
    }
    ~Steps() { std::filesystem::remove(file_); }
    void Run() { Check(session_->RunCallable(call_, {}, {.steps = kSteps}).status()); }
    double Microseconds() {
      const double start = Now();
      Run();
      return 1e6 * (Now() - start) / (kSteps * kCopies);
    }
    // What the search found, and where it had no choice.
    std::string way() const {
      std::ifstream file(file_);
      std::string line, found = "our own kernel: cuDNN has no such layer";
      while (std::getline(file, line)) found = line.substr(line.rfind('\t') + 1);
      return found;
    }

   private:
    std::filesystem::path file_;
    std::unique_ptr<Session> session_;
    Callable call_;
  };

  Graph graph_ = NewGraph();
  const Scope root_;
  std::vector<Operation> initializers_, measured_;
};

// The shapes are those of ResNet-50's first layers.
void CompareKernel(const Args& args, CudaFloors& floors, Report& report, const std::string& op,
                   DType dtype, const std::string& name) {
  KernelCase c;
  const Shape wide{64, 112, 112, 64}, half_size{64, 56, 56, 64}, channels{64};
  const Attrs window{{"T", dtype},
                     {"ksize", std::vector<int64_t>{1, 3, 3, 1}},
                     {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                     {"padding", std::string("SAME")}};
  for (int i = 0; i < KernelCase::kCopies; ++i) {
    if (op == "Softmax") {
      c.Measure(op, {c.Numbers({8192, 1000}, dtype)}, {{"T", dtype}});
      continue;
    }
    const Output x = c.Numbers(wide, dtype);
    if (op == "MaxPool") {
      c.Measure(op, {x}, window);
    } else if (op == "MaxPoolGrad") {
      const Output y = c.Held(MaxPool(c.root(), x, {1, 3, 3, 1}, {1, 2, 2, 1}, "SAME"));
      c.Measure(op, {x, y, c.Numbers(half_size, dtype)}, window);
    } else if (op == "FusedBatchNormV3") {
      const Output scale = c.Numbers(channels, DT_FLOAT),
                   none = Const(c.root(), Tensor::Vector<float>({}));
      c.Measure(op, {x, scale, scale, none, none}, {{"T", dtype}, {"U", DT_FLOAT}});
    } else {
      const Output v = c.Numbers(channels, DT_FLOAT), dy = c.Numbers(wide, dtype);
      c.Measure(op, {dy, x, v, v, v, v}, {{"T", dtype}, {"U", DT_FLOAT}});
    }
  }
  c.Compare(args, floors, report, op, name);
}

struct Row {
  std::string name;
  std::function<void(CudaFloors&, Report&)> run;
};

std::vector<Row> AllRows(const Args& args, const std::function<Peer*()>& torch) {
  std::vector<Row> rows;
  const std::vector<GpuStep> steps = GpuSteps();
  for (const GpuStep& c : steps) {
    rows.push_back({c.name, [&args, c, torch](CudaFloors& floors, Report& report) {
                      CompareSteps(args, floors, report, c, torch());
                    }});
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
                                "and pinned copies; without a GPU it says so and ends");
  SetLogLevel(LogLevel::kWarning);
  if (args.plan) {
    EmulateGpu(argv);
    for (const GpuStep& step : GpuSteps()) {
      if (!args.Wants(step.name)) continue;
      Training training(step.model, step.images, DT_FLOAT, step.mode);
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
