// A local session from the outside: feeds, fetches and targets of every form, rows of steps,
// deadlines, cancellation, what is kept between steps and what Reset drops, and the errors of each.
#include "client/session.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/complex.h"
#include "client/container.h"
#include "client/registries.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/session_tensor/session_tensor.h"
#include "ops/variable/variable.h"
#include "tests/client/session_fixture.h"
#include "train/optimizer.h"

namespace monograph {
namespace {

class SessionTest : public LocalSessionTest {
 protected:
  static void ExpectError(const Result<std::vector<Tensor>>& result, Code code,
                          std::initializer_list<const char*> parts) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status();
    for (const char* part : parts) {
      EXPECT_NE(result.status().message().find(part), std::string::npos)
          << "no '" << part << "' in: " << result.status();
    }
  }
};

TEST_F(SessionTest, ComputesWhatIsFetchedFromWhatIsFed) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {-1});
  const Output y = Add(root_, Mul(root_, x, Const(root_, 2.0f)), Const(root_, 1.0f));
  auto values = session().Run({{x, Tensor::Vector<float>({1, 2})}}, {y, x});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).ToString(), Tensor::Vector<float>({3, 5}).ToString());
  EXPECT_EQ(values->at(1).ToString(), Tensor::Vector<float>({1, 2}).ToString());
}

TEST_F(SessionTest, AnyTensorCanBeFed) {
  const Output a = Const(root_.WithOpName("a"), 3.0f);
  const Output b = Mul(root_, a, a);
  const Output c = Add(root_, b, a);
  auto values = session().Run({{b, Tensor::Scalar(100.0f)}}, {c});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 103.0f);
}

TEST_F(SessionTest, AFeedIsNeverOverwritten) {
  const Output x = Placeholder(root_, DT_FLOAT, {2});
  const Output y = Neg(root_, x);
  const Tensor value = Tensor::Vector<float>({1, 2});
  for (int i = 0; i < 3; ++i) {
    auto values = session().Run({{x, value}}, {y});
    ASSERT_TRUE(values.ok());
    EXPECT_EQ(values->at(0).data<float>()[1], -2.0f);
  }
  EXPECT_EQ(value.data<float>()[0], 1.0f);
}

TEST_F(SessionTest, VariablesKeepTheirValuesBetweenRuns) {
  const ModelVariable w = MakeVariable(root_, "w", Const(root_, 1.0f));
  const Operation more = AssignAddVariable(root_, w.handle, Const(root_, 2.0f));
  ASSERT_TRUE(session().Run({}, {}, {w.initializer}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(session().Run({}, {}, {more}).ok());
  auto value = session().Run({}, {w.value});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->at(0).scalar<float>(), 7.0f);
}

TEST_F(SessionTest, AnUninitialisedVariableIsNamed) {
  const ModelVariable w = MakeVariable(root_, "weights", Const(root_, 1.0f));
  ExpectError(session().Run({}, {w.value}), Code::kFailedPrecondition, {"weights"});
}

TEST_F(SessionTest, AMissingFeedIsNamed) {
  const Output x = Placeholder(root_.WithOpName("images"), DT_FLOAT, {-1, 4});
  const Output y = Neg(root_, x);
  ExpectError(session().Run({}, {y}), Code::kInvalidArgument, {"images", "float"});
}

TEST_F(SessionTest, AMisshapedFeedIsNamedWithBothShapes) {
  const Output x = Placeholder(root_.WithOpName("images"), DT_FLOAT, {-1, 4});
  const Output y = Neg(root_, x);
  ExpectError(session().Run({{x, Tensor::Vector<float>({1, 2})}}, {y}), Code::kInvalidArgument,
              {"'images'", "[2]", "[?,4]"});
  ExpectError(session().Run({{x, Tensor::Vector<int32_t>({1, 2})}}, {y}), Code::kInvalidArgument,
              {"'images'", "int32", "float"});
}

TEST_F(SessionTest, AScalarPlaceholderTakesNoVector) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {}), y = Neg(root_, x);
  ExpectError(session().Run({{x, Tensor::Vector<float>({1, 2})}}, {y}), Code::kInvalidArgument,
              {"'x", "[2]", "[]"});
}

TEST_F(SessionTest, AnUnknownFetchIsNamed) {
  const Output logits = Const(root_.WithOpName("logits"), 1.0f);
  ASSERT_TRUE(logits.valid());
  ExpectError(session().RunByName({}, {"logit:0"}), Code::kNotFound, {"logit"});
  ExpectError(session().RunByName({}, {"logits:3"}), Code::kNotFound, {"logits"});
  ExpectError(session().RunByName({}, {}, {"nothing"}), Code::kNotFound, {"nothing"});
}

// A step of a session without a cluster computes on the thread that calls Run.
TEST_F(SessionTest, ATimeoutEndsALongStepOfThisProcess) {
  const Output side = Placeholder(root_, DT_INT32, {});
  const Output square = Fill(root_, Pack(root_, {side, side}), Const(root_, int64_t{1}));
  const Output product = MatMul(root_.WithOpName("long_product"), square, square);
  const Output sum = Sum(root_, product, {0, 1});
  session({.inter_op_parallelism_threads = 1,
           .intra_op_parallelism_threads = 1,
           .operation_timeout = std::chrono::milliseconds(1500)});
  const auto begin = std::chrono::steady_clock::now();
  ExpectError(session().Run({{side, Tensor::Scalar<int32_t>(3000)}}, {sum}),
              Code::kDeadlineExceeded, {"did not end within 1.5 s", "'long_product' (MatMul)"});
  // It would take ten times as long and more.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(session().Run({{side, Tensor::Scalar<int32_t>(4)}}, {sum}).ok());
}

TEST_F(SessionTest, ATensorThatIsTooLargeIsRefusedWithItsNodeAndTheNextStepRuns) {
  const Output side = Placeholder(root_, DT_INT32, {});
  const Output square =
      Fill(root_.WithOpName("square"), Pack(root_, {side, side}), Const(root_, 1.0f));
  const Output sum = Sum(root_, square, {0, 1});
  ExpectError(session().Run({{side, Tensor::Scalar<int32_t>(1 << 20)}}, {sum}),
              Code::kResourceExhausted,
              {"node 'square' (Fill)", "float[1048576,1048576]", "4.0 TiB are more than the",
               "(--memory_limit)"});
  EXPECT_TRUE(session().Run({{side, Tensor::Scalar<int32_t>(4)}}, {sum}).ok());
}

TEST_F(SessionTest, AnOutputThatCanNeverBeIsRefusedBeforeTheStep) {
  const Output big =
      Fill(root_.WithOpName("big"), Const(root_, {1 << 20, 1 << 20}), Const(root_, 1.0f));
  ExpectError(session().Run({}, {Neg(root_, big)}), Code::kResourceExhausted,
              {"node 'big' (Fill)", "its output 0, float[1048576,1048576], has 4.0 TiB"});
}

TEST_F(SessionTest, NothingToRunIsAnError) {
  ExpectError(session().Run({}, {}), Code::kInvalidArgument, {"at least one target"});
}

TEST_F(SessionTest, ADeviceThatDoesNotExistIsNamedWithThoseThatDo) {
  const Output a = Const(root_.WithOpName("a").WithDevice("/device:CPU:7"), 1.0f);
  ExpectError(session().Run({}, {a}), Code::kInvalidArgument,
              {"operation a", "CPU:7", "/job:localhost/replica:0/task:0/device:CPU:0"});
}

TEST_F(SessionTest, SoftPlacementMovesANodeWithinItsTask) {
  const Output a = Const(root_.WithOpName("a").WithDevice("/device:CPU:7"), 1.0f);
  auto values = session({.allow_soft_placement = true}).Run({}, {a});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(session().DeviceOf(a)->ToString(), "/job:localhost/replica:0/task:0/device:CPU:0");
}

TEST_F(SessionTest, NodesRunOnSeveralLogicalDevices) {
  const Output a = Const(root_.WithDevice("/cpu:0"), 2.0f);
  const Output b = Neg(root_.WithDevice("/cpu:1"), a);
  const Output c = Mul(root_.WithDevice("/cpu:0"), b, a);
  auto values = session({.device_count = {{kCpu, 2}}}).Run({}, {c});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -4.0f);
  EXPECT_EQ(session().DeviceOf(b)->id, 1);
}

TEST_F(SessionTest, PlacementIsPrintedInTensorFlowsFormOnce) {
  std::string log;
  SessionOptions options;
  options.log_device_placement = PlacementLog::kFull;
  options.placement_sink = [&log](const std::string& text) { log += text; };
  const Output a = Const(root_.WithOpName("a"), 2.0f);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session(options).Run({}, {a}).ok());
  EXPECT_EQ(log, "a: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n");
}

TEST_F(SessionTest, AFailingKernelNamesItsNodeAndTheNextStepRuns) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output zero = Const(root_, 0.0f);
  const Operation check = Assert(root_.WithOpName("check"), Greater(root_, x, zero), {x});
  const Output y = Neg(root_.WithControlDependencies({check}), x);
  ExpectError(session().Run({{x, Tensor::Scalar(-1.5f)}}, {y}), Code::kInvalidArgument,
              {"check", "CPU:0", "assertion failed: [-1.5]"});
  auto values = session().Run({{x, Tensor::Scalar(1.0f)}}, {y});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -1.0f);
}

TEST_F(SessionTest, ManyStepsInFlightKeepTheirResultsApart) {
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Output y = Mul(root_, x, x);
  auto callable = session().MakeCallable({x}, {y});
  ASSERT_TRUE(callable.ok()) << callable.status();
  std::mutex mutex;
  std::condition_variable all_done;
  int done = 0, wrong = 0;
  constexpr int kSteps = 500;
  for (int i = 0; i < kSteps; ++i) {
    const Tensor feed = Tensor::Scalar(static_cast<float>(i));
    session().RunAsync(callable.value(), std::span<const Tensor>(&feed, 1),
                       [&, i](Result<std::vector<Tensor>> values) {
                         std::lock_guard lock(mutex);
                         if (!values.ok() || values->at(0).scalar<float>() !=
                                                 static_cast<float>(i) * static_cast<float>(i))
                           ++wrong;
                         if (++done == kSteps) all_done.notify_all();
                       });
  }
  std::unique_lock lock(mutex);
  ASSERT_TRUE(all_done.wait_for(lock, std::chrono::seconds(30), [&] { return done == kSteps; }));
  EXPECT_EQ(wrong, 0);
}

TEST_F(SessionTest, TheGraphMayGrowBetweenRuns) {
  const Output a = Const(root_, 2.0f);
  ASSERT_TRUE(session().Run({}, {a}).ok());
  const Output b = Neg(root_, a);
  auto values = session().Run({}, {b});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -2.0f);
}

TEST_F(SessionTest, AClosedSessionSaysSo) {
  const Output a = Const(root_, 2.0f);
  ASSERT_TRUE(session().Close().ok());
  ExpectError(session().Run({}, {a}), Code::kFailedPrecondition, {"closed"});
  EXPECT_TRUE(session().Close().ok());
}

TEST_F(SessionTest, ACallableOfAnotherSessionIsRefused) {
  const Output a = Const(root_, 2.0f);
  const Output b = Neg(root_, a);
  auto other = Session::Local(graph_).value();
  const Callable mine = session().MakeCallable({}, {a}).value();
  const Callable foreign = other->MakeCallable({}, {b}).value();
  ExpectError(session().RunCallable(foreign, {}), Code::kInvalidArgument,
              {"another session", "MakeCallable"});
  Result<std::vector<Tensor>> asynchronous = std::vector<Tensor>();
  session().RunAsync(foreign, {},
                     [&](Result<std::vector<Tensor>> result) { asynchronous = std::move(result); });
  ExpectError(asynchronous, Code::kInvalidArgument, {"another session"});
  ASSERT_TRUE(session().RunCallable(mine, {}).ok());
  // Also once its own session is closed, or gone.
  ASSERT_TRUE(other->Close().ok());
  ExpectError(other->RunCallable(foreign, {}), Code::kFailedPrecondition, {"closed"});
  other = nullptr;
  ExpectError(session().RunCallable(foreign, {}), Code::kInvalidArgument, {"another session"});
}

TEST_F(SessionTest, WhatIsOfAnotherGraphIsRefusedAlsoIfItsNameIsThere) {
  Graph other = NewGraph();
  const Scope elsewhere(&other);
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, PartialShape::Scalar());
  const Output foreign = Placeholder(elsewhere.WithOpName("x"), DT_FLOAT, PartialShape::Scalar());
  const Output y = Neg(root_, x);
  const Tensor one = Tensor::Scalar(1.0f);
  const auto refused = [&](const char* what, const Result<std::vector<Tensor>>& result) {
    ExpectError(result, Code::kInvalidArgument,
                {what, "'x', is not an element of this session's graph", "RunByName"});
  };
  refused("a feed", session().Run({{foreign, one}}, {y}));
  refused("a fetch", session().Run({{x, one}}, {foreign}));
  refused("a target", session().Run({{x, one}}, {y}, {Operation(foreign)}));
  ExpectError(session().Run({}, {Output()}), Code::kInvalidArgument, {"a fetch is not a tensor"});
  EXPECT_EQ(session().Run({{x, one}}, {y}).value()[0].scalar<float>(), -1.0f);
}

TEST_F(SessionTest, AStepRunsSeveralTimesInARow) {
  const ModelVariable w = MakeVariable(root_, "w", Const(root_, 0.0f));
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const Operation add = AssignAddVariable(root_, w.handle, x);
  ASSERT_TRUE(session().Run({}, {}, {w.initializer}).ok());
  auto values = session().Run({{x, Tensor::Scalar(2.0f)}}, {Output(x)}, {add}, {.steps = 100});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 2.0f);
  EXPECT_EQ(session().Run({}, {w.value})->at(0).scalar<float>(), 200.0f);
}

TEST_F(SessionTest, ResetDropsVariables) {
  const ModelVariable w = MakeVariable(root_, "w", Const(root_, 1.0f));
  ASSERT_TRUE(session().Run({}, {}, {w.initializer}).ok());
  ASSERT_TRUE(session().Reset().ok());
  EXPECT_EQ(session().Run({}, {w.value}).status().code(), Code::kFailedPrecondition);
}

TEST_F(SessionTest, KeepsTensorsUnderHandlesUntilTheyAreDeletedAndForNoOtherSession) {
  const Output x = Placeholder(root_, DT_FLOAT, {2}), handle = GetSessionHandle(root_, x);
  const Output given = Placeholder(root_, DT_STRING, {});
  const Output kept = GetSessionTensor(root_, given, DT_FLOAT);
  const Output as_int = GetSessionTensor(root_, given, DT_INT32);
  const Operation forget = DeleteSessionTensor(root_, given);
  const Output by_resource = OpBuilder(root_, "GetSessionHandleV2").Input(x).BuildOutput();
  const Output strings = OpBuilder(root_, "_HandleStrings").Input(by_resource).BuildOutput();
  const auto keep = [&](float a, float b) {
    return session().Run({{x, Tensor::Vector<float>({a, b})}}, {handle}).value().at(0);
  };
  const Tensor first = keep(1, 2), second = keep(3, 4);
  EXPECT_TRUE(first.strings()[0].ends_with("/device:CPU:0")) << first.ToString();
  EXPECT_NE(first.strings()[0], second.strings()[0]);
  EXPECT_EQ(session().Run({{given, first}}, {kept}).value()[0].ToString(), "float[2] = 1 2");
  EXPECT_EQ(session().Run({{given, second}}, {kept}).value()[0].ToString(), "float[2] = 3 4");
  const Status other_type = session().Run({{given, first}}, {as_int}).status();
  EXPECT_EQ(other_type.code(), Code::kInvalidArgument);
  EXPECT_NE(other_type.message().find("is float, not int32"), std::string::npos) << other_type;

  const auto other = Session::Local(graph_, {});
  ASSERT_TRUE(other.ok()) << other.status();
  const Status elsewhere = (*other)->Run({{given, first}}, {kept}).status();
  EXPECT_EQ(elsewhere.code(), Code::kInvalidArgument);
  EXPECT_NE(elsewhere.message().find(first.strings()[0]), std::string::npos) << elsewhere;

  ASSERT_TRUE(session().Run({{given, first}}, {}, {forget}).ok());
  EXPECT_EQ(session().Run({{given, first}}, {kept}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(session().Run({{given, first}}, {}, {forget}).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(session().Run({{given, second}}, {kept}).ok());

  const Tensor resource =
      session().Run({{x, Tensor::Vector<float>({5, 6})}}, {strings}).value().at(0);
  const Tensor name = Tensor::String(resource.strings()[1]);
  EXPECT_EQ(session().Run({{given, name}}, {kept}).value()[0].ToString(), "float[2] = 5 6");
}

TEST_F(SessionTest, MovesComplexNumbersAndGivesNoGradientsOfThem) {
  const Output z = Placeholder(root_, DT_COMPLEX64, {2}), rows = Pack(root_, {z, z});
  const Output variable = OpBuilder(root_, "VarHandleOp")
                              .Attr("dtype", DT_COMPLEX64)
                              .Attr("shape", PartialShape({2}))
                              .BuildOutput();
  const Operation assign = AssignVariable(root_, variable, z);
  const Operation add = AssignAddVariable(root_, variable, z);
  const Output value = ReadVariable(root_, variable, DT_COMPLEX64);
  const Output turned = OpBuilder(root_, "ConjugateTranspose")
                            .Input(rows)
                            .Input(IntsConst(root_, {1, 0}))
                            .BuildOutput();
  const Tensor numbers = Tensor::FromValues<std::complex<float>>({2}, {{1, 2}, {0, -3}});
  const auto fetched = session().Run({{z, numbers}}, {rows, Cast(root_, z, DT_FLOAT)}, {assign});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->at(0).ToString(), "complex64[2,2] = (1,2) (0,-3) (1,2) (0,-3)");
  EXPECT_EQ(fetched->at(1).ToString(), "float[2] = 1 0");
  ASSERT_TRUE(session().Run({{z, numbers}}, {}, {add}).ok());
  EXPECT_EQ(session().Run({}, {value}).value()[0].ToString(), "complex64[2] = (2,4) (0,-6)");
  // Nobody takes the transposition for the conjugate one.
  const Status no_kernel = session().Run({{z, numbers}}, {turned}).status();
  EXPECT_NE(no_kernel.message().find("complex64"), std::string::npos) << no_kernel;
  const Status gradients = AddGradients(root_, Outputs{rows}, Outputs{z}, Outputs{rows}).status();
  EXPECT_EQ(gradients.code(), Code::kUnimplemented);
  EXPECT_NE(gradients.message().find("complex numbers"), std::string::npos) << gradients;
}

TEST_F(SessionTest, ResetOfAContainerDropsWhatWasBuiltInItsScopeSlotsToo) {
  const auto variable = [&](const char* name) {
    return MakeVariable(root_, name, Const(root_, {1.0f, 2.0f}));
  };
  const Output gradient = Const(root_, {0.5f, 0.5f});
  const Optimizer momentum = Momentum(1, 0.9);
  const ModelVariable outside = variable("outside");
  std::vector<Operation> init = {outside.initializer};
  ModelVariable outer, inner;
  {
    const ContainerScope a(&graph_, "a");
    outer = variable("outer");
    {
      const ContainerScope b(&graph_, "b");
      inner = variable("inner");
    }
    momentum.ApplyGradients(root_, std::vector<GradientAndVariable>{{gradient, {}, outer}}, &init);
  }
  init.insert(init.end(), {outer.initializer, inner.initializer});
  ASSERT_TRUE(root_.ok()) << root_.status();
  ASSERT_TRUE(session().Run({}, {}, init).ok());
  const Output slot = momentum.slot(outer, "momentum")->value;

  ASSERT_TRUE(session().Reset({"a"}).ok());
  for (const Output& gone : {outer.value, slot}) {
    const Status status = session().Run({}, {gone}).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("from Container: a."), std::string::npos) << status;
  }
  EXPECT_TRUE(session().Run({}, {outside.value, inner.value}).ok());
  ASSERT_TRUE(session().Reset({"b"}).ok());
  EXPECT_FALSE(session().Run({}, {inner.value}).ok());
  EXPECT_TRUE(session().Run({}, {outside.value}).ok());
}

TEST_F(SessionTest, ATraceShowsEveryOpOfTheStep) {
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Output y = Mul(root_.WithOpName("squared"), x, x);
  RunMetadata metadata;
  auto values = session().Run({{x, Tensor::Scalar(3.0f)}}, {y}, {}, {.timeout = {}, .trace = true},
                              &metadata);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_NE(metadata.trace_json.find("\"squared\""), std::string::npos) << metadata.trace_json;
}

TEST_F(SessionTest, AMistakeInBuildingIsReportedWhenTheTensorIsFetched) {
  const Output bad =
      MatMul(root_.WithOpName("product"), Const(root_, Shape{2, 3}, {1.f, 2.f, 3.f, 4.f, 5.f, 6.f}),
             Const(root_, Shape{2, 2}, {1.f, 2.f, 3.f, 4.f}));
  EXPECT_FALSE(root_.ok());
  EXPECT_NE(root_.status().message().find("product"), std::string::npos) << root_.status();
  EXPECT_NE(root_.status().message().find("[2,3]"), std::string::npos) << root_.status();
  auto made = Session::Local(graph_);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->Run({}, {bad}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace monograph
