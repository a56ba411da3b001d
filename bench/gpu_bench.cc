// Training steps on one GPU: the MNIST CNN and ResNet-50, against the library calls of the same
// graph replayed as one CUDA graph, and against torch where it is; the cost of a launch against a
// bare one; copies against pinned cudaMemcpyAsync.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/cuda_floor.h"
#include "bench/harness.h"
#include "client/collections.h"
#include "client/optimizer.h"
#include "client/registries.h"
#include "client/session.h"
#include "client/variable_scope.h"
#include "examples/models/mnist_cnn.h"
#include "examples/models/resnet.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/variable/variable.h"

namespace monograph::bench {
namespace {

constexpr char kGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";

void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

SessionOptions OnGpu(bool allow_tf32) {
  SessionOptions options;
  options.gpu.allow_tf32 = allow_tf32;
  options.gpu.deterministic = false;
  return options;
}

// A model that trains on a batch that lies on the GPU.
class Training {
 public:
  Training(const ModelFn& model, const Shape& images, DType images_type, bool allow_tf32)
      : batch_(images[0]) {
    Scope root = Scope(&graph_).WithSeed(1).WithDevice(kGpu);
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
    session_ = Check(Session::Local(graph_, OnGpu(allow_tf32)));
    Check(session_->Run({}, {}, initializers).status());
    call_ = Check(session_->MakeCallable({}, {results[0]}, {train}));
    Steps(3);
  }

  const Graph& graph() const { return graph_; }
  int64_t batch() const { return batch_; }
  void Steps(int count) { Check(session_->RunCallable(call_, {}, {.steps = count}).status()); }

 private:
  Graph graph_ = NewGraph();
  const int64_t batch_;
  std::unique_ptr<Session> session_;
  Callable call_;
};

struct Case {
  std::string name;
  ModelFn model;
  Shape images;
  bool allow_tf32;
  std::string torch;  // the peer's case
};

void CompareSteps(const Args& args, CudaFloors& floors, Report& report, const Case& c,
                  Peer* torch) {
  if (!args.Wants(c.name)) return;
  Training training(c.model, c.images, DT_FLOAT, c.allow_tf32);
  const std::unique_ptr<CudaFloor> floor =
      floors.Make(training.graph(), {.allow_tf32 = c.allow_tf32});
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
  if (torch != nullptr && !c.torch.empty()) {
    for (const char* how : {"eager", "compiled"})
      references.push_back(torch->AsSide(std::string("torch ") + how, c.torch + ", " + how, 3));
  }
  report.Compare("gpu", "images/s", {{c.name, Goal{0.95, Goal::kMin}}}, ours, references,
                 args.Repetitions(15));
}

// A row of ReLUs on few elements: what a launch costs.
void CompareLaunches(const Args& args, CudaFloors& floors, Report& report) {
  constexpr int kOps = 2000;
  for (const bool replayed : {false, true}) {
    const std::string name = replayed ? "launch, replayed" : "launch, one by one";
    if (!args.Wants(name)) continue;
    Graph graph = NewGraph();
    Scope root = Scope(&graph).WithDevice(kGpu);
    std::vector<Operation> init;
    const ModelVariable from =
        MakeVariable(root, "from", Const(root, Check(Tensor::Allocate(DT_FLOAT, Shape{32}))));
    Output x = from.value;
    for (int i = 0; i < kOps; ++i) x = Relu(root, x);
    const Operation last = NoOp(root.WithControlDependencies({Operation(x)}));
    SessionOptions options = OnGpu(false);
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
}

void CompareCopies(const Args& args, CudaFloors& floors, Report& report) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  for (const bool to_device : {true, false}) {
    const std::string name = to_device ? "copy to the GPU, 64 MiB" : "copy from the GPU, 64 MiB";
    if (!args.Wants(name)) continue;
    Graph graph = NewGraph();
    Scope root(&graph);
    const Shape shape{kBytes / 4};
    const Output fed = Placeholder(root, DT_FLOAT, shape);
    const ModelVariable kept =
        MakeVariable(root.WithDevice(kGpu), "kept", Zeros(root.WithDevice(kGpu), shape));
    const Operation store = AssignVariable(root.WithDevice(kGpu), kept.handle, fed);
    auto session = Check(Session::Local(graph, OnGpu(false)));
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
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "gpu_bench: training steps, launches and copies on a GPU against "
                                "the same library calls, bare "
                                "launches and pinned copies; without a GPU it says so and ends");
  SetLogLevel(LogLevel::kWarning);
  std::string why;
  CudaFloors* const floors = OpenCudaFloors(&why);
  if (floors == nullptr) {
    std::printf("gpu: nothing is measured: %s\n", why.c_str());
    return 0;
  }
  auto torch = Peer::Start(args.torch, "torch_gpu.py", {"--seconds=1"});
  if (torch && !torch->WaitReady()) torch.reset();
  Report report(args);
  const examples::MnistCnn cnn{.dropout = 0};
  examples::ResNet resnet, resnet16;
  resnet16.compute = DT_BFLOAT16;
  constexpr int64_t kImages = 64, kCnnImages = 100;
  const Shape photos{kImages, resnet.side, resnet.side, 3};
  for (const Case& c : {Case{"CNN, batch 100, float32",
                             cnn.Training(),
                             {kCnnImages, 28 * 28},
                             false,
                             "CNN, batch 100, float32"},
                        Case{"ResNet-50, batch 64, TF32", resnet.Training(), photos, true,
                             "ResNet-50, batch 64, TF32"},
                        Case{"ResNet-50, batch 64, bfloat16", resnet16.Training(), photos, true,
                             "ResNet-50, batch 64, bfloat16"}}) {
    CompareSteps(args, *floors, report, c, torch.get());
  }
  CompareLaunches(args, *floors, report);
  CompareCopies(args, *floors, report);
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
