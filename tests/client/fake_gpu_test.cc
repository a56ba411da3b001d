// Whole sessions on GPUs that are none: they compute with the CPU's kernels, so that everything
// that the GPU executor does (order, copies, memory plans, replayed graphs) must leave every bit as
// it is, and they report each access that nothing orders.
#include <gtest/gtest.h>
#include <monograph/monograph.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "executor/worker/task_status.h"
#include "tests/gpu/fake/session_gpus.h"
#include "tests/temporary_folder.h"
#include "tests/train/training_curve.h"

namespace monograph {
namespace testing {
namespace {

Curve RunCurve(CurveOptions options) {
  Result<Curve> curve = TrainingCurve(options);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? std::move(curve).value() : Curve();
}

CurveOptions On(std::vector<std::string> devices) {
  CurveOptions options;
  options.replicas = std::move(devices);
  options.steps = 12;
  return options;
}

TEST(FakeGpuTraining, OneGpuGivesTheBitsOfTheCpu) {
  const Curve cpu = RunCurve(On({"/device:CPU:0"}));
  for (const bool replay : {true, false}) {
    fake_gpus.replay = replay;
    const Curve gpu = RunCurve(On({"/device:GPU:0"}));
    EXPECT_EQ(Difference(gpu, cpu), "") << (replay ? "with graphs" : "without graphs");
    ExpectNoRaces();
    ASSERT_EQ(FakeDrivers().size(), 2u);
    EXPECT_GT(FakeDrivers()[0]->counts().kernels, 0);
    EXPECT_EQ(FakeDrivers()[0]->counts().launches > 0, replay);
  }
  fake_gpus.replay = true;
}

TEST(FakeGpuTraining, TwoGpusGiveTheBitsOfTwoCpus) {
  const Curve cpu = RunCurve(On({"/device:CPU:0", "/device:CPU:1"}));
  EXPECT_EQ(Difference(RunCurve(On({"/device:GPU:0", "/device:GPU:1"})), cpu), "");
  ExpectNoRaces();
  for (const auto& driver : FakeDrivers()) EXPECT_GT(driver->counts().launches, 0);
}

TEST(FakeGpuTraining, VariablesOnTheCpuGiveTheSameBits) {
  CurveOptions cpu = On({"/device:CPU:0", "/device:CPU:1"});
  CurveOptions gpu = On({"/device:GPU:0", "/device:GPU:1"});
  cpu.variable_devices = gpu.variable_devices = {"/device:CPU:0"};
  EXPECT_EQ(Difference(RunCurve(gpu), RunCurve(cpu)), "");
  ExpectNoRaces();
}

TEST(FakeGpuTraining, DropoutDrawsTheSameNumbersInEveryStep) {
  CurveOptions cpu = On({"/device:CPU:0"}), gpu = On({"/device:GPU:0"});
  cpu.dropout = gpu.dropout = 0.5;
  EXPECT_EQ(Difference(RunCurve(gpu), RunCurve(cpu)), "");
  ExpectNoRaces();
}

TEST(FakeGpuTraining, StepsInARowGiveTheBitsOfTheCpu) {
  for (const int gpus : {1, 2}) {
    for (const bool variables_on_cpu : {false, true}) {
      CurveOptions gpu = On({"/device:GPU:0"}), cpu = On({"/device:CPU:0"});
      if (gpus == 2) {
        gpu.replicas.push_back("/device:GPU:1");
        cpu.replicas.push_back("/device:CPU:1");
      }
      for (CurveOptions* options : {&gpu, &cpu}) {
        options->row = 9;
        options->steps = 5;
        options->dropout = 0.5;
        if (variables_on_cpu) options->variable_devices = {"/device:CPU:0"};
      }
      EXPECT_EQ(Difference(RunCurve(gpu), RunCurve(cpu)), "")
          << gpus << " GPUs" << (variables_on_cpu ? ", variables on the CPU" : "");
      ExpectNoRaces();
    }
  }
}

// A variable on a GPU, {1, 0} at first, whose first element every step doubles.
class FakeGpuRow : public ::testing::Test {
 protected:
  void SetUp() override {
    const Scope gpu = root_.WithDevice("/device:GPU:0");
    const ModelVariable v = MakeVariable(gpu, "v", Const(gpu, {1.0f, 0.0f}));
    Output sums = v.value;
    for (int i = 0; i < 6; ++i) sums = Cumsum(gpu, sums, Const(root_, int32_t{0}));
    const Operation add = AssignAddVariable(gpu, v.handle, sums);
    ASSERT_TRUE(root_.ok()) << root_.status();
    session_ = Session::Local(graph_, {}).value();
    ASSERT_TRUE(session_->Run({}, {}, {v.initializer}).ok());
    step_ = session_->MakeCallable({}, {}, {add}).value();
    value_ = v.value;
    ASSERT_TRUE(Run(4).ok());
  }
  Status Run(int64_t steps, std::optional<std::chrono::milliseconds> timeout = {}) {
    const Status status =
        session_->RunCallable(step_, {}, {.timeout = timeout, .steps = steps}).status();
    if (status.ok()) doubled_ += steps;
    return status;
  }
  // While the GPU ends nothing: it launches the first two.
  void HoldRowOf(int64_t steps, const std::function<void()>& meanwhile, Status* status) {
    const int64_t before = driver().counts().launches;
    driver().Hold();
    std::thread caller([&] { *status = Run(steps); });
    EXPECT_EQ(LaunchesAfter(before + 2), before + 2);
    meanwhile();
    driver().Resume();
    caller.join();
  }
  void ExpectDoubled() {
    const auto value = session_->Run({}, {value_});
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->at(0).values<float>()[0], std::ldexp(1.0f, static_cast<int>(doubled_)));
    ExpectNoRaces();
  }
  RecordingDriver& driver() { return *FakeDrivers()[0]; }
  // Waits until so many graphs were launched; then for a while.
  int64_t LaunchesAfter(int64_t launches) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (driver().counts().launches < launches && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return driver().counts().launches;
  }

  Graph graph_ = NewGraph();
  Scope root_{&graph_};
  std::unique_ptr<Session> session_;
  Callable step_;
  Output value_;
  int64_t doubled_ = 0;
};

TEST_F(FakeGpuRow, TheNextStepIsLaunchedBeforeTheGpuHasEndedTheOneBefore) {
  const int64_t before = driver().counts().launches;
  Status status;
  HoldRowOf(
      10, [] {}, &status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(driver().counts().launches, before + 10);
  ExpectDoubled();
}

TEST_F(FakeGpuRow, ALostContextFailsTheStepsThatAreUnderWay) {
  const int64_t before = driver().counts().launches;
  Status status;
  HoldRowOf(
      10, [this] { driver().Lose(); }, &status);
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_EQ(driver().counts().launches, before + 2);
}

TEST_F(FakeGpuRow, ARowThatTakesTooLongEndsAndTheNextOneRuns) {
  driver().Hold();
  const Status late = Run(10, std::chrono::milliseconds(50));
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  driver().Resume();
  const Status next = Run(10);
  EXPECT_TRUE(next.ok()) << next;
  ExpectNoRaces();
}

TEST(FakeGpuGraphs, AnOutputAndAViewOfItBothLeaveWhatIsReplayed) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope gpu = root.WithDevice("/device:GPU:0");
  const Output x = Placeholder(root, DT_FLOAT, {2, 2});
  const auto add_up = [&](Output value, int times) {
    for (int i = 0; i < times; ++i) value = Cumsum(gpu, value, Const(root, int32_t{0}));
    return value;
  };
  const Output sums = add_up(x, 2);
  const Output row = Reshape(gpu, sums, Const(root, Tensor::Vector<int32_t>({4})));
  const Output last = add_up(row, 6);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph, {}).value();
  constexpr int kSteps = 12, kSteady = 4;
  RecordingDriver::Counts before;
  TaskStatus warm;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - kSteady) {
      before = FakeDrivers()[0]->counts();
      warm = session->Tasks().value().at(0);
    }
    const auto one = static_cast<float>(step);
    const std::vector<float> fed{one, 2, 3, 4}, once{one, 2, 3 + 2 * one, 4 + 2 * 2};
    const auto values =
        session->Run({{x, Tensor::FromValues<float>(Shape{2, 2}, fed)}}, {sums, row, last});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(BitEqual(values->at(0), Tensor::FromValues<float>(Shape{2, 2}, once)));
    EXPECT_TRUE(BitEqual(values->at(1), Tensor::FromValues<float>(Shape{4}, once)));
    // C(5 + k, k) times what stands k places before.
    EXPECT_EQ(values->at(2).values<float>()[3],
              once[3] + 6 * once[2] + 21 * once[1] + 56 * once[0]);
  }
  const RecordingDriver::Counts after = FakeDrivers()[0]->counts();
  EXPECT_GE(after.launches, before.launches + kSteady);
  const TaskStatus task = session->Tasks().value().at(0);
  EXPECT_GT(warm.cuda_nodes_launched, 0u);
  EXPECT_EQ(task.cuda_nodes_launched, warm.cuda_nodes_launched);
  EXPECT_GE(task.cuda_graphs_captured, 1u);
  EXPECT_EQ(static_cast<int64_t>(task.cuda_graphs_captured + task.cuda_graphs_replayed),
            after.launches);
  EXPECT_EQ(task.cuda_graph_fallbacks, 0u);
  EXPECT_EQ(after.kernels, before.kernels);
  ExpectNoRaces();
}

// The first step takes memory that later ones do not: constants come to the GPU, and v is replaced,
// since a copy of it holds its value, too. None of that is in the plan of the steps' memory.
TEST(FakeGpuGraphs, AreCapturedInTheSecondStepWhateverTheFirstHasMadeForGood) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope gpu = root.WithDevice("/device:GPU:0");
  const ModelVariable v = MakeVariable(gpu, "v", Const(gpu, {1.0f, 0.0f}));
  const ModelVariable copy = MakeVariable(gpu, "copy", Identity(gpu, ReadVariable(gpu, v.handle)));
  const Operation update = AssignAddVariable(gpu, v.handle, Const(gpu, {1.0f, 1.0f}));
  Output sums = ReadVariable(gpu.WithControlDependencies({update}), v.handle);
  for (int i = 0; i < 8; ++i) sums = Cumsum(gpu, sums, Const(root, int32_t{0}));
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph, {}).value();
  ASSERT_TRUE(session->Run({}, {}, {v.initializer}).ok());
  ASSERT_TRUE(session->Run({}, {}, {copy.initializer}).ok());
  const int64_t before = FakeDrivers()[0]->counts().launches;
  for (int step = 1; step <= 5; ++step) {
    const auto values = session->Run({}, {sums});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).values<float>()[0], static_cast<float>(step + 1));
    EXPECT_EQ(FakeDrivers()[0]->counts().launches, before + step - 1);
  }
  const auto kept = session->Run({}, {copy.value});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(BitEqual(kept->at(0), Tensor::Vector<float>({1.0f, 0.0f})));
  ExpectNoRaces();
}

// Somebody holds v's value when the step is captured, which therefore replaces it: the graph is
// made again, where v stays. What moves in every step is not captured for ever.
TEST(FakeGpuGraphs, AreMadeAgainWhereAVariableMovedOnce) {
  for (const bool moves : {false, true}) {
    Graph graph = NewGraph();
    Scope root(&graph);
    const Scope gpu = root.WithDevice("/device:GPU:0");
    const ModelVariable v = MakeVariable(gpu, "v", Const(gpu, {1.0f, 0.0f}));
    const Output read = Identity(gpu, ReadVariable(gpu, v.handle));
    const ModelVariable copy = MakeVariable(gpu, "copy", read);
    Output sums = ReadVariable(gpu, v.handle);
    for (int i = 0; i < 6; ++i) sums = Cumsum(gpu, sums, Const(root, int32_t{0}));
    const Operation update = AssignAddVariable(gpu, v.handle, sums);
    ASSERT_TRUE(root.ok()) << root.status();
    const auto session = Session::Local(graph, {}).value();
    ASSERT_TRUE(session->Run({}, {}, {v.initializer}).ok());
    constexpr int kSteps = 10, kSteady = 4;
    int64_t launches = 0;
    for (int step = 1; step <= kSteps; ++step) {
      if (moves || step == 2) {
        ASSERT_TRUE(session->Run({}, {}, {copy.initializer}).ok());
      }
      if (step == kSteps - kSteady + 1) launches = FakeDrivers()[0]->counts().launches;
      ASSERT_TRUE(session->Run({}, {}, {update}).ok());
    }
    EXPECT_EQ(FakeDrivers()[0]->counts().launches, launches + (moves ? 0 : kSteady));
    EXPECT_EQ(session->Run({}, {v.value}).value()[0].values<float>()[0], std::ldexp(1.0f, kSteps));
    ExpectNoRaces();
  }
}

// A graph ends where a copy to the host begins. The next one works on what that one has read, too,
// and updates v in place.
TEST(FakeGpuGraphs, UpdateInPlaceWhatAnEarlierOneHasRead) {
  std::vector<Tensor> results;
  for (const bool replay : {false, true}) {
    fake_gpus.replay = replay;
    Graph graph = NewGraph();
    Scope root(&graph);
    const Scope gpu = root.WithDevice("/device:GPU:0");
    const auto sums_of = [&](Output value) {
      for (int i = 0; i < 6; ++i) value = Cumsum(gpu, value, Const(root, int32_t{0}));
      return value;
    };
    const ModelVariable v = MakeVariable(gpu, "v", Const(gpu, {1.0f, 0.25f}));
    const Output read = ReadVariable(gpu, v.handle), before = sums_of(read);
    const Output sums = sums_of(Add(gpu, read, before));
    const Operation update = AssignAddVariable(gpu, v.handle, sums);
    ASSERT_TRUE(root.ok()) << root.status();
    const auto session = Session::Local(graph, {}).value();
    ASSERT_TRUE(session->Run({}, {}, {v.initializer}).ok());
    constexpr int kSteps = 10, kSteady = 4;
    int64_t launches = 0;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - kSteady) launches = FakeDrivers()[0]->counts().launches;
      const Status ran = session->Run({}, {before}, {update}).status();
      ASSERT_TRUE(ran.ok()) << ran;
    }
    EXPECT_EQ(FakeDrivers()[0]->counts().launches, launches + (replay ? 2 * kSteady : 0));
    results.push_back(session->Run({}, {v.value}).value()[0]);
    ExpectNoRaces();
  }
  EXPECT_TRUE(BitEqual(results[0], results[1]));
}

// Graphs that cannot be captured, or launched. Step `s` of Update doubles v, whose value is read
// once more behind that, so that the update replaces it, and adds what v was to w; Assign replaces
// v by twice its value.
class FakeGpuRefusals : public ::testing::Test {
 protected:
  void SetUp() override {
    v_ = MakeVariable(gpu_, "v", Const(gpu_, {1.0f, 0.0f}));
    w_ = MakeVariable(gpu_, "w", Const(gpu_, {0.0f, 0.0f}));
    const Output value = ReadVariable(gpu_, v_.handle);
    update_ = AssignAddVariable(gpu_, v_.handle, Sums(value));
    sum_ = AssignAddVariable(gpu_.WithControlDependencies({update_}), w_.handle, value);
    const Output read = ReadVariable(gpu_, v_.handle);
    assign_ = AssignVariable(gpu_, v_.handle, Sums(Add(gpu_, read, read)));
    ASSERT_TRUE(root_.ok()) << root_.status();
    Open();
  }
  void Open() {
    session_ = nullptr;
    session_ = Session::Local(graph_, {}).value();
    Initialize();
  }
  Output Sums(Output value) {
    for (int i = 0; i < 4; ++i) value = Cumsum(gpu_, value, Const(root_, int32_t{0}));
    return value;
  }
  void Initialize() { ASSERT_TRUE(session_->Run({}, {}, {v_.initializer, w_.initializer}).ok()); }
  // The values of v and w after so many updates from {1, 0} and {0, 0}.
  void ExpectUpdates(int updates) {
    std::vector<float> v{1, 0}, w{0, 0};
    for (int i = 0; i < updates; ++i) {
      w = {w[0] + v[0], w[1] + v[1]};
      v = {2 * v[0], 2 * v[1] + 4 * v[0]};
    }
    const auto values = session_->Run({}, {v_.value, w_.value});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(BitEqual(values->at(0), Tensor::FromValues<float>(Shape{2}, v))) << updates;
    EXPECT_TRUE(BitEqual(values->at(1), Tensor::FromValues<float>(Shape{2}, w))) << updates;
  }
  TaskStatus Task() { return session_->Tasks().value().at(0); }
  RecordingDriver& driver() { return *FakeDrivers()[0]; }

  Graph graph_ = NewGraph();
  Scope root_{&graph_}, gpu_ = root_.WithDevice("/device:GPU:0");
  ModelVariable v_, w_;
  Operation update_, sum_, assign_;
  std::unique_ptr<Session> session_;
};

TEST_F(FakeGpuRefusals, ARefusedCaptureChangesNoBitAndIsWarnedOfOnce) {
  ::testing::internal::CaptureStderr();
  for (int updates = 1; updates <= 5; ++updates) {
    driver().RefuseCaptures(true);
    const Status status = session_->Run({}, {}, {sum_}).status();
    driver().RefuseCaptures(false);
    ASSERT_TRUE(status.ok()) << status;
    ExpectUpdates(updates);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string why =
      "(operation not permitted when stream is capturing); its nodes are launched one by one";
  const size_t at = said.find(why);
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find(why, at + 1), std::string::npos) << said;
  EXPECT_EQ(Task().cuda_graph_fallbacks, 1u);
  ExpectNoRaces();
}

TEST_F(FakeGpuRefusals, ARefusedFirstLaunchChangesNoBit) {
  driver().RefuseLaunches(1);
  for (int updates = 1; updates <= 5; ++updates) {
    const Status status = session_->Run({}, {}, {sum_}).status();
    ASSERT_TRUE(status.ok()) << status;
    ExpectUpdates(updates);
  }
  EXPECT_EQ(Task().cuda_graph_fallbacks, 1u);
  ExpectNoRaces();
}

TEST_F(FakeGpuRefusals, AVariableThatIsReplacedInARefusedGraphFailsItsStepsUntilItIsAssigned) {
  for (const bool capture : {true, false}) {
    SCOPED_TRACE(capture ? "capture" : "launch");
    Open();
    const Callable step = session_->MakeCallable({}, {}, {assign_}).value();
    const auto run = [&] { return session_->RunCallable(step, {}).status(); };
    ASSERT_TRUE(run().ok());
    driver().RefuseCaptures(capture);
    driver().RefuseLaunches(capture ? 0 : 1);
    const Status lost = run();
    driver().RefuseCaptures(false);
    EXPECT_EQ(lost.code(), Code::kDataLoss) << lost;
    for (const char* part : {"variable 'v' has lost its value", "node '", "graph"})
      EXPECT_NE(lost.message().find(part), std::string::npos) << lost;
    EXPECT_EQ(run().code(), Code::kFailedPrecondition);
    Initialize();
    const Status status = run();
    ASSERT_TRUE(status.ok()) << status;
    const auto values = session_->Run({}, {v_.value});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(BitEqual(values->at(0), Tensor::Vector<float>({2, 8})));
  }
}

TEST(FakeGpuSaver, VariablesOfAGpuComeBackWhileStepsChangeThem) {
  for (const bool sharded : {false, true}) {
    const TemporaryFolder folder;
    Graph graph = NewGraph();
    const Scope root(&graph), gpu = root.WithDevice("/device:GPU:0");
    const ModelVariable w = MakeVariable(gpu, "w", Const(gpu, Shape{3}, {1.0f, 2.0f, 3.0f}));
    const Operation add =
        AssignAddVariable(gpu, w.handle, Const(gpu, Shape{3}, {1.0f, 1.0f, 1.0f}));
    Saver saver(root, {.sharded = sharded});
    ASSERT_TRUE(root.ok()) << root.status();
    const auto session = Session::Local(graph, {}).value();
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) ASSERT_TRUE(session->Run({}, {}, {add}).ok());
    };
    ASSERT_TRUE(session->Run({}, {}, {w.initializer}).ok());
    steps(5);
    const Result<std::string> path = saver.Save(session.get(), folder.File("model"), 5);
    ASSERT_TRUE(path.ok()) << path.status();
    steps(5);
    const Status restored = saver.Restore(session.get(), *path);
    ASSERT_TRUE(restored.ok()) << restored;
    steps(5);
    const auto values = session->Run({}, {w.value});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(BitEqual(values->at(0), Tensor::Vector<float>({11, 12, 13})));
    ExpectNoRaces();
  }
}

}  // namespace
}  // namespace testing
}  // namespace monograph
