// The step executor against a hand-written ready-count loop, in one interleaved run; only ratios
// count.
//
// The loop holds pending counts in one array that is copied per step, calls each op through a
// pointer and goes on with the first ready successor. Graphs: a chain; layers of 64 with two random
// inputs each (like a training graph); one node fanned out to all and in again. Ops: nothing at all
// behind control edges, and a sum of scalars, each in a tensor of its own.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "executor/device.h"
#include "executor/plan/plan.h"
#include "executor/resource_manager.h"
#include "executor/step/step_executor.h"
#include "executor/thread_pools.h"
#include "graph/shape_inference.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;
using Edges = std::vector<std::pair<int, int>>;

class NoOp : public Kernel {
 public:
  explicit NoOp(const KernelConstruction&) {}
  Status Compute(KernelContext&) override { return Status(); }
};

class Zero : public Kernel {
 public:
  explicit Zero(const KernelConstruction&) : value_(Tensor::Scalar(0.0f)) {}
  Status Compute(KernelContext& c) override {
    c.set_output(0, value_);
    return Status();
  }

 private:
  const Tensor value_;
};

class Sum : public Kernel {
 public:
  explicit Sum(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, Shape()));
    float sum = 1;
    for (const Tensor& x : c.inputs()) sum += x.scalar<float>();
    *y->data<float>() = sum;
    return Status();
  }
};

Edges Chain(int n) {
  Edges edges;
  for (int i = 1; i < n; ++i) edges.emplace_back(i - 1, i);
  return edges;
}
Edges Layered(int n) {
  constexpr int kWidth = 64;
  std::mt19937 random(1);
  Edges edges;
  for (int i = kWidth; i < n; ++i) {
    const int first = (i / kWidth - 1) * kWidth;
    const int a = first + static_cast<int>(random() % kWidth);
    const int b = first + static_cast<int>(random() % kWidth);
    edges.emplace_back(a, i);
    if (b != a) edges.emplace_back(b, i);
  }
  return edges;
}
Edges Fan(int n) {
  Edges edges;
  for (int i = 1; i < n - 1; ++i) {
    edges.emplace_back(0, i);
    edges.emplace_back(i, n - 1);
  }
  return edges;
}

// What an executor costs at the very least.
class HandWritten {
 public:
  HandWritten(int n, const Edges& edges)
      : first_(static_cast<size_t>(n) + 1),
        initial_(static_cast<size_t>(n)),
        pending_(static_cast<size_t>(n)),
        values_(static_cast<size_t>(n)) {
    for (const auto& [from, to] : edges) {
      ++first_[static_cast<size_t>(from) + 1];
      ++initial_[static_cast<size_t>(to)];
    }
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) first_[i + 1] += first_[i];
    targets_.resize(edges.size());
    std::vector<uint32_t> at(first_.begin(), first_.end() - 1);
    for (const auto& [from, to] : edges) targets_[at[static_cast<size_t>(from)]++] = to;
    for (int i = n; i-- > 0;) {
      if (initial_[static_cast<size_t>(i)] == 0) roots_.push_back(i);
    }
  }
  void Run() {
    std::memcpy(pending_.data(), initial_.data(), initial_.size() * sizeof(int));
    stack_.assign(roots_.begin(), roots_.end());
    while (!stack_.empty()) {
      int node = stack_.back();
      stack_.pop_back();
      while (node >= 0) {
        op_(values_.data(), node);
        int ready = -1;
        for (uint32_t k = first_[static_cast<size_t>(node)];
             k < first_[static_cast<size_t>(node) + 1]; ++k) {
          const int target = targets_[k];
          std::atomic_ref<int> pending(pending_[static_cast<size_t>(target)]);
          if (pending.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
          if (ready < 0) {
            ready = target;
          } else {
            stack_.push_back(target);
          }
        }
        node = ready;
      }
    }
  }

 private:
  static void Op(float* values, int i) { values[i] += 1; }
  std::vector<uint32_t> first_;
  std::vector<int> targets_, initial_, pending_, roots_, stack_;
  std::vector<float> values_;
  void (*volatile op_)(float*, int) = &Op;
};

struct Task {
  OpRegistry ops;
  KernelRegistry kernels;
  ResourceManager resources;
  ThreadPools pools;
  std::vector<std::unique_ptr<Device>> devices;

  explicit Task(int threads) : pools(threads, 1) {
    ops.Add(OpDef("NoOp").Shape(NoOutputs));
    ops.Add(OpDef("Zero").Output("y: float").Shape(ScalarShape));
    ops.Add(OpDef("Sum")
                .Input("x: N * float")
                .Output("y: float")
                .Attr("N: int >= 1")
                .Shape(ScalarShape));
    kernels.Add<NoOp>({.op = "NoOp", .cost = KernelCost::kCheap});
    kernels.Add<Zero>({.op = "Zero", .cost = KernelCost::kCheap});
    kernels.Add<Sum>({.op = "Sum", .cost = KernelCost::kCheap});
    devices =
        MakeCpuDevices(DeviceName::Parse("/job:localhost/replica:0/task:0").value(), 1).value();
  }

  std::shared_ptr<const Plan> Compile(int n, const Edges& edges, bool scalars) {
    Graph graph(&ops);
    const std::string device = devices[0]->name();
    std::vector<std::vector<Endpoint>> inputs(static_cast<size_t>(n));
    std::vector<std::vector<NodeId>> controls(static_cast<size_t>(n));
    for (const auto& [from, to] : edges) {
      inputs[static_cast<size_t>(to)].push_back({from, 0});
      controls[static_cast<size_t>(to)].push_back(from);
    }
    for (int i = 0; i < n; ++i) {
      const auto k = static_cast<size_t>(i);
      const std::string name = "n" + std::to_string(i);
      NodeSpec spec{.name = name, .op = "NoOp", .device = device};
      if (!scalars) {
        spec.control_inputs = controls[k];
      } else {
        spec.op = inputs[k].empty() ? "Zero" : "Sum";
        spec.inputs = inputs[k];
      }
      graph.AddNode(spec).value();
    }
    PlanOptions options;
    options.kernels = &kernels;
    options.devices = {devices[0].get()};
    options.pools = &pools;
    options.resources = &resources;
    return CompilePlan(graph, options).value();
  }
};

void RunStep(const std::shared_ptr<const Plan>& plan) {
  std::atomic<int> over{0};
  auto step = StepExecutor::Prepare(plan, 1, nullptr, [&over](const Status& status) {
    MG_CHECK(status.ok());
    over.store(1, std::memory_order_release);
    over.notify_one();
  });
  step->Start(/*inline_all=*/true);
  for (int spins = 0; over.load(std::memory_order_acquire) == 0;) {
    if (++spins < 100'000) {
      __builtin_ia32_pause();
    } else {
      over.wait(0, std::memory_order_acquire);
    }
  }
  // `over` is on this stack: the notifying thread must have let go of the step.
  while (step.use_count() > 1) __builtin_ia32_pause();
}

template <typename Fn>
double NsPerOp(int n, int steps, Fn run) {
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) run();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / n / steps;
}

int Main(int argc, char** argv) {
  const bench::Args args = bench::Args::Parse(
      argc, argv,
      "executor_bench: ns per op of the step executor against a hand-written ready-count loop");
  constexpr int kOps = 10'000, kSteps = 20;
  std::unique_ptr<Task> tasks[] = {std::make_unique<Task>(1), std::make_unique<Task>(2)};
  const std::pair<const char*, Edges> graphs[] = {
      {"chain", Chain(kOps)}, {"layered", Layered(kOps)}, {"fan", Fan(kOps)}};
  bench::Report report(args);
  for (const bool scalars : {false, true}) {
    for (const auto& [shape, edges] : graphs) {
      const std::string name = std::string(scalars ? "scalar sum, " : "no-op, ") + shape;
      if (!args.Wants(name)) continue;
      HandWritten reference(kOps, edges);
      const std::shared_ptr<const Plan> one = tasks[0]->Compile(kOps, edges, scalars);
      const std::shared_ptr<const Plan> two = tasks[1]->Compile(kOps, edges, scalars);
      report.Compare("executor", "ns/op", {{name + ", 1 thread"}, {name + ", 2 threads"}},
                     {"ours",
                      [&] {
                        return std::optional(
                            std::vector<double>{NsPerOp(kOps, kSteps, [&] { RunStep(one); }),
                                                NsPerOp(kOps, kSteps, [&] { RunStep(two); })});
                      }},
                     {{"hand-written, 1 thread",
                       [&] {
                         const double ns = NsPerOp(kOps, kSteps, [&] { reference.Run(); });
                         return std::optional(std::vector<double>{ns, ns});
                       }}},
                     args.Repetitions(15));
    }
  }
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
