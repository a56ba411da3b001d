#include "ops/variable/variable.h"

#include <atomic>
#include <thread>

#include "executor/step/outcome.h"
#include "graph/gradients.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/scatter_nd/scatter_nd.h"
#include "tests/ops/variable_fixture.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

TEST_F(VariableTest, ReadingAnUninitializedOneSaysWhichAndWhatToDo) {
  const Tensor handle = Handle("layer/w", DT_FLOAT, {2}).value();
  const Status status = Run("ReadVariableOp", {handle}, {{"dtype", DT_FLOAT}}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  for (const char* part : {"layer/w", "Container: localhost", "run its initializer"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
  EXPECT_FALSE((*Run("VarIsInitializedOp", {handle}))[0].scalar<bool>());
  EXPECT_EQ(
      Run("AssignAddVariableOp", {handle, Floats({1, 2})}, {{"dtype", DT_FLOAT}}).status().code(),
      Code::kFailedPrecondition);
}

TEST_F(VariableTest, TwoDefinitionsThatDisagreeAreShownBoth) {
  ASSERT_TRUE(Handle("w", DT_FLOAT, {2, 3}).ok());
  ASSERT_TRUE(Handle("w", DT_FLOAT, {2, -1}).ok());
  ASSERT_TRUE(Handle("w", DT_DOUBLE, {7}, "other").ok());
  for (const auto& [dtype, shape] :
       {std::pair<DType, PartialShape>{DT_DOUBLE, {2, 3}}, {DT_FLOAT, {3, 2}}}) {
    const Status status = Handle("w", dtype, shape).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("float[2,3]"), std::string::npos) << status;
    EXPECT_NE(status.message().find(std::string(DTypeName(dtype)) + shape.ToString()),
              std::string::npos)
        << status;
  }
}

TEST_F(VariableTest, AReadSharesTheValueAndALaterUpdateLeavesItAsItWas) {
  const Tensor handle = Make("w", Floats({1, 2, 3}));
  const Tensor snapshot = Read(handle);
  EXPECT_EQ(snapshot.buffer(), Read(handle).buffer());
  ASSERT_TRUE(
      Run("AssignAddVariableOp", {handle, Floats({10, 10, 10})}, {{"dtype", DT_FLOAT}}).ok());
  EXPECT_TRUE(BitEqual(snapshot, Floats({1, 2, 3})));
  EXPECT_TRUE(BitEqual(Read(handle), Floats({11, 12, 13})));
}

TEST_F(VariableTest, CountUpToGivesEachCallerANumberOfItsOwnAndStopsAtTheLimit) {
  const Tensor handle = Make("count", Tensor::Scalar<int64_t>(0));
  const auto count = [&] {
    return Run("ResourceCountUpTo", {handle}, {{"limit", int64_t{2}}, {"T", DT_INT64}});
  };
  for (const int64_t expected : {0, 1}) {
    const auto before = count();
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_EQ((*before)[0].scalar<int64_t>(), expected);
  }
  EXPECT_EQ(count().status().code(), Code::kOutOfRange);
  EXPECT_NE(count().status().message().find("Reached limit of 2"), std::string::npos);
  EXPECT_EQ(Read(handle, DT_INT64).scalar<int64_t>(), 2);
}

TEST_F(VariableTest, AnUpdateWithoutReadersWritesInPlace) {
  const Tensor handle = Make("w", Floats({1, 2, 3}));
  const std::shared_ptr<const Variable> found = resources_.Find<Variable>("localhost", "w").value();
  const Variable& variable = *found;
  const auto address = [&] {
    ReaderLock lock(variable.mutex);
    return variable.value.raw();
  };
  const void* const before = address();
  ASSERT_TRUE(Run("AssignSubVariableOp", {handle, Floats({1, 1, 1})}, {{"dtype", DT_FLOAT}}).ok());
  ASSERT_TRUE(Run("ResourceApplyGradientDescent", {handle, Scalar(1), Floats({0, 1, 2})}).ok());
  EXPECT_EQ(address(), before);
  EXPECT_TRUE(BitEqual(Read(handle), Floats({0, 0, 0})));
}

TEST_F(VariableTest, AWrongShapeIsRefusedWithBothShapes) {
  const Tensor handle = Handle("w", DT_FLOAT, {2, -1}).value();
  const Status status =
      Run("AssignVariableOp", {handle, Floats({1, 2})}, {{"dtype", DT_FLOAT}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("[2,?]"), std::string::npos) << status;
}

TEST_F(VariableTest, AfterDestroyingItIsUninitializedAgain) {
  const Tensor handle = Make("w", Floats({1}));
  ASSERT_TRUE(Run("DestroyResourceOp", {handle}).ok());
  EXPECT_EQ(Run("ReadVariableOp", {handle}, {{"dtype", DT_FLOAT}}).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Run("DestroyResourceOp", {handle}, {{"ignore_lookup_error", false}}).status().code(),
            Code::kNotFound);
}

TEST_F(VariableTest, AHandleOfAnotherDeviceIsRefused) {
  const Tensor handle = Make("w", Floats({1}));
  KernelRunner elsewhere(&Kernels(), {.device = "/job:worker/replica:0/task:1/device:CPU:0",
                                      .pools = nullptr,
                                      .resources = &resources_});
  const Status status =
      testing::RunOp(elsewhere, Ops(), "ReadVariableOp", {handle}, {{"dtype", DT_FLOAT}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("Trying to access resource w located in device"),
            std::string::npos)
      << status;
}

TEST_F(VariableTest, GatherTakesRowsAndNamesAnIndexOutOfRange) {
  const Tensor handle = Make("w", Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const auto rows =
      Run("ResourceGather", {handle, Tensor::Vector<int32_t>({2, 0})}, {{"dtype", DT_FLOAT}});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(BitEqual((*rows)[0], Tensor::FromValues<float>({2, 2}, {5, 6, 1, 2})));
  const Status status =
      Run("ResourceGather", {handle, Tensor::Vector<int32_t>({0, 3})}, {{"dtype", DT_FLOAT}})
          .status();
  EXPECT_NE(status.message().find("indices[1] = 3 is not in [0, 3)"), std::string::npos) << status;
}

TEST_F(VariableTest, GatherNdTakesSlicesAndNamesAnIndexOutOfRange) {
  const Tensor handle = Make("w", Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const auto gather = [&](const Tensor& indices, DType index) {
    return Run("ResourceGatherNd", {handle, indices}, {{"dtype", DT_FLOAT}, {"Tindices", index}});
  };
  const auto rows = gather(Tensor::FromValues<int32_t>({2, 1}, {2, 0}), DT_INT32);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(BitEqual((*rows)[0], Tensor::FromValues<float>({2, 2}, {5, 6, 1, 2})));
  const auto elements = gather(Tensor::FromValues<int64_t>({2, 2}, {2, 0, 0, 1}), DT_INT64);
  ASSERT_TRUE(elements.ok()) << elements.status();
  EXPECT_TRUE(BitEqual((*elements)[0], Tensor::Vector<float>({5, 2})));
  EXPECT_EQ(gather(Tensor::FromValues<int32_t>({1, 1}, {3}), DT_INT32).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(gather(Tensor::FromValues<int32_t>({1, 3}, {0, 0, 0}), DT_INT32).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(gather(Tensor::Scalar<int32_t>(0), DT_INT32).status().code(), Code::kInvalidArgument);
  const Tensor empty = Handle("empty", DT_FLOAT, {3, 2}).value();
  EXPECT_EQ(Run("ResourceGatherNd", {empty, Tensor::FromValues<int32_t>({1, 1}, {0})},
                {{"dtype", DT_FLOAT}, {"Tindices", DT_INT32}})
                .status()
                .code(),
            Code::kFailedPrecondition);
}

TEST_F(VariableTest, TheGradientOfGatherNdIsRowsOrDense) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output handle = VarHandle(root.WithOpName("w"), DT_FLOAT, {3, 2});
  const Output rows =
      ResourceGatherNd(root, handle, Const<int32_t>(root, Shape{2, 1}, {2, 0}), DT_FLOAT);
  const Output elements =
      ResourceGatherNd(root, handle, Const<int32_t>(root, Shape{2, 2}, {2, 0, 2, 0}), DT_FLOAT);
  const auto gradient_of = [&](const Output& y) {
    return AddSparseGradients(root, Outputs{Square(root, y)}, Outputs{handle});
  };
  const auto of_rows = gradient_of(rows), dense = gradient_of(elements);
  ASSERT_TRUE(of_rows.ok() && dense.ok()) << of_rows.status() << dense.status();
  EXPECT_TRUE(of_rows->front().indices.valid());
  EXPECT_FALSE(dense->front().indices.valid());
}

TEST_F(VariableTest, ScatterAddAddsRowsInOrderAndLeavesSnapshotsAsTheyWere) {
  const Tensor handle = Make("w", Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const auto before = Run("ReadVariableOp", {handle}, {{"dtype", DT_FLOAT}});
  ASSERT_TRUE(before.ok()) << before.status();
  const auto added = Run("ResourceScatterAdd",
                         {handle, Tensor::Vector<int64_t>({2, 0, 2}),
                          Tensor::FromValues<float>({3, 2}, {10, 20, 30, 40, 50, 60})},
                         {{"dtype", DT_FLOAT}, {"Tindices", DT_INT64}});
  ASSERT_TRUE(added.ok()) << added.status();
  const auto after = Run("ReadVariableOp", {handle}, {{"dtype", DT_FLOAT}});
  EXPECT_TRUE(BitEqual((*after)[0], Tensor::FromValues<float>({3, 2}, {31, 42, 3, 4, 65, 86})));
  EXPECT_TRUE(BitEqual((*before)[0], Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6})));
  const Status range =
      Run("ResourceScatterAdd",
          {handle, Tensor::Vector<int32_t>({3}), Tensor::FromValues<float>({1, 2}, {1, 1})},
          {{"dtype", DT_FLOAT}, {"Tindices", DT_INT32}})
          .status();
  EXPECT_NE(range.message().find("indices[0] = 3 is not in [0, 3)"), std::string::npos) << range;
  const Status shapes =
      Run("ResourceScatterAdd",
          {handle, Tensor::Vector<int32_t>({0}), Tensor::FromValues<float>({2}, {1, 1})},
          {{"dtype", DT_FLOAT}, {"Tindices", DT_INT32}})
          .status();
  EXPECT_NE(shapes.message().find("updates of shape [2] do not fit indices of shape [1]"),
            std::string::npos)
      << shapes;
}

TEST_F(VariableTest, AnUpdateOfAnAbortedStepLeavesTheValueAsItWas) {
  const Tensor value = Floats({1, 2, 3});
  StepOutcome outcome;
  outcome.Settle(StepOutcome::kAborted);
  KernelRunner aborted(&Kernels(), {.resources = &resources_, .outcome = &outcome});
  const Tensor indices = Tensor::Vector<int32_t>({0, 1, 2});
  for (const bool in_place : {true, false}) {
    const Tensor handle = Make(in_place ? "a" : "b", value);
    const Tensor snapshot = in_place ? Tensor() : Read(handle);
    const std::vector<std::pair<const char*, std::vector<Tensor>>> updates = {
        {"AssignVariableOp", {handle, value}},
        {"AssignAddVariableOp", {handle, value}},
        {"ResourceScatterAdd", {handle, indices, value}},
        {"ResourceApplyGradientDescent", {handle, Scalar(1), value}}};
    for (const auto& [op, inputs] : updates) {
      Attrs attrs;
      if (std::string_view(op) != "ResourceApplyGradientDescent") attrs = {{"dtype", DT_FLOAT}};
      const Status status = testing::RunOp(aborted, Ops(), op, inputs, attrs).status();
      EXPECT_EQ(status.code(), Code::kCancelled) << op << ": " << status;
      EXPECT_TRUE(BitEqual(Read(handle), value)) << op;
    }
  }
}

TEST_F(VariableTest, ScatterSubSubtractsRowsAndAScalarGoesToAllOfThem) {
  const Tensor handle = Make("w", Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const Attrs attrs{{"dtype", DT_FLOAT}, {"Tindices", DT_INT32}};
  ASSERT_TRUE(Run("ResourceScatterSub",
                  {handle, Tensor::Vector<int32_t>({2, 0}),
                   Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4})},
                  attrs)
                  .ok());
  EXPECT_TRUE(BitEqual(Read(handle), Tensor::FromValues<float>({3, 2}, {-2, -2, 3, 4, 4, 4})));
  ASSERT_TRUE(
      Run("ResourceScatterSub", {handle, Tensor::Vector<int32_t>({1, 1}), Scalar(1)}, attrs).ok());
  EXPECT_TRUE(BitEqual(Read(handle), Tensor::FromValues<float>({3, 2}, {-2, -2, 1, 2, 4, 4})));
}

TEST_F(VariableTest, ItsShapeIsThatOfTheValue) {
  const Tensor handle = Make("w", Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const auto shape = Run("VariableShape", {handle}, {{"out_type", DT_INT64}});
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_TRUE(BitEqual((*shape)[0], Tensor::Vector<int64_t>({3, 2})));
}

TEST_F(VariableTest, ManyUpdatesAtOnceAllCount) {
  const Tensor handle = Make("w", Floats({0, 0}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      KernelRunner runner(&Kernels(), {.pools = nullptr, .resources = &resources_});
      for (int i = 0; i < 100; ++i) {
        const bool ok =
            testing::RunOp(runner, Ops(), "AssignAddVariableOp", {handle, Floats({1, 2})},
                           {{"dtype", DT_FLOAT}})
                .ok() &&
            testing::RunOp(runner, Ops(), "ReadVariableOp", {handle}, {{"dtype", DT_FLOAT}}).ok();
        ASSERT_TRUE(ok);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(BitEqual(Read(handle), Floats({400, 800})));
}

// ---- one step of each optimizer, against values worked out by hand
// ---------------------------------------------------

TEST_F(VariableTest, MomentumAccumulatesAndNesterovLooksAhead) {
  for (bool nesterov : {false, true}) {
    const Tensor var = Make(nesterov ? "vn" : "v", Floats({1, 2})),
                 accum = Make(nesterov ? "an" : "a", Floats({0.5, 0}));
    ASSERT_TRUE(Run("ResourceApplyMomentum",
                    {var, accum, Scalar(0.1f), Floats({1, -1}), Scalar(0.9f)},
                    {{"use_nesterov", nesterov}})
                    .ok());
    ExpectNear(Read(accum), Tensor::Vector<double>({0.9 * 0.5 + 1, -1.0}), 1e-6);
    if (nesterov) {
      ExpectNear(Read(var),
                 Tensor::Vector<double>({1 - 0.1 * (1 + 0.9 * 1.45), 2 + 0.1 * (1 + 0.9)}), 1e-6);
    } else {
      ExpectNear(Read(var), Tensor::Vector<double>({1 - 0.1 * 1.45, 2.1}), 1e-6);
    }
  }
}

TEST_F(VariableTest, AdamFollowsItsFormula) {
  for (bool nesterov : {false, true}) {
    const std::string n = nesterov ? "n" : "";
    const Tensor var = Make("var" + n, Floats({1, 2})), m = Make("m" + n, Floats({0.1f, 0})),
                 v = Make("v" + n, Floats({0.2f, 0}));
    const std::vector<Tensor> inputs{var,
                                     m,
                                     v,
                                     Scalar(0.81f),
                                     Scalar(0.998f),
                                     Scalar(0.01f),
                                     Scalar(0.9f),
                                     Scalar(0.999f),
                                     Scalar(1e-3f),
                                     Floats({0.5f, -2})};
    const auto result =
        Run("ResourceApplyAdam", inputs, {{"use_nesterov", nesterov}, {"use_locking", true}});
    ASSERT_TRUE(result.ok()) << result.status();
    const double g[] = {0.5, -2}, m0[] = {0.1, 0}, v0[] = {0.2, 0}, x0[] = {1, 2};
    double m1[2], v1[2], x1[2];
    const double rate = 0.01 * std::sqrt(1 - 0.998) / (1 - 0.81);
    for (int i = 0; i < 2; ++i) {
      m1[i] = 0.9 * m0[i] + 0.1 * g[i];
      v1[i] = 0.999 * v0[i] + 0.001 * g[i] * g[i];
      x1[i] =
          x0[i] - rate * (nesterov ? 0.9 * m1[i] + 0.1 * g[i] : m1[i]) / (std::sqrt(v1[i]) + 1e-3);
    }
    ExpectNear(Read(m), Tensor::Vector<double>({m1[0], m1[1]}), 1e-6);
    ExpectNear(Read(v), Tensor::Vector<double>({v1[0], v1[1]}), 1e-6);
    ExpectNear(Read(var), Tensor::Vector<double>({x1[0], x1[1]}), 1e-6);
  }
}

TEST_F(VariableTest, AmsgradDividesByTheRootOfTheLargestVSoFar) {
  const Tensor var = Make("var", Floats({1, 2})), m = Make("m", Floats({0.1f, 0})),
               v = Make("v", Floats({0.2f, 0})), vhat = Make("vhat", Floats({0.9f, 0}));
  const auto result = Run("ResourceApplyAdamWithAmsgrad",
                          {var, m, v, vhat, Scalar(0.81f), Scalar(0.998f), Scalar(0.01f),
                           Scalar(0.9f), Scalar(0.999f), Scalar(1e-3f), Floats({0.5f, -2})});
  ASSERT_TRUE(result.ok()) << result.status();
  const double rate = 0.01 * std::sqrt(1 - 0.998) / (1 - 0.81);
  const double m0 = 0.9 * 0.1 + 0.1 * 0.5, m1 = 0.1 * -2, v0 = 0.999 * 0.2 + 0.001 * 0.25,
               v1 = 0.001 * 4;
  ExpectNear(Read(m), Tensor::Vector<double>({m0, m1}), 1e-6);
  ExpectNear(Read(v), Tensor::Vector<double>({v0, v1}), 1e-6);
  ExpectNear(Read(vhat), Tensor::Vector<double>({0.9, v1}), 1e-6);
  ExpectNear(Read(var),
             Tensor::Vector<double>(
                 {1 - rate * m0 / (std::sqrt(0.9) + 1e-3), 2 - rate * m1 / (std::sqrt(v1) + 1e-3)}),
             1e-6);
}

TEST_F(VariableTest, AdagradDividesByTheRootOfTheSumOfSquares) {
  const Tensor var = Make("var", Floats({1})), accum = Make("accum", Floats({0.1f}));
  ASSERT_TRUE(Run("ResourceApplyAdagrad", {var, accum, Scalar(0.5f), Floats({2})}).ok());
  ExpectNear(Read(accum), Tensor::Vector<double>({4.1}), 1e-6);
  ExpectNear(Read(var), Tensor::Vector<double>({1 - 0.5 * 2 / std::sqrt(4.1)}), 1e-6);
  ASSERT_TRUE(Run("ResourceApplyAdagradV2", {var, accum, Scalar(0.5f), Scalar(1), Floats({2})},
                  {{"update_slots", false}})
                  .ok());
  ExpectNear(Read(accum), Tensor::Vector<double>({4.1}), 1e-6);
  ExpectNear(
      Read(var),
      Tensor::Vector<double>({1 - 0.5 * 2 / std::sqrt(4.1) - 0.5 * 2 / (std::sqrt(4.1) + 1)}),
      1e-6);
}

TEST_F(VariableTest, RmsPropKeepsAMeanOfSquares) {
  const Tensor var = Make("var", Floats({1})), ms = Make("ms", Floats({1})),
               mom = Make("mom", Floats({0.3f}));
  const std::vector<Tensor> inputs{var,          ms,           mom,           Scalar(0.1f),
                                   Scalar(0.9f), Scalar(0.5f), Scalar(1e-2f), Floats({2})};
  ASSERT_TRUE(Run("ResourceApplyRMSProp", inputs).ok());
  const double s = 1 + 0.1 * (4 - 1), d = 0.5 * 0.3 + 0.1 * 2 / std::sqrt(s + 1e-2);
  ExpectNear(Read(ms), Tensor::Vector<double>({s}), 1e-6);
  ExpectNear(Read(mom), Tensor::Vector<double>({d}), 1e-6);
  ExpectNear(Read(var), Tensor::Vector<double>({1 - d}), 1e-6);
}

TEST_F(VariableTest, CenteredRmsPropTakesTheMeanGradientOff) {
  const Tensor var = Make("var", Floats({1})), mg = Make("mg", Floats({0.2f})),
               ms = Make("ms", Floats({1})), mom = Make("mom", Floats({0.3f}));
  const std::vector<Tensor> inputs{
      var, mg, ms, mom, Scalar(0.1f), Scalar(0.9f), Scalar(0.5f), Scalar(1e-2f), Floats({2})};
  ASSERT_TRUE(Run("ResourceApplyCenteredRMSProp", inputs).ok());
  const double m = 0.2 + 0.1 * (2 - 0.2), s = 1 + 0.1 * (4 - 1),
               d = 0.5 * 0.3 + 0.1 * 2 / std::sqrt(s - m * m + 1e-2);
  ExpectNear(Read(mg), Tensor::Vector<double>({m}), 1e-6);
  ExpectNear(Read(ms), Tensor::Vector<double>({s}), 1e-6);
  ExpectNear(Read(mom), Tensor::Vector<double>({d}), 1e-6);
  ExpectNear(Read(var), Tensor::Vector<double>({1 - d}), 1e-6);
}

TEST_F(VariableTest, AnUpdateNeedsDistinctInitializedVariablesOfTheGradientsShape) {
  const Tensor var = Make("var", Floats({1, 2})), accum = Make("accum", Floats({1, 2})),
               empty = Handle("empty", DT_FLOAT, {2}).value();
  const auto apply = [&](const Tensor& a, const Tensor& b, const Tensor& g) {
    return Run("ResourceApplyAdagrad", {a, b, Scalar(1), g}).status();
  };
  EXPECT_EQ(apply(var, empty, Floats({1, 1})).code(), Code::kFailedPrecondition);
  EXPECT_NE(apply(var, accum, Floats({1, 1, 1})).message().find("[3]"), std::string::npos);
  EXPECT_NE(apply(var, var, Floats({1, 1})).message().find("given twice"), std::string::npos);
  EXPECT_TRUE(BitEqual(Read(var), Floats({1, 2})));
}

}  // namespace
}  // namespace monograph
