// SessionOptions::tensorflow_random_streams: whose count a stream goes on from. Which numbers there
// are in it the golden graph random_streams says, with TensorFlow's values.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client/registries.h"
#include "executor/worker/server.h"
#include "ops/constant/constant.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/philox_stream.h"
#include "ops/random/random.h"
#include "tests/client/session_fixture.h"
#include "transport/transports.h"

namespace monograph {
namespace {

constexpr int64_t kSeed = 7, kElements = 6;

// What run `run` of a node of kElements uniform floats draws.
std::vector<float> UniformOfRun(uint64_t run, int64_t seed = kSeed) {
  using ops::random::PhiloxStream;
  const PhiloxStream stream =
      PhiloxStream(0, 0, static_cast<uint64_t>(seed)).After(run * kElements * 256);
  std::vector<float> values;
  for (uint64_t group = 0; values.size() < size_t{kElements}; ++group) {
    float four[4];
    ops::random::UniformValues().Fill<float>(stream, group, four);
    for (int i = 0; i < 4 && values.size() < size_t{kElements}; ++i) values.push_back(four[i]);
  }
  return values;
}

std::vector<float> Floats(const Tensor& tensor) {
  const std::span<const float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

class RandomStreamsTest : public LocalSessionTest {
 protected:
  Output Uniform(const Scope& scope, int64_t seed = kSeed) {
    return RandomUniform(scope, IntsConst(scope, {kElements}), DT_FLOAT, seed);
  }
  Session& WithStreams() { return session({.tensorflow_random_streams = true}); }
  std::vector<float> Fetch(const Output& x) {
    const auto values = WithStreams().Run({}, {x});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? Floats(values->front()) : std::vector<float>();
  }
};

TEST_F(RandomStreamsTest, ANodeGoesOnInEverySignature) {
  const Output x = Uniform(root_), y = Uniform(root_), sum = Add(root_, x, y);
  EXPECT_EQ(Fetch(x), UniformOfRun(0));
  EXPECT_EQ(Fetch(x), UniformOfRun(1));
  const auto both = WithStreams().Run({}, {x, y, sum});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(Floats((*both)[0]), UniformOfRun(2));
  EXPECT_EQ(Floats((*both)[1]), UniformOfRun(0));  // a node with the same seeds, and its own count
  EXPECT_EQ(Fetch(x), UniformOfRun(3));
}

TEST_F(RandomStreamsTest, ANodeGoesOnWhenItsSignatureWasDropped) {
  const Output x = Uniform(root_);
  std::vector<Output> others;
  for (int i = 0; i < 70; ++i) others.push_back(Const(root_, static_cast<float>(i)));
  EXPECT_EQ(Fetch(x), UniformOfRun(0));
  for (const Output& other : others) Fetch(other);
  EXPECT_EQ(Fetch(x), UniformOfRun(1));
}

TEST_F(RandomStreamsTest, ANodeGoesOnInARowOfSteps) {
  const Output x = Uniform(root_);
  const auto last = WithStreams().Run({}, {x}, {}, {.steps = 20});
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(Floats(last->front()), UniformOfRun(19));
}

TEST_F(RandomStreamsTest, AnIterationOfALoopIsARun) {
  const Outputs end = While(
      root_, {Const(root_, 0), Zeros(root_, Shape{kElements})},
      [](const Scope& s, const Outputs& v) { return Less(s, v[0], Const(s, 3)); },
      [this](const Scope& s, const Outputs& v) {
        return Outputs{Add(s, v[0], Const(s, 1)), Add(s, Mul(s, v[1], Const(s, 0.5f)), Uniform(s))};
      },
      {.parallel_iterations = 1});
  std::vector<float> expected(kElements);
  for (uint64_t run = 0; run < 6; ++run) {
    if (run == 3) {
      EXPECT_EQ(Fetch(end[1]), expected);
      expected.assign(kElements, 0);
    }
    const std::vector<float> drawn = UniformOfRun(run);
    for (size_t i = 0; i < size_t{kElements}; ++i) expected[i] = expected[i] * 0.5f + drawn[i];
  }
  EXPECT_EQ(Fetch(end[1]), expected);
}

TEST_F(RandomStreamsTest, ASessionBeginsAnew) {
  const Output x = Uniform(root_);
  EXPECT_EQ(Fetch(x), UniformOfRun(0));
  session_ = nullptr;
  EXPECT_EQ(Fetch(x), UniformOfRun(0));
}

TEST_F(RandomStreamsTest, OtherNodesAndSessionsDrawByNodeAndStep) {
  const Output seeded = Uniform(root_), bare = Uniform(root_, 0);
  const auto with = WithStreams().Run({}, {seeded, bare});
  ASSERT_TRUE(with.ok()) << with.status();
  session_ = nullptr;
  const auto without = session({}).Run({}, {seeded, bare});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_NE(Floats((*with)[0]), Floats((*without)[0]));
  EXPECT_EQ(Floats((*with)[1]), Floats((*without)[1]));
}

TEST_F(RandomStreamsTest, ARefusedRunTakesNothing) {
  const Output shape = Placeholder(root_, DT_INT32, {-1});
  const Output x = RandomUniform(root_, shape, DT_FLOAT, kSeed);
  const auto draw = [&](int32_t n) {
    return WithStreams().Run({{shape, Tensor::Vector<int32_t>({n})}}, {x});
  };
  EXPECT_EQ(Floats(draw(kElements)->front()), UniformOfRun(0));
  EXPECT_EQ(draw(-1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(draw(0)->front().elements(), 0);
  EXPECT_EQ(Floats(draw(kElements)->front()), UniformOfRun(1));
}

TEST_F(RandomStreamsTest, ADaemonCountsForItsSessions) {
  Registries& registries = DefaultRegistries();
  ServerOptions options;
  options.worker.task = {.job = "worker", .replica = 0, .task = 0};
  options.worker.ops = &registries.ops;
  options.worker.kernels = &registries.kernels;
  options.worker.make_transport = ChooseTransport({}, {.loopback = true}).value();
  const auto daemon = Server::Start(std::move(options)).value();
  const auto cluster = ClusterSpec::FromHosts({{"worker", daemon->address()}}).value();
  const Output x = Uniform(root_.WithDevice("/job:worker/task:0"));
  for (int connected = 0; connected < 2; ++connected) {
    const auto session = Session::Connect(cluster, graph_, {.tensorflow_random_streams = true});
    ASSERT_TRUE(session.ok()) << session.status();
    for (uint64_t run = 0; run < 2; ++run) {
      const auto values = (*session)->Run({}, {x});
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ(Floats(values->front()), UniformOfRun(run));
    }
  }
}

}  // namespace
}  // namespace monograph
