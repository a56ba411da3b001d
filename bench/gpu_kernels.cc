// KernelCase makes a graph in which a node stands several times, on data of its own, and runs it in
// a session with a given way to compute the layer: kSteps steps in one call, so that the host's
// part counts for nothing.
#include "bench/gpu_kernels.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "bench/gpu_trace.h"
#include "bench/gpu_training.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "train/variable_scope.h"

namespace monograph::bench {
namespace {

// A layer's kernel, several times on data of its own in one step: as a search takes it, against our
// own alone and against cuDNN's call.
class KernelCase {
 public:
  static constexpr int kCopies = 8, kSteps = 20;

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
    const std::unique_ptr<CudaFloor> floor = Calls(floors, op);
    Steps searched(*this, ""), own(*this, "own");
    const std::string way = searched.way();
    std::printf("%s: %s\n", name.c_str(),
                way.empty() ? "our own kernel, without a search: cuDNN has no call that is the same"
                            : ("a search takes " + way).c_str());
    std::vector<Side> references{Side::Of("our own kernel", [&] { return own.Microseconds(); })};
    if (!floor->refused().empty() || floor->calls() == 0) {
      std::printf("%s: the library has no such call: %s\n", name.c_str(), floor->refused().c_str());
    } else {
      // Where none is the same, of as many bytes: pooling with padding alike on both sides.
      references.push_back(Side::Of(way.empty() ? "cuDNN's nearest call" : "cuDNN", [&] {
        double seconds = 0;
        for (int i = 0; i < kSteps; ++i) seconds += floor->Step();
        return 1e6 * seconds / (kSteps * floor->calls());
      }));
    }
    report.Compare("gpu", "us", {{name, Goal{1, Goal::kMax}}},
                   Side::Of("ours", [&] { return searched.Microseconds(); }), references,
                   args.Repetitions(15));
  }

  // The library's calls for the measured nodes, which are of this op.
  std::unique_ptr<CudaFloor> Calls(CudaFloors& floors, const std::string& op) const {
    return floors.Make(graph_, {.only = op});
  }

  // The measured nodes in a session of their own, by `way` (ops/gpu/layer.h); empty: by a search.
  class Steps {
   public:
    Steps(KernelCase& of, const std::string& way) : nodes_(of.measured_.size()) {
      const Operation all = NoOp(of.root_.WithControlDependencies(of.measured_));
      Check(of.root_.status());
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
      return 1e6 * (Now() - start) / (kSteps * static_cast<double>(nodes_));
    }
    // What the search found; empty: it had no choice.
    std::string way() const {
      std::ifstream file(file_);
      std::string line, found;
      while (std::getline(file, line)) found = line.substr(line.rfind('\t') + 1);
      return found;
    }

   private:
    const size_t nodes_;
    std::filesystem::path file_;
    std::unique_ptr<Session> session_;
    Callable call_;
  };

 private:
  Graph graph_ = NewGraph();
  const Scope root_;
  std::vector<Operation> initializers_, measured_;
};

}  // namespace

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

void CompareMove(const Args& args, CudaFloors& floors, Report& report, const std::string& name) {
  const int64_t bytes = args.small ? int64_t{1} << 14 : int64_t{256} << 20;
  KernelCase c;
  for (int i = 0; i < KernelCase::kCopies; ++i)
    c.Measure("Neg", {c.Numbers({bytes / 4}, DT_FLOAT)}, {{"T", DT_FLOAT}});
  KernelCase::Steps steps(c, "");
  const auto rate = [&](double us) { return 2e-3 * static_cast<double>(bytes) / us; };
  report.Compare(
      "gpu", "GB/s", {{name, kGoalOfCopy}},
      Side::Of("ours, Neg", [&] { return rate(steps.Microseconds()); }),
      {Side::Of("cudaMemcpyAsync",
                [&] { return rate(1e6 * floors.CopySeconds(bytes, CopyKind::kOnDevice)); })},
      args.Repetitions(15));
}

void CompareProduct(const Args& args, CudaFloors& floors, Report& report, DType dtype,
                    const std::string& name) {
  const int64_t side = args.small ? 32 : 8192;
  KernelCase c;
  c.Measure("MatMul", {c.Numbers({side, side}, dtype), c.Numbers({side, side}, dtype)},
            {{"T", dtype}});
  const std::unique_ptr<CudaFloor> floor = c.Calls(floors, "MatMul");
  if (floor->calls() == 0) Die(name + ": cuBLASLt refuses it: " + floor->refused());
  KernelCase::Steps steps(c, "");
  const double operations = 2.0 * static_cast<double>(side * side * side);
  const auto rate = [&](double seconds) { return 1e-12 * operations / seconds; };
  report.Compare("gpu", "TFLOP/s", {{name, kGoalOfCalls}},
                 Side::Of("ours", [&] { return rate(1e-6 * steps.Microseconds()); }),
                 {Side::Of("cuBLASLt",
                           [&] {
                             double seconds = 0;
                             for (int i = 0; i < KernelCase::kSteps; ++i) seconds += floor->Step();
                             return rate(seconds / KernelCase::kSteps);
                           })},
                 args.Repetitions(15));
}

}  // namespace monograph::bench
