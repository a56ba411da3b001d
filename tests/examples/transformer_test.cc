// The encoder of the example learns its task in float and in bfloat16, and the task is what its
// header says.
#include "examples/models/transformer.h"

#include <gtest/gtest.h>

#include "client/registries.h"
#include "client/session.h"
#include "train/optimizer.h"
#include "train/replication.h"

namespace monograph::examples {
namespace {

TEST(Transformer, AHiddenTokenStandsOnceMoreInItsSequence) {
  const Transformer net{.vocabulary = 5, .length = 16};
  const std::vector<Tensor> batch = MaskedSequences(net, 3, 7).value();
  for (int64_t row = 0; row < 3; ++row) {
    int64_t hidden = 0;
    for (int64_t i = 0; i < 16; ++i) {
      const auto at = [&](const Tensor& tensor, int64_t place) {
        return tensor.data<int32_t>()[row * 16 + place];
      };
      const int64_t twin = (i + 8) % 16;
      EXPECT_EQ(at(batch[1], i), at(batch[1], twin));
      EXPECT_LT(at(batch[1], i), 4);
      if (batch[2].data<float>()[row * 16 + i] == 0) {
        EXPECT_EQ(at(batch[0], i), at(batch[1], i));
      } else {
        ++hidden;
        EXPECT_EQ(at(batch[0], i), 4);
        EXPECT_EQ(at(batch[0], twin), at(batch[1], i));
      }
    }
    EXPECT_EQ(hidden, net.hidden());
  }
}

// The mean accuracy of the last 10 of `steps` steps.
float Accuracy(const Transformer& net, int steps) {
  constexpr int64_t kRows = 32;
  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(3);
  const Outputs feeds = MaskedPlaceholders(root, net, kRows);
  const auto step = Replicate(root, {"/job:localhost/replica:0/task:0/device:CPU:0"}, feeds,
                              net.Training(), Adam(0.01));
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return 0;
  const auto session = Session::Local(graph);
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Run({}, {}, {step->init}).ok());
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    const std::vector<Tensor> batch = MaskedSequences(net, kRows, static_cast<uint64_t>(i)).value();
    const auto result =
        (*session)->Run({{feeds[0], batch[0]}, {feeds[1], batch[1]}, {feeds[2], batch[2]}},
                        {step->results[1]}, {step->train});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return 0;
    if (i >= steps - 10) sum += (*result)[0].scalar<float>();
  }
  return sum / 10;
}

constexpr Transformer kSmall{
    .vocabulary = 9, .length = 8, .layers = 1, .heads = 2, .width = 16, .inner = 32};

TEST(Transformer, ASmallOneLearnsToTellHiddenTokens) { EXPECT_GT(Accuracy(kSmall, 100), 0.9f); }

TEST(Transformer, ASmallOneLearnsInBfloat16WithAttentionOfEitherKind) {
  Transformer net = kSmall;
  net.compute = DT_BFLOAT16;
  for (const bool fused : {false, true}) {
    net.fused_attention = fused;
    EXPECT_GT(Accuracy(net, 100), 0.9f) << fused;
  }
}

}  // namespace
}  // namespace monograph::examples
