// A steady training step of a GPU takes no memory: none of the device, and of the heap none but the
// vector of its results. The GPU is none (tests/gpu/fake/recording_driver.h), and quiet, so
// that what is counted is ours.
#include <gtest/gtest.h>

#include "client/registries.h"
#include "client/session.h"
#include "examples/models/mnist_cnn.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "tests/executor/allocation_counter.h"
#include "tests/gpu/fake/session_gpus.h"
#include "train/collections.h"
#include "train/optimizer.h"
#include "train/variable_scope.h"

namespace monograph::testing {
namespace {

constexpr int64_t kBatch = 4, kPixels = 28 * 28;

class GpuAllocations : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_gpus = {.count = 1, .quiet = true};
    Scope root = Scope(&graph_).WithSeed(1).WithDevice("/device:GPU:0");
    images_ = Placeholder(root, DT_FLOAT, {kBatch, kPixels});
    labels_ = Placeholder(root, DT_INT32, {kBatch});
    Collections collections;
    ScopedModelVariables variables(VariableScope(root, &collections));
    const examples::MnistCnn model{.conv1 = 4, .conv2 = 8, .fc = 32, .dropout = 0};
    results_ = model.Training()(root, Outputs{images_, labels_}, variables).value();
    const std::vector<ModelVariable> trained = TrainableVariables(collections);
    std::vector<Operation> initializers;
    for (const ModelVariable& variable : trained) initializers.push_back(variable.initializer);
    train_ = Momentum(0.01, 0.9).Minimize(root, results_[0], trained, &initializers).value();
    ASSERT_TRUE(root.ok()) << root.status();
    session_ = Session::Local(graph_, {}).value();
    ASSERT_TRUE(session_->Run({}, {}, initializers).ok());
    batch_ = {Tensor::Allocate(DT_FLOAT, Shape{kBatch, kPixels}).value(),
              Tensor::Vector<int32_t>({1, 2, 3, 4})};
    for (int64_t i = 0; i < kBatch * kPixels; ++i)
      batch_[0].data<float>()[i] = static_cast<float>(i % 7) / 7.f;
  }
  void TearDown() override {
    session_ = nullptr;
    fake_gpus = {};
  }
  // Of the heap, in so many steps.
  int64_t Allocations(const Callable& callable, int steps) {
    const int64_t before = testing::Allocations();
    for (int i = 0; i < steps; ++i) {
      const auto values = session_->RunCallable(callable, batch_);
      EXPECT_TRUE(values.ok()) << values.status();
    }
    return testing::Allocations() - before;
  }

  Graph graph_ = NewGraph();
  Output images_, labels_;
  Outputs results_;
  Operation train_;
  std::unique_ptr<Session> session_;
  std::vector<Tensor> batch_;
};

constexpr int kSteps = 200;

TEST_F(GpuAllocations, ASteadyTrainingStepTakesOnlyTheVectorOfItsResults) {
  const Callable silent = session_->MakeCallable({images_, labels_}, {}, {train_}).value();
  const Callable fetched =
      session_->MakeCallable({images_, labels_}, {results_[0]}, {train_}).value();
  // Twice: what needs more memory than what ran before moves that, too.
  for (int i = 0; i < 2; ++i) {
    Allocations(silent, kSteps);
    Allocations(fetched, kSteps);
  }
  // Records are made late when the thread that ends a step still holds the last one's, which is
  // seldom where threads have time: the first round of several in which it was.
  constexpr int kSeldom = kSteps / 10;
  int64_t in_silence = 0, with_results = 0;
  RecordingDriver::Counts before, after;
  for (int round = 0; round < 30; ++round) {
    before = FakeDrivers()[0]->counts();
    in_silence = Allocations(silent, kSteps);
    with_results = Allocations(fetched, kSteps);
    after = FakeDrivers()[0]->counts();
    if (in_silence <= kSeldom && with_results <= kSteps + kSeldom &&
        after.allocations <= before.allocations + kSeldom)
      break;
  }
  EXPECT_LE(in_silence, kSeldom);
  EXPECT_LE(with_results, kSteps + kSeldom);
  EXPECT_LE(after.allocations, before.allocations + kSeldom);  // events
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_GE(after.launches, before.launches + 2 * kSteps);
}

}  // namespace
}  // namespace monograph::testing
