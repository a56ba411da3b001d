// A step that is aborted while a kernel runs waits a moment, not for the kernel. Each kernel is run
// on one thread with inputs that keep it busy for a while, once to its end, and once with an abort
// on the way; counted is the thread's processor time, so that other programs do not matter. A
// second test names the ops that have no such run.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "executor/step/outcome.h"
#include "graph/structural_ops.h"
#include "tests/ops/long_runs.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

constexpr bool kSlowBuild =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

// Processor time of a run, and what of it came after the abort: 0 where it ended before.
struct Times {
  double all = 0, after = 0;
};

// Aborts once the run has taken `abort_at` seconds of processor time.
Times Measure(const LongRun& run, double abort_at) {
  Graph graph(&Ops());
  ResourceManager resources;
  KernelRunner first(&Kernels(), {.pools = nullptr, .resources = &resources});
  std::vector<Tensor> inputs =
      run.with_resources == nullptr
          ? run.inputs()
          : run.with_resources([&](const char* op, std::vector<Tensor> its, Attrs attrs) {
              auto made = testing::RunOp(first, Ops(), op, std::move(its), std::move(attrs));
              EXPECT_TRUE(made.ok()) << made.status();
              return made.ok() ? *std::move(made) : std::vector<Tensor>(2);
            });
  // These outlive the run: giving back many texts, or a resource, takes time, too.
  std::vector<Tensor> kept;
  for (const Tensor& input : inputs) {
    if (input.dtype() == DT_STRING || input.dtype() == DT_RESOURCE) kept.push_back(input);
  }
  std::vector<Endpoint> sources;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto attrs = std::make_shared<const Attrs>(
        Attrs{{"T", inputs[i].dtype()}, {"index", static_cast<int64_t>(i)}});
    const NodeId node =
        graph.AddNode({.name = "in" + std::to_string(i), .op = kArgOp, .attrs = attrs}).value();
    graph.SetShape({node, 0}, inputs[i].shape());
    sources.push_back({node, 0});
  }
  const Result<NodeId> node = graph.AddNode({.name = "long",
                                             .op = run.op,
                                             .inputs = sources,
                                             .attrs = std::make_shared<const Attrs>(run.attrs)});
  EXPECT_TRUE(node.ok()) << node.status();
  if (!node.ok()) return {};
  StepOutcome outcome;
  KernelRunner::Options options;
  options.outcome = &outcome;
  options.resources = &resources;
  KernelRunner runner(&Kernels(), options);
  clockid_t clock;
  EXPECT_EQ(pthread_getcpuclockid(pthread_self(), &clock), 0);
  const double begin = Seconds(clock);
  std::atomic<double> aborted = -1;
  std::atomic<bool> over = false;
  std::thread watch;
  if (abort_at < kNever) {
    watch = std::thread([&] {
      while (!over && Seconds(clock) - begin < abort_at)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (over) return;
      aborted = Seconds(clock);
      outcome.Settle(StepOutcome::kAborted);
    });
  }
  const auto result = runner.Run(graph, *node, std::move(inputs));
  const double end = Seconds(clock);
  over = true;
  if (watch.joinable()) watch.join();
  if (aborted < 0) {
    EXPECT_TRUE(result.ok()) << result.status();
  }
  return {end - begin, aborted < 0 ? 0 : end - aborted};
}

class LongKernels : public ::testing::TestWithParam<LongRun> {};

TEST_P(LongKernels, EndSoonAfterAnAbort) {
  constexpr double kSoon = kSlowBuild ? 0.5 : 0.1;  // docs/reliability.md promises it
  double all = 0, after = 0;
  // Pages that have yet to be there, and other programs, make one run longer than the next.
  for (int attempt = 0; attempt < 10; ++attempt) {
    all = Measure(GetParam(), kNever).all;
    after = Measure(GetParam(), all / 4).after;
    if (after < kSoon && after < all / 2) break;
  }
  EXPECT_LT(after, kSoon) << "of " << all;
  EXPECT_LT(after, all / 2) << "of " << all;
}

std::vector<LongRun> Runs() {
  const auto f = [](const Shape& shape) { return Zeros(DT_FLOAT, shape); };
  const auto i = [](const Shape& shape) { return Zeros(DT_INT32, shape); };
  const std::vector<int64_t> ones{1, 1, 1, 1}, two{1, 2, 2, 1}, window{1, 3, 3, 1};
  const std::string valid = "VALID", same = "SAME";
  const int64_t row = kRow;
  return {
      {"Softmax",
       [=] {
         return std::vector{f({1, row})};
       }},
      {"Softmax",
       [=] {
         return std::vector{Zeros(DT_HALF, {1, row})};
       },
       {},
       " of halves"},
      {"LogSoftmax",
       [=] {
         return std::vector{Zeros(DT_DOUBLE, {1, row})};
       }},
      {"SparseSoftmaxCrossEntropyWithLogits",
       [=] {
         return std::vector{f({1, row}), i({1})};
       }},
      {"SoftmaxCrossEntropyWithLogits",
       [=] {
         return std::vector{f({1, row}), f({1, row})};
       }},
      {"L2Loss", [=] { return std::vector{f({60 * kMillion})}; }},
      {"InTopKV2",
       [=] {
         return std::vector{f({1, 6 * row}), i({1}), Tensor::Scalar(3)};
       }},
      {"InTopKV2",
       [=] {
         return std::vector{f({row, 2}), i({row}), Tensor::Scalar(3)};
       },
       {},
       " of many rows"},
      {"Sum",
       [=] {
         return std::vector{f({10 * row}), Ints({0})};
       }},
      {"Max",
       [=] {
         return std::vector{f({2, 5 * row}), Ints({1})};
       },
       {},
       " of long rows"},
      {"Prod",
       [=] {
         return std::vector{f({2, 200, row / 20}), Ints({1})};
       },
       {},
       " of columns"},
      {"Mean",
       [=] {
         return std::vector{Zeros(DT_HALF, {3 * row}), Ints({0})};
       }},
      {"Mean",
       [=] {
         return std::vector{f({2, 3 * row}), Ints({0})};
       },
       {},
       " of two rows"},
      {"ArgMax",
       [=] {
         return std::vector{f({6 * row}), Tensor::Scalar(0)};
       }},
      {"Cumsum",
       [=] {
         return std::vector{f({4 * row}), Tensor::Scalar(0)};
       }},
      {"Cumprod",
       [=] {
         return std::vector{Zeros(DT_HALF, {row}), Tensor::Scalar(0)};
       }},
      {"Unique", [=] { return std::vector{Numbers(2 * kMillion)}; }, {{"out_idx", DT_INT32}}},
      {"ListDiff",
       [=] {
         return std::vector{Numbers(2 * kMillion), Numbers(2 * kMillion)};
       }},
      {"OneHot",
       [=] {
         return std::vector{i({2 * row}), Tensor::Scalar(3), Tensor::Scalar(1.0f),
                            Tensor::Scalar(0.0f)};
       }},
      {"DynamicPartition",
       [=] {
         return std::vector{f({row, 1}), i({row})};
       },
       {{"num_partitions", int64_t{2}}}},
      {"DynamicStitch",
       [=] {
         return std::vector{Numbers(row), f({row, 1})};
       },
       {{"N", int64_t{1}}}},
      {"GatherV2",
       [=] {
         return std::vector{f({5}), i({3 * row}), Tensor::Scalar(0)};
       }},
      {"UnsortedSegmentSum",
       [=] {
         return std::vector{f({2 * row}), i({2 * row}), Tensor::Scalar(1)};
       }},
      {"Range",
       [=] {
         return std::vector{Tensor::Scalar(0), Tensor::Scalar(static_cast<int32_t>(8 * row)),
                            Tensor::Scalar(1)};
       }},
      {"InvertPermutation", [=] { return std::vector{Numbers(2 * row)}; }},
      {"CheckNumerics", [=] { return std::vector{f({8 * row})}; }, {{"message", std::string("m")}}},
      {"Transpose",
       [=] {
         return std::vector{f({2, 16, row / 8}), Ints({0, 2, 1})};
       }},
      {"ReverseV2",
       [=] {
         return std::vector{f({3 * row}), Ints({0})};
       }},
      {"ConcatV2",
       [=] {
         return std::vector{f({4 * row}), f({4 * row}), Tensor::Scalar(0)};
       },
       {{"N", int64_t{2}}}},
      {"Pack",
       [=] {
         return std::vector{f({2 * row}), f({2 * row})};
       },
       {{"N", int64_t{2}}, {"axis", int64_t{1}}}},
      {"Pad",
       [=] {
         Tensor pads = i({1, 2});
         pads.data<int32_t>()[1] = 1;
         return std::vector{f({5 * row}), pads};
       }},
      {"PadV2",
       [=] {
         Tensor pads = i({1, 2});
         pads.data<int32_t>()[1] = 1;
         return std::vector{f({5 * row}), pads, Tensor::Scalar(1.0f)};
       }},
      {"Tile",
       [=] {
         return std::vector{f({row / 10}), Ints({60})};
       }},
      {"StridedSlice",
       [=] {
         return std::vector{f({6 * row}), Ints({0}), Ints({static_cast<int32_t>(6 * row)}),
                            Ints({2})};
       }},
      {"Fill",
       [=] {
         return std::vector{Ints({static_cast<int32_t>(8 * row)}), Tensor::Scalar(1.0f)};
       }},
      {"BroadcastTo",
       [=] {
         return std::vector{f({1, 1}), Ints({2, static_cast<int32_t>(3 * row)})};
       }},
      {"Cast", [=] { return std::vector{f({6 * row})}; }, {{"DstT", DT_HALF}}},
      {"Exp", [=] { return std::vector{f({5 * row})}; }},
      {"Pow",
       [=] {
         return std::vector{f({row}), f({row})};
       }},
      {"AddN",
       [=] {
         return std::vector{f({3 * row}), f({3 * row}), f({3 * row})};
       },
       {{"N", int64_t{3}}}},
      {"AddV2",
       [=] {
         return std::vector{f({2, 1, row}), f({2, 2, 1})};
       },
       {},
       " of shapes that differ"},
      {"SelectV2",
       [=] {
         return std::vector{Zeros(DT_BOOL, {3 * row}), f({3 * row}), f({3 * row})};
       }},
      {"Elu", [=] { return std::vector{f({5 * row})}; }},
      {"BiasAdd",
       [=] {
         return std::vector{f({2, 2 * row}), f({2 * row})};
       }},
      {"BiasAddGrad",
       [=] {
         return std::vector{f({row, 5})};
       }},
      {"RandomStandardNormal",
       [=] { return std::vector{Ints({static_cast<int32_t>(row)})}; },
       {{"dtype", DT_FLOAT}}},
      {"MatMul",
       [=] {
         return std::vector{i({300, 1000}), i({1000, 1000})};
       }},
      {"MatMul",
       [=] {
         return std::vector{Zeros(DT_HALF, {30, 10000}), Zeros(DT_HALF, {10000, 1000})};
       },
       {},
       " of halves"},
      {"MatMul",
       [=] {
         return std::vector{f({2000, 2000}), f({2000, 2000})};
       },
       {},
       " by oneDNN"},
      {"BatchMatMulV2",
       [=] {
         return std::vector{f({500000, 2, 2}), f({500000, 2, 2})};
       }},
      {"Conv2D",
       [=] {
         return std::vector{Zeros(DT_DOUBLE, {1, 100, 100, 16}), Zeros(DT_DOUBLE, {3, 3, 16, 16})};
       },
       {{"strides", ones}, {"padding", same}}},
      {"Conv2D",
       [=] {
         return std::vector{f({256, 32, 32, 16}), f({3, 3, 16, 32})};
       },
       {{"strides", ones}, {"padding", same}},
       " by oneDNN"},
      {"Conv2DBackpropFilter",
       [=] {
         return std::vector{Zeros(DT_DOUBLE, {1, 100, 100, 16}), Ints({3, 3, 16, 16}),
                            Zeros(DT_DOUBLE, {1, 100, 100, 16})};
       },
       {{"strides", ones}, {"padding", same}}},
      {"Conv2DBackpropFilter",
       [=] {
         return std::vector{f({512, 32, 32, 16}), Ints({3, 3, 16, 32}), f({512, 32, 32, 32})};
       },
       {{"strides", ones}, {"padding", same}},
       " by oneDNN"},
      {"Conv2DBackpropInput",
       [=] {
         return std::vector{Ints({1, 100, 100, 16}), Zeros(DT_DOUBLE, {3, 3, 16, 16}),
                            Zeros(DT_DOUBLE, {1, 100, 100, 16})};
       },
       {{"strides", ones}, {"padding", same}}},
      {"MaxPool",
       [=] {
         return std::vector{f({64, 100, 100, 32})};
       },
       {{"ksize", window}, {"strides", ones}, {"padding", valid}}},
      {"MaxPool",
       [=] {
         return std::vector{Zeros(DT_DOUBLE, {1, 1000, 1000, 8})};
       },
       {{"ksize", window}, {"strides", ones}, {"padding", valid}},
       " of doubles"},
      {"AvgPoolGrad",
       [=] {
         return std::vector{Ints({1, 1000, 1000, 8}), Zeros(DT_DOUBLE, {1, 500, 500, 8})};
       },
       {{"ksize", two}, {"strides", two}, {"padding", valid}}},
      {"FusedBatchNormV3",
       [=] {
         return std::vector{f({100, 100, 100, 32}), f({32}), f({32}), f({0}), f({0})};
       },
       {{"U", DT_FLOAT}}},
  };
}

std::vector<LongRun> AllRuns() {
  std::vector<LongRun> all = Runs();
  for (auto more : {ElementwiseRuns(), NumberRuns(), TextRuns(), ResourceRuns()})
    std::move(more.begin(), more.end(), std::back_inserter(all));
  std::vector<LongRun> same;
  for (const auto& [like, ops] : SameInputs()) {
    for (const LongRun& run : all) {
      if (std::string_view(run.op) != like || *run.note != '\0') continue;
      for (const char* op : ops) {
        same.push_back(run);
        same.back().op = op;
      }
    }
  }
  std::move(same.begin(), same.end(), std::back_inserter(all));
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, LongKernels, ::testing::ValuesIn(AllRuns()));

// Each op with a kernel for CPUs has a run above, or a reason why not.
TEST(LongKernelsCoverage, EachOpWithACpuKernelHasARunOrAReason) {
  std::set<std::string> run;
  for (const LongRun& one : AllRuns()) run.insert(one.op);
  std::map<std::string, Exception> exceptions;
  for (const auto& [op, exception] : Exceptions())
    EXPECT_TRUE(exceptions.emplace(op, exception).second) << op << " has two reasons";
  std::set<std::string> with_kernel;
  for (const KernelRegistry::Entry* entry : Kernels().All()) {
    const std::string& op = entry->def.op;
    if (entry->def.device != kCpu || !with_kernel.insert(op).second) continue;
    EXPECT_NE(run.contains(op), exceptions.contains(op))
        << op
        << (run.contains(op) ? " has a run, and a reason to have none"
                             : " has neither a run nor a reason to have none");
  }
  for (const auto& [op, exception] : exceptions) {
    EXPECT_TRUE(with_kernel.contains(op)) << op << " has a reason, but no kernel";
    EXPECT_FALSE(exception.why.empty()) << op;
    EXPECT_TRUE(exception.like.empty() || run.contains(exception.like))
        << op << " is said to be like " << exception.like << ", which has no run";
  }
}

}  // namespace
}  // namespace monograph
