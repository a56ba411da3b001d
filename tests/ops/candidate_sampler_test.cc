// Candidate samplers where TensorFlow's values are no measure: seeds of 0, files of weights. What
// they draw by seeds is in tests/golden/ops/candidates.pb, and run after run in
// tests/golden/graphs/candidate_samplers.
#include "ops/candidate_sampler/candidate_sampler.h"

#include <cfloat>
#include <fstream>
#include <set>

#include "ops/constant/constant.h"
#include "tests/ops/testing.h"
#include "tests/temporary_folder.h"

namespace monograph::testing {
namespace {

// The outputs of a node that samples 20 of 1000 classes.
std::vector<Tensor> Samples(uint64_t step, int64_t seed,
                            CandidateSamples (*sampler)(const Scope&, const Output&, int64_t,
                                                        const CandidateSamplerOptions&)) {
  const Tensor classes = Tensor::FromValues<int64_t>(Shape{2, 1}, {3, 999});
  Graph graph(&Ops());
  const Scope root(&graph);
  const CandidateSamples samples =
      sampler(root, Const(root, classes), 1, {.num_sampled = 20, .range_max = 1000, .seed = seed});
  EXPECT_TRUE(root.ok()) << root.status();
  KernelRunner runner(&Kernels(), {.step_id = step});
  const auto outputs = runner.Run(graph, samples.sampled.node(), {classes});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *outputs : std::vector<Tensor>(3);
}

TEST(CandidateSamplers, DrawByNodeAndStepWhereThereIsNoSeed) {
  for (auto* sampler : {&UniformCandidateSampler, &LogUniformCandidateSampler}) {
    const Tensor drawn = Samples(1, 0, sampler)[0];
    EXPECT_TRUE(BitEqual(drawn, Samples(1, 0, sampler)[0]));
    EXPECT_FALSE(BitEqual(drawn, Samples(2, 0, sampler)[0]));
    EXPECT_TRUE(BitEqual(Samples(1, 7, sampler)[0], Samples(2, 7, sampler)[0]));
    const auto values = drawn.values<int64_t>();
    EXPECT_EQ(std::set<int64_t>(values.begin(), values.end()).size(), 20u);
  }
}

TEST(CandidateSamplers, FindTrueClassesAmongTheSampledOnes) {
  const Tensor classes = Tensor::FromValues<int64_t>(Shape{3, 2}, {4, 5, 6, 7, 7, 9}),
               sampled = Tensor::Vector<int64_t>({7, 0, 4});
  Graph graph(&Ops());
  const Scope root(&graph);
  const AccidentalHits hits =
      ComputeAccidentalHits(root, Const(root, classes), Const(root, sampled), 2);
  KernelRunner runner(&Kernels());
  const auto outputs = runner.Run(graph, hits.indices.node(), {classes, sampled});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(BitEqual((*outputs)[0], Tensor::Vector<int32_t>({0, 1, 2})));
  EXPECT_TRUE(BitEqual((*outputs)[1], Tensor::Vector<int64_t>({2, 0, 0})));
  EXPECT_TRUE(BitEqual((*outputs)[2], Tensor::Vector<float>({-FLT_MAX, -FLT_MAX, -FLT_MAX})));
}

class WeightsFileTest : public ::testing::Test {
 protected:
  Result<std::vector<Tensor>> Run(int64_t range, Attrs attrs) {
    attrs.Set("num_true", int64_t{1});
    attrs.Set("num_sampled", int64_t{50});
    attrs.Set("unique", false);
    attrs.Set("seed", int64_t{3});
    attrs.Set("range_max", range);
    return RunOp("FixedUnigramCandidateSampler", {Tensor::FromValues<int64_t>(Shape{1, 1}, {0})},
                 attrs);
  }
  std::string File(const std::string& text) {
    const std::string path = folder_.path() + "/weights";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(WeightsFileTest, AFileStandsForItsWeights) {
  const std::string path = File("the,0.5\n\nof, 2 \r\na,b,8\n1e-2");
  const auto from_file = Run(4, {{"vocab_file", path}}),
             given = Run(4, {{"unigrams", std::vector<float>{0.5, 2, 8, 0.01f}}});
  ASSERT_TRUE(from_file.ok() && given.ok()) << from_file.status() << given.status();
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(BitEqual((*from_file)[i], (*given)[i])) << i;
}

TEST_F(WeightsFileTest, AShardTakesItsOwnLinesOnly) {
  const std::string path = File("a,1\nb,no number\nc,3\n");
  const auto shard = Run(2, {{"vocab_file", path}, {"num_shards", int64_t{2}}});
  EXPECT_TRUE(shard.ok()) << shard.status();
}

TEST_F(WeightsFileTest, WhatIsNoFileOfWeightsIsRefused) {
  const auto code = [this](int64_t range, const std::string& path) {
    return Run(range, {{"vocab_file", path}}).status().code();
  };
  EXPECT_EQ(code(2, File("a,1\nb,two\n")), Code::kInvalidArgument);
  EXPECT_EQ(code(2, File("a,1\nb,\n")), Code::kInvalidArgument);
  EXPECT_EQ(code(2, File("1\n2\n3\n")), Code::kInvalidArgument);
  EXPECT_EQ(code(INT32_MAX, File("1\n2\n3\n")), Code::kInvalidArgument);
  EXPECT_EQ(code(1, File("")), Code::kInvalidArgument);
  EXPECT_EQ(code(1, folder_.path() + "/none"), Code::kNotFound);
  EXPECT_EQ(code(1, "/dev/zero"), Code::kFailedPrecondition);
  EXPECT_EQ(code(1, folder_.path()), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace monograph::testing
