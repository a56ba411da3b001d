// Training steps of a GPU in which one call of CUDA fails: each call of a step, one at a time, when
// the step runs node by node, is captured, and is replayed. Either the step fails and names the
// call, or its loss and the variables have the bits of a step without CUDA graphs. A step that
// failed leaves each variable as it was before or is after the step, or without a value; the next
// steps are right, or say that the GPU is lost. The GPU is the emulated one (tests/gpu/emulated).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "examples/models/mnist_cnn.h"
#include "examples/models/resnet.h"
#include "executor/gpu/plugin.h"
#include "executor/worker/task_status.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/variable/variable.h"
#include "tests/gpu/emulated/injected_failures.h"
#include "train/collections.h"
#include "train/optimizer.h"
#include "train/variable_scope.h"

namespace monograph::testing {
namespace {

// CUDA's codes.
constexpr int kInvalidValue = 1, kNoMemory = 2, kLaunchFailure = 719, kUnsupported = 900;
// Steps: the first runs node by node and measures its memory, the second is captured, the third is
// the first that is replayed. After it all variables get their initial values, in other places: the
// step behind that is captured anew.
constexpr size_t kMeasured = 1, kCaptured = 2, kReplayed = 3, kUpdated = 4, kSteps = 4;

class GpuFailures : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(WhyNoCuda(), "");
    ASSERT_TRUE(failures_.Found()) << "the GPUs here are not emulated";
  }

  void Build(const ModelFn& model, const Shape& images, const Optimizer& optimizer) {
    const Scope root = Scope(&graph_).WithSeed(1).WithDevice("/device:GPU:0");
    Scope tower = root;
    images_ = Placeholder(root, DT_FLOAT, images);
    labels_ = Placeholder(root, DT_INT32, {images[0]});
    Collections collections;
    ScopedModelVariables variables(VariableScope(root, &collections));
    const Outputs results = model(tower, Outputs{images_, labels_}, variables).value();
    loss_ = results[0];
    std::vector<Operation> initializers;
    train_ =
        optimizer.Minimize(root, loss_, TrainableVariables(collections), &initializers).value();
    initialize_ = GlobalVariablesInitializer(root, collections);
    // Of the model and the optimizer.
    const NodeId nodes = graph_.num_nodes();  // before those that are added here
    for (NodeId id = 0; id < nodes; ++id) {
      if (!graph_.is(id, "AssignVariableOp")) continue;
      const Endpoint handle = graph_.inputs(id)[0];
      if (!graph_.is(handle.node, "VarHandleOp")) continue;
      if (!seen_.insert(handle.node).second) continue;
      const Output variable{&graph_, handle};
      variables_.push_back(ReadVariable(root, variable));
      initial_.push_back(Placeholder(root, variables_.back().dtype(), variables_.back().shape()));
      restores_.push_back(AssignVariable(root, variable, initial_.back()));
      const Output same = Identity(root, variables_.back());
      holds_.push_back(MakeVariable(root, "hold" + std::to_string(id), same).initializer);
    }
    ASSERT_TRUE(root.ok()) << root.status();
    Tensor pixels = Tensor::Allocate(DT_FLOAT, images).value();
    for (int64_t i = 0; i < pixels.elements(); ++i)
      pixels.data<float>()[i] = static_cast<float>(i % 7) / 7.f;
    Tensor classes = Tensor::Allocate(DT_INT32, Shape{images[0]}).value();
    for (int64_t i = 0; i < images[0]; ++i)
      classes.data<int32_t>()[i] = static_cast<int32_t>(i % 3);
    feeds_ = {{images_, pixels}, {labels_, classes}};

    Open(/*cuda_graphs=*/false);
    losses_ = {Tensor()};
    values_ = {Read().value()};
    for (size_t step = 1; step <= kSteps; ++step) {
      losses_.push_back(Run().value());
      values_.push_back(Read().value());
      ASSERT_FALSE(BitEqual(values_[step][0], values_[step - 1][0])) << "nothing is learned";
    }
    Open(/*cuda_graphs=*/true);
    ExpectSteps(1, kCaptured);
    EXPECT_GE(Task().cuda_graphs_captured, 1u);
    EXPECT_EQ(Task().cuda_graphs_replayed, 0u);
    ExpectSteps(kReplayed, kReplayed);
    const uint64_t captured = Task().cuda_graphs_captured;
    EXPECT_EQ(Task().cuda_graphs_replayed, captured);
    Restore();
    ExpectSteps(1, 1);
    EXPECT_GT(Task().cuda_graphs_captured, captured);
    session_ = nullptr;
  }

  void Open(bool cuda_graphs) {
    session_ = nullptr;
    SessionOptions options;
    options.gpu.cuda_graphs = cuda_graphs;
    options.gpu.virtual_device_memory_mb = {{64}};
    if (separate_blocks_) setenv("MONOGRAPH_GPU_SEPARATE_BLOCKS", "1", 1);
    if (poisoned_) setenv("MONOGRAPH_GPU_POISON", "1", 1);
    session_ = Session::Local(graph_, options).value();
    unsetenv("MONOGRAPH_GPU_SEPARATE_BLOCKS");
    unsetenv("MONOGRAPH_GPU_POISON");
    Initialize();
  }
  void Initialize() { ASSERT_TRUE(session_->Run({}, {}, {initialize_}).ok()); }
  // The initializers would draw other numbers. What somebody holds is not overwritten: the
  // variables move.
  void Restore() {
    const Status held = session_->Run({}, {}, holds_).status();
    ASSERT_TRUE(held.ok() || held.code() == Code::kFailedPrecondition) << held;
    std::vector<Feed> feeds;
    for (size_t i = 0; i < initial_.size(); ++i) feeds.emplace_back(initial_[i], values_[0][i]);
    const Status status = session_->Run(feeds, {}, restores_).status();
    ASSERT_TRUE(status.ok()) << status;
  }
  Result<Tensor> Run() {
    MG_ASSIGN_OR_RETURN(auto got, session_->Run(feeds_, {loss_}, {train_}));
    return got[0];
  }
  TaskStatus Task() { return session_->Tasks().value().at(0); }
  Result<std::vector<Tensor>> Read() { return session_->Run({}, variables_); }

  // Steps `from` to `to` of a session of which the steps before were right.
  void ExpectSteps(size_t from, size_t to) {
    for (size_t step = from; step <= to; ++step) {
      const Result<Tensor> loss = Run();
      ASSERT_TRUE(loss.ok()) << "step " << step << ": " << loss.status();
      ASSERT_TRUE(BitEqual(*loss, losses_[step])) << "step " << step;
    }
  }
  void ExpectValues(size_t step) {
    const auto values = Read();
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < values->size(); ++i)
      EXPECT_TRUE(BitEqual((*values)[i], values_[step][i])) << variables_[i].name();
  }
  static bool SaysLost(const Status& status) {
    return status.message().find(" is lost") != std::string::npos;
  }
  // What a step that failed has left.
  void ExpectValuesOfEither(size_t step) {
    for (size_t i = 0; i < variables_.size(); ++i) {
      const auto value = session_->Run({}, {variables_[i]});
      if (!value.ok()) {
        const Code code = value.status().code();
        EXPECT_TRUE(SaysLost(value.status()) || code == Code::kFailedPrecondition)
            << value.status();
        continue;
      }
      EXPECT_TRUE(BitEqual((*value)[0], values_[step - 1][i]) ||
                  BitEqual((*value)[0], values_[step][i]))
          << variables_[i].name() << " holds what no step has given it";
    }
  }

  // Lets one call of step `step` fail: each of `calls`. Returns how many did.
  int FailEach(size_t step, int error, emulated::FailingCalls calls = {},
               const std::string& only = "", int64_t most = 100'000) {
    int failed = 0, ended = 0, lost = 0;
    for (int64_t call = calls.first; call <= most && !HasFailure(); call += calls.stride) {
      Open(/*cuda_graphs=*/true);
      ExpectSteps(1, std::min(step, kUpdated) - 1);
      // New values: what is captured is no longer valid.
      if (step == kUpdated) Restore();
      if (HasFailure()) break;
      failures_.FailAt(call, error, only);
      Result<Tensor> loss = Run();
      const std::string which = failures_.Failed();
      failures_.Stop();
      SCOPED_TRACE("call " + std::to_string(call) + " of step " + std::to_string(step) + ", " +
                   which + ", fails with " + std::to_string(error));
      if (!which.empty()) ++failed;
      if (!loss.ok()) ++ended;
      Judge(step == kUpdated ? 1 : step, loss, which);
      session_ = nullptr;
      loss = Aborted("given back");  // what it held is memory of the GPU's driver
      if (lost_now_) failures_.Restart();
      lost += lost_now_ ? 1 : 0;
      if (which.empty()) break;
    }
    std::printf("failing calls: %d, step %zu, %s with %d: %d steps failed, %d lost the GPU\n",
                failed, step, only.empty() ? "CUDA" : only.c_str(), error, ended, lost);
    return failed;
  }

  void Judge(size_t step, const Result<Tensor>& loss, const std::string& which) {
    if (loss.ok()) {
      EXPECT_TRUE(BitEqual(*loss, losses_[step]));
    } else {
      const std::string& why = loss.status().message();
      const std::string name = which == "launch" ? "cudaLaunchKernelExC" : which;
      EXPECT_TRUE(why.find(name) != std::string::npos || SaysLost(loss.status()) ||
                  why.find("no memory") != std::string::npos ||
                  why.find("no pinned host memory") != std::string::npos)
          << loss.status();
    }
    const auto values = Read();
    lost_now_ = !values.ok() && SaysLost(values.status());
    if (lost_now_) {
      ++lost_[which];
      return;
    }
    if (loss.ok()) {
      ExpectValues(step);
      ExpectSteps(step + 1, std::min(step + 1, kSteps));
      return;
    }
    ExpectValuesOfEither(step);
    Restore();
    ExpectSteps(1, kReplayed);
    ExpectValues(kReplayed);
  }

  emulated::InjectedFailures failures_;
  Graph graph_ = NewGraph();
  Output images_, labels_, loss_;
  Operation train_, initialize_;
  Outputs variables_, initial_;
  std::vector<Operation> restores_, holds_;
  std::set<NodeId> seen_;
  std::vector<Feed> feeds_;
  bool separate_blocks_ = false, poisoned_ = false, lost_now_ = false;
  std::unique_ptr<Session> session_;
  // By step, without CUDA graphs; values_[0] are the initial ones.
  std::vector<Tensor> losses_;
  std::vector<std::vector<Tensor>> values_;
  std::map<std::string, int> lost_;  // by call: steps after which the GPU was
};

struct Failure {
  int error;
  size_t step;
};
std::ostream& operator<<(std::ostream& out, const Failure& f) {
  return out << "error " << f.error << " in step " << f.step;
}
std::vector<Failure> Failures(size_t last) {
  std::vector<Failure> all;
  for (const int error : {kInvalidValue, kNoMemory, kUnsupported, kLaunchFailure}) {
    for (size_t step = kMeasured; step <= last; ++step) all.push_back({error, step});
  }
  return all;
}
class GpuFailuresOfEachCall : public GpuFailures, public ::testing::WithParamInterface<Failure> {};

TEST_P(GpuFailuresOfEachCall, EndTheStepByNameOrChangeNoBit) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  const int failed = FailEach(GetParam().step, GetParam().error);
  RecordProperty("calls", failed);
  EXPECT_GE(failed, 5);
}
INSTANTIATE_TEST_SUITE_P(Steps, GpuFailuresOfEachCall, ::testing::ValuesIn(Failures(kReplayed)));

// A ResNet of two blocks, one with a projection, as ResNet-50's first stage has them.
class GpuFailuresOfResNet : public GpuFailures, public ::testing::WithParamInterface<Failure> {};

TEST_P(GpuFailuresOfResNet, EndTheStepByNameOrChangeNoBit) {
  const examples::ResNet net{.side = 16, .classes = 3, .width = 4, .blocks = {2}};
  Build(net.Training(), {2, 16, 16, 3}, Momentum(0.01, 0.9));
  (void)FailEach(GetParam().step, GetParam().error, emulated::ChooseCalls(/*stride=*/61));
}
INSTANTIATE_TEST_SUITE_P(Steps, GpuFailuresOfResNet, ::testing::ValuesIn(Failures(kUpdated)));

// NOT_SUPPORTED, of an algorithm that cuBLASLt itself, or cuDNN, has offered.
TEST_F(GpuFailures, WhatALibraryRefusesToComputeGoesAnotherWayAndTheLogSaysSo) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  const std::map<std::string, int> refusals = {{"cublasLtMatmul", 15},
                                               {"cudnnBackendExecute", 3000}};
  for (const auto& [call, code] : refusals) {
    int refused = 0, said = 0;
    for (int64_t number = 1;; ++number) {
      Open(/*cuda_graphs=*/true);
      ::testing::internal::CaptureStderr();
      failures_.FailAt(number, code, call);
      const Result<Tensor> loss = Run();
      const bool failed = !failures_.Failed().empty();
      failures_.Stop();
      const std::string log = ::testing::internal::GetCapturedStderr();
      ASSERT_TRUE(loss.ok()) << call << " " << number << ": " << loss.status();
      EXPECT_NEAR(*std::as_const(*loss).data<float>(), *std::as_const(losses_[1]).data<float>(),
                  1e-4f);
      if (!failed) break;
      ++refused;
      if (log.find("a slower way takes its place") != std::string::npos) ++said;
    }
    EXPECT_GE(refused, 3) << call;
    EXPECT_GE(said, 1) << call;  // those with a bias are first tried without it
  }
}

// The first step of a convolution describes it to cuDNN, by hundreds of calls.
TEST_F(GpuFailures, WhatCudnnRefusesToDescribeGoesAnotherWayAndIsAskedAnew) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  const auto step = [&](const std::string& what) {
    const Result<Tensor> loss = Run();
    ASSERT_TRUE(loss.ok()) << what << ": " << loss.status();
    EXPECT_NEAR(*std::as_const(*loss).data<float>(), *std::as_const(losses_[1]).data<float>(),
                1e-4f)
        << what;
  };
  constexpr int kNotSupported = 3000;
  int said = 0;
  const auto run = [&](const std::string& what) {
    ::testing::internal::CaptureStderr();
    step(what);
    const std::string log = ::testing::internal::GetCapturedStderr();
    return log.find("a slower way takes its place") != std::string::npos;
  };
  for (const char* call : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                           "cudnnBackendGetAttribute", "cudnnBackendFinalize"}) {
    int failed = 0;
    for (int64_t number = 1; number < 10'000 && !HasFailure(); number = number * 4 / 3 + 1) {
      Open(/*cuda_graphs=*/true);
      failures_.FailAt(number, kNotSupported, call);
      said += run(call + (" " + std::to_string(number)));
      const bool came = !failures_.Failed().empty();
      failures_.Stop();
      if (!came) break;
      ++failed;
    }
    EXPECT_GE(failed, 4) << call;
  }
  EXPECT_GE(said, 2);
  Open(/*cuda_graphs=*/true);
  EXPECT_FALSE(run("after all of these"));
}

TEST_F(GpuFailures, SeparateBlocksChangeNoBit) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  separate_blocks_ = true;
  Open(/*cuda_graphs=*/true);
  ExpectSteps(1, kSteps);
  ExpectValues(kSteps);
}

TEST_F(GpuFailures, MemoryFullOfNaNChangesNoBit) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  poisoned_ = true;
  for (const bool separate : {false, true}) {
    separate_blocks_ = separate;
    Open(/*cuda_graphs=*/true);
    ExpectSteps(1, kSteps);
    ExpectValues(kSteps);
  }
}

// Each block is one call of cudaMalloc. A convolution or a product that finds no memory for its
// workspace takes another engine or algorithm, and computes the same here.
TEST_F(GpuFailures, OfEachBlockOfMemoryEndTheStepByNameOrChangeNoBit) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  separate_blocks_ = true;
  ::testing::internal::CaptureStderr();
  const int failed = FailEach(kMeasured, kNoMemory, {}, "cudaMalloc");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_GE(failed, 10);
  EXPECT_NE(log.find("bytes of workspace of cuBLASLt's algorithm"), std::string::npos) << log;
}

// How often an event is asked for depends on the time that things take.
TEST_F(GpuFailures, OfLooksAtAnEventLoseTheGpu) {
  Build(examples::MnistCnn{.side = 8, .conv1 = 2, .conv2 = 2, .fc = 4, .classes = 3, .dropout = 0}
            .Training(),
        {2, 64}, Adam(0.01));
  EXPECT_GE(FailEach(kReplayed, kInvalidValue, {}, "cudaEventQuery", 3), 1);
  EXPECT_GE(lost_["cudaEventQuery"], 1);
}

// Copies to the host at the end of a step that no pinned memory is left for: each is larger than
// what is taken at once, so at most one of the two finds that of the copy to the device.
TEST_F(GpuFailures, OfPinnedMemoryEndTheStepByNameAndTheNextOneRuns) {
  const Scope root = Scope(&graph_).WithDevice("/device:GPU:0");
  constexpr int64_t kElements = 5 << 20;
  const Output x = Placeholder(root, DT_FLOAT, {kElements});
  const Output y = Relu(root, x), z = Relu(root, y);
  Tensor value = Tensor::Allocate(DT_FLOAT, {kElements}).value();
  for (int64_t i = 0; i < kElements; ++i) value.data<float>()[i] = static_cast<float>(i % 1000);
  SessionOptions options;
  options.gpu.virtual_device_memory_mb = {{256}};
  int failed = 0;
  for (int64_t call = 1; !HasFailure(); ++call) {
    session_ = Session::Local(graph_, options).value();
    failures_.FailAt(call, kNoMemory, "cudaHostAlloc");
    const auto first = session_->Run({{x, value}}, {y, z});
    const bool came = !failures_.Failed().empty();
    failures_.Stop();
    EXPECT_EQ(first.ok(), !came) << first.status();
    if (came) {
      ++failed;
      EXPECT_EQ(first.status().code(), Code::kResourceExhausted) << first.status();
      EXPECT_NE(first.status().message().find("pinned"), std::string::npos) << first.status();
    }
    const auto next = session_->Run({{x, value}}, {y, z});
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_TRUE(BitEqual((*next)[0], value) && BitEqual((*next)[1], value));
    session_ = nullptr;
    if (!came) break;
  }
  EXPECT_GE(failed, 2);
}

}  // namespace
}  // namespace monograph::testing
