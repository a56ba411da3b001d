// Branches and loops whose nodes are on GPUs (tests/gpu/fake/session_gpus.h): the bits are a CPU's,
// what a loop carries stays on its GPU, and what fails or takes too long ends. The other tests of
// this program, too, run on GPUs where there are some (MG_FAKE_GPUS).
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "client/registries.h"
#include "client/session.h"
#include "graph/function.h"
#include "graph/gradients.h"
#include "ops/activation/activation.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/tensor_list/tensor_list.h"
#include "ops/variable/variable.h"
#include "tests/gpu/fake/session_gpus.h"

namespace monograph {
namespace {

using testing::fake_gpus;
using testing::FakeDrivers;

constexpr char kCpu0[] = "/device:CPU:0", kGpu0[] = "/device:GPU:0", kGpu1[] = "/device:GPU:1";

// Small numbers.
Tensor Numbers(const Shape& shape, float from) {
  Tensor tensor = Tensor::Allocate(DT_FLOAT, shape).value();
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<float>()[i] = from + 0.01f * static_cast<float>(i * 7 % 23);
  return tensor;
}

class ControlFlowOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fake_gpus.count < 2) GTEST_SKIP() << "no GPUs: MG_FAKE_GPUS is below 2";
  }
  void TearDown() override { fake_gpus.replay = true; }

  // A graph: what it runs at first, and what each step fetches and runs.
  struct Program {
    Graph graph = NewGraph();
    Scope root{&graph};
    std::vector<Operation> init, targets;
    Outputs fetches;
    std::unique_ptr<Session> session;

    Status Open() {
      MG_RETURN_IF_ERROR(root.status());
      MG_ASSIGN_OR_RETURN(session, Session::Local(graph, {}));
      return init.empty() ? Status() : session->Run({}, {}, init).status();
    }
    Result<std::vector<Tensor>> Run(const std::vector<std::pair<Output, Tensor>>& feeds = {}) {
      return session->Run(feeds, fetches, targets);
    }
  };
  using Build = std::function<void(const std::string& device, Program* program)>;

  static std::vector<std::vector<Tensor>> Values(const Build& build, const std::string& device,
                                                 int steps) {
    Program program;
    build(device, &program);
    std::vector<std::vector<Tensor>> values;
    const Status opened = program.Open();
    EXPECT_TRUE(opened.ok()) << opened;
    for (int step = 0; step < steps && opened.ok(); ++step) {
      auto of_step = program.Run();
      EXPECT_TRUE(of_step.ok()) << of_step.status();
      if (of_step.ok()) values.push_back(std::move(of_step).value());
    }
    return values;
  }
  // On a GPU, with graphs and without, as on a CPU.
  static void ExpectTheBitsOfTheCpu(const Build& build, int steps) {
    const auto cpu = Values(build, kCpu0, steps);
    for (const bool replay : {true, false}) {
      fake_gpus.replay = replay;
      const auto gpu = Values(build, kGpu0, steps);
      EXPECT_EQ(FakeDrivers()[0]->counts().launches > 0, replay);
      ASSERT_EQ(gpu.size(), cpu.size());
      for (size_t step = 0; step < cpu.size(); ++step) {
        ASSERT_EQ(gpu[step].size(), cpu[step].size());
        for (size_t i = 0; i < cpu[step].size(); ++i) {
          EXPECT_TRUE(BitEqual(gpu[step][i], cpu[step][i]))
              << "fetch " << i << " of step " << step << (replay ? ", with graphs" : "");
        }
      }
    }
  }
  // x in so many iterations of a body that CUDA graphs replay.
  static Output Iterate(const Scope& s, const Output& x, int32_t iterations) {
    return While(
        s, {Const(s, int32_t{0}), x},
        [&](const Scope& in, const Outputs& v) { return Less(in, v[0], Const(in, iterations)); },
        [&](const Scope& in, const Outputs& v) {
          Output y = v[1];
          for (int i = 0; i < 3; ++i) y = Sigmoid(in, Cumsum(in, Tanh(in, y), Const(in, 0)));
          return Outputs{Add(in, v[0], Const(in, int32_t{1})), y};
        })[1];
  }
};

TEST_F(ControlFlowOnGpus, ARecurrentNetworkLearnsWithTheBitsOfTheCpu) {
  ExpectTheBitsOfTheCpu(
      [](const std::string& device, Program* p) {
        const Scope s = p->root.WithDevice(device);
        const Output w = VarHandle(s.WithOpName("w"), DT_FLOAT, {8, 4});
        p->init.push_back(AssignVariable(s, w, Const(s, Numbers({8, 4}, -0.1f))));
        const Output value = ReadVariable(s, w);
        const DynamicRnnOutputs rnn = DynamicRnn(
            s, Const(s, Numbers({3, 12, 4}, 0.1f)), {Const(s, Numbers({3, 4}, 0.0f))},
            [&](const Scope& in, const Output& row, const Outputs& state) -> CellOutputs {
              const Output h = Tanh(in, MatMul(in, Concat(in, {row, state[0]}, 1), value));
              const Output next = Add(in, Mul(in, h, Sigmoid(in, h)), Square(in, h));
              return {next, {Tanh(in, next)}};
            });
        const Output loss = Mean(s, Square(s, rnn.outputs), {0, 1, 2});
        const auto slopes = AddGradients(p->root, {{loss}}, {{value}});
        ASSERT_TRUE(slopes.ok()) << slopes.status();
        p->targets.push_back(AssignSubVariable(s, w, Mul(s, slopes->at(0), Const(s, 0.5f))));
        p->fetches = {rnn.outputs, rnn.state[0], loss, slopes->at(0)};
      },
      5);
}

// What an iteration leaves in a list stays, though the next ones replay the graph that made it.
TEST_F(ControlFlowOnGpus, WhatIterationsLeaveBehindKeepsItsValue) {
  ExpectTheBitsOfTheCpu(
      [](const std::string& device, Program* p) {
        const Scope s = p->root.WithDevice(device);
        const Outputs rows =
            Scan(s, {Const(s, Numbers({20, 3}, 0.0f))}, {Const(s, Numbers({3}, 0.5f))},
                 [](const Scope& in, const Outputs& v, const Outputs& row) {
                   Output y = Add(in, v[0], row[0]);
                   for (int i = 0; i < 3; ++i)
                     y = Sigmoid(in, Cumsum(in, Tanh(in, y), Const(in, 0)));
                   return Outputs{y};
                 });
        p->fetches = {rows[0]};
      },
      4);
}

// What a GPU cannot hold: a function called there keeps its list, and all that reads it, beside it.
TEST_F(ControlFlowOnGpus, AFunctionsListOfTextsIsOnTheCpu) {
  Program p;
  const auto body = std::make_shared<Graph>(NewGraph());
  const Scope in(body.get());
  const Output x = OpBuilder(in, "_Arg").Attr("T", DT_FLOAT).Attr("index", 0).BuildOutput();
  const Output any = Const(in, int32_t{-1});
  Output list = EmptyTensorList(in, any, any, DT_STRING);
  for (const char* text : {"a", "b", "c"}) list = TensorListPushBack(in, list, Const(in, text));
  Output sum = Add(in, x, Cast(in, TensorListLength(in, list), DT_FLOAT));
  sum = Add(in, sum, Cast(in, Size(in, TensorListStack(in, list, any, DT_STRING)), DT_FLOAT));
  OpBuilder(in, "_Retval").Input(sum).Attr("index", 0).Build();
  ASSERT_TRUE(in.ok()) << in.status();
  auto function = Function::Make("texts", body);
  ASSERT_TRUE(function.ok()) << function.status();
  ASSERT_TRUE(p.graph.functions().Add(std::move(*function)).ok());
  const Scope s = p.root.WithDevice(kGpu0);
  const Output given = Placeholder(s, DT_FLOAT, {2});
  const Operation call = OpBuilder(s, "StatefulPartitionedCall")
                             .Input(Neg(s, given))
                             .Attr("f", FunctionName{"texts"})
                             .Attr("Tout", std::vector<DType>{DT_FLOAT})
                             .Build();
  p.fetches = {Neg(s, call.output(0))};
  const Status opened = p.Open();
  ASSERT_TRUE(opened.ok()) << opened;
  for (int step = 1; step <= 3; ++step) {
    const auto number = static_cast<float>(step);
    const auto got = p.Run({{given, Tensor::Vector<float>({number, 1.0f})}});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(BitEqual((*got)[0], Tensor::Vector<float>({number - 6, -5.0f})));
  }
  EXPECT_GT(FakeDrivers()[0]->counts().kernels, 0);
}

TEST_F(ControlFlowOnGpus, ALoopSpansTwoGpusAndTheCpu) {
  ExpectTheBitsOfTheCpu(
      [](const std::string& device, Program* p) {
        const bool gpus = device != kCpu0;
        const Scope s = p->root.WithDevice(device),
                    other = p->root.WithDevice(gpus ? kGpu1 : kCpu0),
                    cpu = p->root.WithDevice(kCpu0);
        const Outputs end = While(
            s,
            {Const(s, int32_t{0}), Const(s, Numbers({2, 3}, 0.0f)),
             Const(other, Numbers({2, 3}, 0.2f))},
            [](const Scope& in, const Outputs& v) { return Less(in, v[0], Const(in, int32_t{9})); },
            [&](const Scope& in, const Outputs& v) {
              const Scope there = in.WithDevice(gpus ? kGpu1 : kCpu0), here = in.WithDevice(kCpu0);
              Output a = v[1], b = v[2];
              for (int i = 0; i < 2; ++i) {
                a = Tanh(in, Cumsum(in, Add(in, a, v[2]), Const(in, 0)));
                b = Tanh(there, Cumsum(there, Add(there, b, v[1]), Const(there, 0)));
              }
              return Outputs{Add(in, v[0], Const(in, int32_t{1})), Add(in, a, Square(here, b)), b};
            });
        p->fetches = {end[0], end[1], end[2], Neg(cpu, end[2])};
      },
      3);
}

// The predicate is a GPU's, and each branch has nodes of its own; one of them a loop.
TEST_F(ControlFlowOnGpus, BranchesGoByWhatAGpuHasComputed) {
  ExpectTheBitsOfTheCpu(
      [](const std::string& device, Program* p) {
        const Scope s = p->root.WithDevice(device);
        const Output w = VarHandle(s.WithOpName("w"), DT_FLOAT, {4});
        p->init.push_back(AssignVariable(s, w, Const(s, Numbers({4}, 0.5f))));
        const Output x = ReadVariable(s, w);
        const Outputs y = Cond(
            s, Less(s, Sum(s, x, {0}), Const(s, 2.0f)),
            [&](const Scope& in) {
              return Outputs{Add(in, x, Iterate(in, x, 6)), Const(in, 1.0f)};
            },
            [&](const Scope& in) {
              return Outputs{Mul(in, x, Const(in, 0.25f)), Const(in, 2.0f)};
            });
        p->targets.push_back(AssignVariable(s, w, y[0]));
        p->fetches = {y[0], y[1], Tanh(s, y[0])};
      },
      8);
}

TEST_F(ControlFlowOnGpus, EachIterationDrawsOtherNumbers) {
  ExpectTheBitsOfTheCpu(
      [](const std::string& device, Program* p) {
        const Scope s = p->root.WithDevice(device);
        const Outputs end = While(
            s, {Const(s, int32_t{0}), Const(s, Numbers({4}, 0.0f))},
            [](const Scope& in, const Outputs& v) { return Less(in, v[0], Const(in, int32_t{7})); },
            [](const Scope& in, const Outputs& v) {
              const Output drawn = RandomUniform(in, Const<int32_t>(in, {4}), DT_FLOAT, 5);
              Output y = Add(in, v[1], drawn);
              for (int i = 0; i < 3; ++i) y = Cumsum(in, Tanh(in, y), Const(in, 0));
              return Outputs{Add(in, v[0], Const(in, int32_t{1})), y};
            });
        p->fetches = {end[1]};
      },
      4);
}

// A counter and its limit are on the host, what the loop carries is on the GPU, and what it does
// not change is brought there before it begins: an iteration waits for no GPU, and copies nothing.
TEST_F(ControlFlowOnGpus, AnIterationCopiesNothing) {
  const auto copies = [](int32_t iterations) {
    Program p;
    const Scope s = p.root.WithDevice(kGpu0);
    const Output fed = Placeholder(s, DT_FLOAT, {64}), limit = Placeholder(s, DT_INT32, {});
    const Outputs end = While(
        s, {Const(s, int32_t{0}), Const(s, Numbers({64}, 0.0f))},
        [&](const Scope& in, const Outputs& v) { return Less(in, v[0], limit); },
        [&](const Scope& in, const Outputs& v) {
          return Outputs{Add(in, v[0], Const(in, int32_t{1})), Mul(in, Tanh(in, v[1]), fed)};
        });
    p.fetches = {end[1]};
    const Status opened = p.Open();
    EXPECT_TRUE(opened.ok()) << opened;
    EXPECT_TRUE(opened.ok() &&
                p.Run({{fed, Numbers({64}, 0.5f)}, {limit, Tensor::Scalar(iterations)}}).ok());
    return FakeDrivers()[0]->counts().copies;
  };
  fake_gpus.replay = false;  // a graph's inputs are copied to its own place
  EXPECT_EQ(copies(40), copies(10));
}

TEST_F(ControlFlowOnGpus, ALostGpuEndsTheLoop) {
  Program p;
  const Scope s = p.root.WithDevice(kGpu0);
  p.fetches = {Iterate(s, Const(s, Numbers({4}, 0.0f)), 1 << 30)};
  ASSERT_TRUE(p.Open().ok());
  FakeDrivers()[0]->LoseAt(testing::RecordingDriver::Call::kRecord, 50);
  const Status status = p.Run().status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_NE(status.message().find("the context of"), std::string::npos) << status;
}

TEST_F(ControlFlowOnGpus, ALoopThatTakesTooLongEndsAndTheNextStepRuns) {
  Program p;
  const Scope s = p.root.WithDevice(kGpu0);
  const Output limit = Placeholder(s, DT_INT32, {});
  const Outputs end = While(
      s, {Const(s, int32_t{0}), Const(s, Numbers({4}, 0.0f))},
      [&](const Scope& in, const Outputs& v) { return Less(in, v[0], limit); },
      [](const Scope& in, const Outputs& v) {
        return Outputs{Add(in, v[0], Const(in, int32_t{1})), Tanh(in, v[1])};
      });
  p.fetches = {end[0]};
  ASSERT_TRUE(p.Open().ok());
  const auto begin = std::chrono::steady_clock::now();
  const Status late = p.session
                          ->Run({{limit, Tensor::Scalar(int32_t{1} << 30)}}, p.fetches, {},
                                {.timeout = std::chrono::milliseconds(200)})
                          .status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  const auto next = p.Run({{limit, Tensor::Scalar(int32_t{3})}});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->at(0).scalar<int32_t>(), 3);
}

}  // namespace
}  // namespace monograph
