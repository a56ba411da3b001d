// The encoder of the example learns its task in float and in bfloat16, and the task is what its
// header says.
#include "examples/models/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <utility>
#include <vector>

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
    EXPECT_EQ(hidden, net.hidden(16));
  }
}

TEST(Transformer, SequencesOfDifferentLengthsArePaddedAndCountAlike) {
  const Transformer net{.vocabulary = 50, .length = 32, .min_length = 4};
  const std::vector<Tensor> batch = MaskedSequences(net, 60, 7).value();
  ASSERT_EQ(batch.size(), 4u);
  std::set<int32_t> lengths;
  for (int64_t row = 0; row < 60; ++row) {
    const int32_t length = batch[3].data<int32_t>()[row];
    lengths.insert(length);
    float weights = 0;
    for (int64_t i = 0; i < 32; ++i) {
      const int64_t at = row * 32 + i;
      weights += batch[2].data<float>()[at];
      if (i < length) continue;
      EXPECT_EQ(batch[0].data<int32_t>()[at], 0);
      EXPECT_EQ(batch[2].data<float>()[at], 0);
    }
    EXPECT_FLOAT_EQ(weights, static_cast<float>(net.hidden(32)));
  }
  EXPECT_EQ(*lengths.begin(), 4);
  EXPECT_EQ(*lengths.rbegin(), 32);
  EXPECT_GT(lengths.size(), 8u);
}

// Results of steps of training on what batch(i) gives: {loss, accuracy} of each.
using BatchFn = std::function<std::vector<Tensor>(int)>;
std::vector<std::vector<Tensor>> Train(const Transformer& net, int64_t rows, int steps,
                                       const BatchFn& batch) {
  std::vector<std::vector<Tensor>> results;
  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(3);
  const Outputs inputs = MaskedPlaceholders(root, net, rows);
  const auto step = Replicate(root, {"/job:localhost/replica:0/task:0/device:CPU:0"}, inputs,
                              net.Training(), Adam(0.01));
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return results;
  const auto session = Session::Local(graph);
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Run({}, {}, {step->init}).ok());
  for (int i = 0; i < steps; ++i) {
    std::vector<Feed> feeds;
    const std::vector<Tensor> values = batch(i);
    for (size_t part = 0; part < inputs.size(); ++part)
      feeds.emplace_back(inputs[part], values[part]);
    auto result = (*session)->Run(feeds, {step->results[0], step->results[1]}, {step->train});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) break;
    results.push_back(std::move(result).value());
  }
  return results;
}

// The mean accuracy of the last 10 of `steps` steps.
float Accuracy(const Transformer& net, int steps) {
  constexpr int64_t kRows = 32;
  const auto results = Train(net, kRows, steps, [&](int i) {
    return MaskedSequences(net, kRows, static_cast<uint64_t>(i)).value();
  });
  if (results.size() < static_cast<size_t>(steps)) return 0;
  float sum = 0;
  for (size_t i = results.size() - 10; i < results.size(); ++i)
    sum += results[i][1].scalar<float>();
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

TEST(Transformer, WhatIsPaddedChangesNoBitOfTraining) {
  Transformer net = kSmall;
  net.length = 12;
  net.min_length = 4;
  net.layers = 2;
  std::vector<float> first;
  for (const bool fused : {false, true}) {
    net.fused_attention = fused;
    std::vector<float> losses;
    // Token 0 behind the lengths, then another one.
    for (const int32_t padding : {0, 5}) {
      const auto results = Train(net, 6, 5, [&](int i) {
        auto batch = MaskedSequences(net, 6, static_cast<uint64_t>(i)).value();
        for (int64_t at = 0; at < 6 * 12; ++at) {
          if (at % 12 >= batch[3].data<int32_t>()[at / 12]) batch[0].data<int32_t>()[at] = padding;
        }
        return batch;
      });
      ASSERT_EQ(results.size(), 5u);
      for (const auto& result : results) losses.push_back(result[0].scalar<float>());
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(losses[i], losses[i + 5]) << fused << " " << i;
    first.push_back(losses[0]);
  }
  EXPECT_NEAR(first[0], first[1], 1e-5f);
  // Without lengths padding would count.
  Transformer unmasked = net;
  unmasked.min_length = 0;
  const auto results =
      Train(unmasked, 6, 1, [&](int) { return MaskedSequences(net, 6, 0).value(); });
  ASSERT_EQ(results.size(), 1u);
  EXPECT_GT(std::abs(results[0][0].scalar<float>() - first[0]), 1e-4f);
}

}  // namespace
}  // namespace monograph::examples
