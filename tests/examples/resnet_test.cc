// The ResNet of the benchmarks: its sizes are those of the paper, and a small one learns. How
// cnn_benchmarks tells its speed.
#include "examples/models/resnet.h"

#include <gtest/gtest.h>

#include "client/registries.h"
#include "client/session.h"
#include "examples/cnn_benchmarks/speed.h"
#include "ops/constant/constant.h"
#include "train/replication.h"

namespace monograph::examples {
namespace {

constexpr char kDevice[] = "/job:localhost/replica:0/task:0/device:CPU:0";

struct Program {
  Graph graph = NewGraph();
  Output images, labels;
  ReplicatedStep step;

  Program(const ResNet& net, int64_t batch) {
    const Scope root = Scope(&graph).WithSeed(3);
    images = Placeholder(root.WithOpName("images"), DT_FLOAT, {batch, net.side, net.side, 3});
    labels = Placeholder(root.WithOpName("labels"), DT_INT32, {batch});
    auto made = Replicate(root, {kDevice}, {images, labels}, net.Training(), Momentum(0.05, 0.9));
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) step = *std::move(made);
  }
};

TEST(ResNet, EighteenAndFiftyLayersHaveThePapersParameters) {
  struct Case {
    ResNet net;
    int64_t convolutions, parameters;
  };
  for (const Case& c : {Case{{}, 53, 25557032},  // 25.6 million
                        Case{{.blocks = {2, 2, 2, 2}, .bottleneck = false}, 20, 11689512}}) {
    const Program program(c.net, 2);
    int64_t parameters = 0, convolutions = 0;
    for (const ModelVariable& variable : program.step.variables) {
      parameters += variable.shape.elements();
      if (variable.shape.rank() == 4) ++convolutions;
    }
    EXPECT_EQ(convolutions, c.convolutions);
    EXPECT_EQ(parameters, c.parameters);
  }
}

// Losses of `steps` steps on one batch, where a class is a colour.
std::vector<float> Train(const ResNet& net, int steps) {
  constexpr int64_t kBatch = 12;
  Program program(net, kBatch);
  Tensor images = Tensor::Allocate(DT_FLOAT, {kBatch, net.side, net.side, 3}).value(),
         labels = Tensor::Allocate(DT_INT32, {kBatch}).value();
  for (int64_t i = 0; i < images.elements(); ++i) {
    const int64_t label = i / (net.side * net.side * 3) % net.classes;
    images.data<float>()[i] =
        (i % 3 == label ? 1.f : 0.f) + static_cast<float>((i * 31) % 17) / 17.f;
  }
  for (int64_t i = 0; i < kBatch; ++i)
    labels.data<int32_t>()[i] = static_cast<int32_t>(i % net.classes);
  auto session = Session::Local(program.graph);
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Run({}, {}, {program.step.init}).ok());
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    const auto result = (*session)->Run({{program.images, images}, {program.labels, labels}},
                                        {program.step.results[0]}, {program.step.train});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) break;
    losses.push_back((*result)[0].scalar<float>());
  }
  return losses;
}

TEST(ResNet, ASmallOneLearnsItsBatch) {
  const std::vector<float> losses =
      Train({.side = 16, .classes = 3, .width = 4, .blocks = {1, 1}}, 12);
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_LT(losses.back(), 0.5f * losses.front());
}

TEST(ResNet, ASmallOneOfTwoConvolutionsABlockLearnsItsBatch) {
  const std::vector<float> losses =
      Train({.side = 16, .classes = 3, .width = 4, .blocks = {1, 1}, .bottleneck = false}, 12);
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_LT(losses.back(), 0.5f * losses.front());
}

TEST(ResNet, ASmallOneLearnsTheSameWithChannelsFirst) {
  for (const bool bottleneck : {false, true}) {
    ResNet net{.side = 16, .classes = 3, .width = 4, .blocks = {1, 1}, .bottleneck = bottleneck};
    const std::vector<float> last = Train(net, 4);
    net.channels_first = true;
    const std::vector<float> first = Train(net, 4);
    ASSERT_EQ(first.size(), 4u);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], last[i], 1e-3f) << i;
  }
}

TEST(ResNet, ASmallOneLearnsInBfloat16) {
  const ResNet net{.side = 16, .classes = 3, .width = 4, .blocks = {1, 1}, .compute = DT_BFLOAT16};
  const std::vector<float> losses = Train(net, 12);
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_LT(losses.back(), 0.6f * losses.front());
}

TEST(SpeedOf, AreTheMeanItsErrorAndTheMedianDistanceFromTheMedian) {
  // 10, 20 and 40 images per second.
  const Speed speed = SpeedOf({1, 0.5, 0.25}, 10);
  EXPECT_NEAR(speed.mean, 30 / 1.75, 1e-9);
  EXPECT_NEAR(speed.uncertainty, 7.2008, 1e-4);  // sqrt(1400 / 9) / sqrt(3)
  EXPECT_NEAR(speed.jitter, 14.826, 1e-9);
  EXPECT_EQ(ToString(SpeedOf({0.5}, 4)), "images/sec: 8.0 +/- 0.0 (jitter = 0.0)");
}

}  // namespace
}  // namespace monograph::examples
