// Whole training steps of a small CNN, by the executor.
#include <map>
#include <set>

#include "executor/device.h"
#include "executor/plan/plan.h"
#include "executor/step/step_executor.h"
#include "graph/gradients.h"
#include "graph/prune.h"
#include "graph/scope.h"
#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/rewrites/fuse.h"
#include "ops/shape/shape.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

class Trainer {
 public:
  Trainer(bool fuse, int intra_op) : pools_(1, intra_op) {
    devices_ =
        MakeCpuDevices(DeviceName::Parse("/job:localhost/replica:0/task:0").value(), 1).value();
    Graph train(&Ops());
    Scope root(&train);
    Scope init(&init_graph_);
    init_ = &init;
    Tensor labels = Tensor::Allocate(DT_INT32, {kBatch}).value();
    for (int i = 0; i < kBatch; ++i) labels.data<int32_t>()[i] = i % 3;
    Output h = Const(root, Random<float>({kBatch, 12, 12, 3}, 1));
    h = Layer(root.SubScope("conv1"), h, 3, 16);
    h = Layer(root.SubScope("conv2"), h, 16, 16);
    h = Reshape(root, h, {kBatch, 3 * 3 * 16});
    const Scope fc = root.SubScope("fc1"), out = root.SubScope("fc2");
    h = Relu(fc, BiasAdd(fc, MatMul(fc, h, Weights(fc, "w", {144, 64})), Weights(fc, "b", {64})));
    h = BiasAdd(out, MatMul(out, h, Weights(out, "w", {64, 3})), Weights(out, "b", {3}));
    const Output loss = SparseSoftmaxCrossEntropyWithLogits(root, h, Const(root, labels));
    const auto gradients = AddGradients(root, std::vector<Output>{loss}, values_);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    std::vector<NodeId> updates{AssignVariable(root, Variable(root, "loss", {kBatch}), loss).id};
    const auto scalar = [&](float value) { return Const(root, value); };
    for (size_t i = 0; i < handles_.size(); ++i) {
      const std::string name = names_[i];
      const Shape shape = values_[i].shape().AsShape();
      updates.push_back(ResourceApplyAdam(root, handles_[i], Variable(root, name + "/m", shape),
                                          Variable(root, name + "/v", shape), scalar(0.9f),
                                          scalar(0.999f), scalar(1e-3f), scalar(0.9f),
                                          scalar(0.999f), scalar(1e-7f), (*gradients)[i])
                            .id);
    }
    EXPECT_TRUE(root.ok() && init.ok()) << root.status() << init.status();
    Compile(std::move(init_graph_));
    Step();
    Graph needed = Prune(train, {}, {}, updates, nullptr).value();
    Compile(fuse ? FuseOps(needed).value() : std::move(needed));
  }

  void Step() {
    Status result = Internal("the step did not finish in its Start");
    auto step = StepExecutor::Prepare(plan_, ++step_id_, nullptr,
                                      [&](const Status& status) { result = status; });
    step->Start(/*inline_all=*/true);
    EXPECT_TRUE(result.ok()) << result;
  }
  Tensor Value(const std::string& name) {
    const auto found = resources_.Find<monograph::Variable>("localhost", name).value();
    const monograph::Variable& variable = *found;
    ReaderLock lock(variable.mutex);
    return variable.value;
  }
  double Loss() {
    double sum = 0;
    const Tensor losses = Value("loss");
    for (float loss : losses.values<float>()) sum += static_cast<double>(loss) / kBatch;
    return sum;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  static constexpr int kBatch = 30;

  Output Variable(const Scope& scope, const std::string& name, const Shape& shape,
                  float scale = 0) {
    Tensor value = Random<float>(shape, 11 + names_.size());
    for (int64_t i = 0; i < value.elements(); ++i) value.data<float>()[i] *= scale;
    AssignVariable(*init_, VarHandle(*init_, DT_FLOAT, shape, "", name), Const(*init_, value));
    return VarHandle(scope, DT_FLOAT, shape, "", name);
  }
  Output Weights(const Scope& scope, const char* name, const Shape& shape) {
    names_.push_back(std::string(scope.prefix()) + name);
    handles_.push_back(Variable(scope, names_.back(), shape, 0.2f));
    values_.push_back(ReadVariable(scope, handles_.back()));
    return values_.back();
  }
  Output Layer(const Scope& s, const Output& x, int64_t in, int64_t out) {
    const Output w = Weights(s, "w", {3, 3, in, out}), b = Weights(s, "b", {out});
    return MaxPool(s, Relu(s, BiasAdd(s, Conv2D(s, x, w, {1, 1, 1, 1}, "SAME"), b)), {1, 2, 2, 1},
                   {1, 2, 2, 1}, "SAME");
  }
  void Compile(Graph graph) {
    const DeviceIndex device = graph.InternDevice(devices_[0]->name()).value();
    for (NodeId id = 0; id < graph.num_nodes(); ++id) graph.SetDevice(id, device);
    auto plan = CompilePlan(graph, {.kernels = &Kernels(),
                                    .devices = {devices_[0].get()},
                                    .pools = &pools_,
                                    .resources = &resources_});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *plan;
  }

  ThreadPools pools_;
  ResourceManager resources_;
  std::vector<std::unique_ptr<Device>> devices_;
  Graph init_graph_{&Ops()};
  Scope* init_ = nullptr;
  std::vector<std::string> names_;
  Outputs handles_, values_;
  std::shared_ptr<const Plan> plan_;
  uint64_t step_id_ = 0;
};

TEST(TrainingStepTest, TheLossFallsAndFusionChangesItByRoundingOnly) {
  Trainer plain(false, 1), fused(true, 1);
  plain.Step(), fused.Step();
  const double first = plain.Loss();
  EXPECT_NEAR(first, fused.Loss(), 1e-5);
  for (int i = 0; i < 30; ++i) plain.Step(), fused.Step();
  EXPECT_LT(plain.Loss(), 0.5 * first);
  EXPECT_NEAR(plain.Loss(), fused.Loss(), 1e-2 * first);
}

TEST(TrainingStepTest, TheBitsDoNotDependOnIntraOpThreads) {
  Trainer one(true, 1), two(true, 2), three(true, 3);
  for (int i = 0; i < 5; ++i) one.Step(), two.Step(), three.Step();
  for (const std::string& name : one.names()) {
    for (const char* slot : {"", "/m", "/v"}) {
      EXPECT_TRUE(BitEqual(one.Value(name + slot), two.Value(name + slot))) << name << slot;
      EXPECT_TRUE(BitEqual(one.Value(name + slot), three.Value(name + slot))) << name << slot;
    }
  }
}

// The values that a step's forward pass read are released before the update needs to write, so
// nothing is copied.
TEST(TrainingStepTest, ASteadyStepUpdatesEveryVariableInPlace) {
  Trainer trainer(true, 1);
  trainer.Step();
  trainer.Step();
  std::map<std::string, const void*> before;
  const auto where = [&](const std::string& name) {
    const Tensor value = trainer.Value(name);
    return value.raw();
  };
  for (const std::string& name : trainer.names()) {
    for (const char* slot : {"", "/m", "/v"}) before[name + slot] = where(name + slot);
  }
  for (int i = 0; i < 3; ++i) trainer.Step();
  for (const auto& [name, data] : before) EXPECT_EQ(where(name), data) << name;
}

}  // namespace
}  // namespace monograph
