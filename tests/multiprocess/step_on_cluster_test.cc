// Steps over a parameter server and two workers: what they compute, what crosses between tasks, and
// what a trace of them shows.
#include <algorithm>
#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "client/registries.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/chrome_trace.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "train/optimizer.h"

namespace monograph {
namespace {

// The daemons are shared by the tests of this file; each has a graph and a session of its own.
class StepOnCluster : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new TestCluster({.flags = {"--inter_op_parallelism_threads=2"}});
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  StepOnCluster() : graph_(NewGraph()), root_(&graph_) {}

  Session& session(SessionOptions options = {}) {
    if (session_ == nullptr) {
      EXPECT_TRUE(root_.ok()) << root_.status();
      session_ = cluster_->Connect(graph_, std::move(options));
    }
    return *session_;
  }
  Scope On(const char* device) const { return root_.WithDevice(device); }

  static TestCluster* cluster_;
  Graph graph_;
  Scope root_;
  std::unique_ptr<Session> session_;
};
TestCluster* StepOnCluster::cluster_ = nullptr;

TEST_F(StepOnCluster, AGraphOverThreeTasksComputesWhatOneTaskDoes) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {-1, 3});
  const Output w = Const(On(kPs), Shape{3, 2}, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f});
  const Output left = MatMul(On(kWorker0), x, w),
               right = MatMul(On(kWorker1), Neg(On(kWorker1), x), w);
  const Output sum = AddN(On(kPs), {left, right, left});
  auto values =
      session().Run({{x, Tensor::FromValues<float>({2, 3}, {1, 0, 0, 0, 1, 1})}}, {sum, right});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(SameBits(values->at(0), Tensor::FromValues<float>({2, 2}, {1, 2, 8, 10})));
  EXPECT_TRUE(SameBits(values->at(1), Tensor::FromValues<float>({2, 2}, {-1, -2, -8, -10})));
}

TEST_F(StepOnCluster, TensorsOfEverySizeAndTypeCrossFromTaskToTask) {
  // Fed at the client, passed ps -> worker 0 -> worker 1, and fetched.
  auto relay = [this](DType dtype) {
    const Output in = Placeholder(root_, dtype, PartialShape());
    return std::pair(in, Identity(On(kWorker1), Identity(On(kWorker0), Identity(On(kPs), in))));
  };
  std::vector<std::pair<Output, Output>> relays;
  std::vector<Feed> feeds;
  std::vector<Output> fetches;
  auto add = [&](Tensor value) {
    const auto [in, out] = relay(value.dtype());
    feeds.emplace_back(in, std::move(value));
    fetches.push_back(out);
  };
  for (const int64_t count : {int64_t{1}, int64_t{16} << 10, int64_t{2} << 20, int64_t{3},
                              int64_t{70001}}) {  // 4 B, 64 KiB, 8 MiB, odd ones
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 977) - 0.25f;
    add(Tensor::FromValues<float>(count == 1 ? Shape{} : Shape{count},
                                  std::span<const float>(values)));
  }
  add(Tensor::FromValues<float>({0}, {}));
  add(Tensor::FromValues<int64_t>({2, 0, 3}, {}));
  add(Tensor::FromValues<bool>({3}, {true, false, true}));
  add(Tensor::Vector<int64_t>({-1, int64_t{1} << 40}));
  add(Tensor::FromValues<double>({1, 1}, {3.25}));
  add(Tensor::String("one string"));
  Tensor strings = Tensor::Allocate(DT_STRING, Shape{3}).value();
  strings.strings()[0] = "";
  strings.strings()[1] = std::string(100000, 'x');
  strings.strings()[2] = std::string("a\0b", 3);
  add(strings);
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto values = session().Run(feeds, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < feeds.size(); ++i) {
      EXPECT_TRUE(SameBits(values->at(i), feeds[i].second))
          << "tensor " << i << ": " << feeds[i].second.shape().ToString();
    }
  }
}

TEST_F(StepOnCluster, AControlEdgeHoldsAcrossTasks) {
  const ModelVariable v = MakeVariable(On(kPs), "control_edge", Const(On(kPs), 1.0f));
  const Operation add = AssignAddVariable(On(kPs), v.handle, Const(On(kPs), 4.0f));
  const Output elsewhere =
      Identity(On(kWorker0).WithControlDependencies({add}), Const(On(kWorker0), 7.0f));
  const Output read = ReadVariable(On(kPs).WithControlDependencies({elsewhere}), v.handle);
  ASSERT_TRUE(session().Run({}, {}, {v.initializer}).ok());
  auto values = session().Run({}, {read, elsewhere});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 5.0f);
  EXPECT_EQ(values->at(1).scalar<float>(), 7.0f);
}

TEST_F(StepOnCluster, ManyStepsInFlightEachGetTheirOwnValues) {
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Output y =
      Add(On(kWorker1), Mul(On(kWorker0), x, Const(On(kWorker0), 2.0f)), Const(On(kWorker1), 1.0f));
  auto callable = session().MakeCallable({x}, {y});
  ASSERT_TRUE(callable.ok()) << callable.status();
  constexpr int kSteps = 500;
  std::atomic<int> right = 0, ended = 0;
  std::promise<void> all;
  for (int i = 0; i < kSteps; ++i) {
    const Tensor value = Tensor::Scalar(static_cast<float>(i));
    session().RunAsync(
        *callable, std::span(&value, 1), [&, i](const Result<std::vector<Tensor>>& result) {
          if (result.ok() &&
              result.value()[0].scalar<float>() == 2.0f * static_cast<float>(i) + 1.0f)
            ++right;
          if (++ended == kSteps) all.set_value();
        });
  }
  ASSERT_EQ(all.get_future().wait_for(30s), std::future_status::ready)
      << ended << " of " << kSteps << " steps ended";
  EXPECT_EQ(right, kSteps);
}

TEST_F(StepOnCluster, SeveralThreadsMayRunStepsAtOnce) {
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Output y = Add(On(kWorker1), Square(On(kWorker0), x), x);
  Session& shared = session();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const float value = static_cast<float>(100 * t + i);
        auto values = shared.Run({{x, Tensor::Scalar(value)}}, {y});
        if (!values.ok() || values->at(0).scalar<float>() != value * value + value) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(StepOnCluster, AStepWhoseTimeIsUpNamesTheTaskThatStillRuns) {
  const LongKernel kernel(root_, kWorker1);
  std::chrono::milliseconds timeout = 100ms;
  // 800^3 products of 64-bit integers: some tenths of a second at least; twice the side until it is
  // too long.
  for (int side = 800; side < 20000;) {
    auto values = session().Run({{kernel.side, Tensor::Scalar<int32_t>(side)}}, {kernel.sum}, {},
                                {.timeout = timeout});
    if (values.ok()) {
      side *= 2;
      continue;
    }
    // Where much else runs, the step may have come no further than what is multiplied.
    if (values.status().message().find("node 'Fill'") != std::string::npos && timeout < 10s) {
      timeout *= 2;
      continue;
    }
    ExpectError(values.status(), Code::kDeadlineExceeded,
                {" s; tasks still running: /job:worker/replica:0/task:1 (node "
                 "'long_product' (MatMul))"});
    break;
  }
  auto small = session().Run({{kernel.side, Tensor::Scalar<int32_t>(8)}}, {kernel.sum});
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->at(0).scalar<int64_t>(), 8 * 8 * 8);
}

TEST_F(StepOnCluster, ATraceShowsEveryTaskOpSendAndReceiveOnOneClock) {
  const Output x = Placeholder(root_.WithOpName("fed"), DT_FLOAT, {-1});
  const Output a = Neg(On(kWorker0).WithOpName("first_op"), x);
  const Output b = Square(On(kWorker1).WithOpName("second_op"), a);
  const Output c = Add(On(kPs).WithOpName("third_op"), b, b);
  RunOptions options;
  options.trace = true;
  const Tensor value = Tensor::Vector<float>({1, 2, 3});
  double previous_end = 0;
  nlohmann::json trace;
  for (int i = 0; i < 3; ++i) {
    RunMetadata metadata;
    auto values = session().Run({{x, value}}, {c}, {}, options, &metadata);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_GT(metadata.step_id, 0u);
    trace = nlohmann::json::parse(metadata.trace_json, nullptr, false);
    ASSERT_FALSE(trace.is_discarded()) << metadata.trace_json;
  }
  const nlohmann::json& events = trace.is_array() ? trace : trace.at("traceEvents");
  std::set<std::string> processes;
  std::map<std::string, std::pair<double, double>> when;  // node: begin, end
  int arrows_out = 0, arrows_in = 0;
  for (const auto& event : events) {
    const std::string phase = event.value("ph", "");
    if (phase == "M" && event.value("name", "") == "process_name")
      processes.insert(event["args"].value("name", ""));
    if (phase == "X")
      when[event.value("name", "")] = {event.value("ts", 0.0),
                                       event.value("ts", 0.0) + event.value("dur", 0.0)};
    if (phase == "s") ++arrows_out;
    if (phase == "f") ++arrows_in;
  }
  for (const char* task : {"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0",
                           "/job:worker/replica:0/task:1"}) {
    EXPECT_EQ(processes.count(task), 1u) << task << " in " << trace.dump();
  }
  for (const char* node : {"first_op", "second_op", "third_op"}) {
    ASSERT_EQ(when.count(node), 1u) << node << " in " << trace.dump();
    EXPECT_LE(previous_end, when[node].first + 0.01)
        << node << " begins before its input was there (us)";
    previous_end = when[node].second;
  }
  EXPECT_GE(arrows_out, 2);
  EXPECT_GE(arrows_in, 2);
}

TEST_F(StepOnCluster, EveryArrowOfATraceHasTwoEndsAndEveryThreadAName) {
  // Fed and fetched at several tasks: the client's ends of these transfers are in no trace.
  const Output x = Placeholder(root_, DT_FLOAT, {-1});
  const Output a = Neg(On(kWorker0), x), b = Square(On(kWorker1), a), c = Add(On(kPs), b, x);
  const Output here = Neg(root_.WithDevice("/job:client"), b);
  RunOptions options;
  options.trace = true;
  for (int i = 0; i < 4; ++i) {
    RunMetadata metadata;
    auto values = session().Run({{x, Tensor::Vector<float>({1, 2})}}, {a, b, c, here}, {}, options,
                                &metadata);
    ASSERT_TRUE(values.ok()) << values.status();
    const TraceFacts facts = CheckTrace(metadata.trace_json);
    EXPECT_GE(facts.arrows, 3) << metadata.trace_json;
    EXPECT_EQ(facts.tasks, 4) << metadata.trace_json;
  }
}

}  // namespace
}  // namespace monograph
