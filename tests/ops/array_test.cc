// Ops that move, relabel and compute element by element: what the reference cases are too small to
// show.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "tests/ops/testing.h"

namespace monograph::testing {
namespace {

TEST(PlaceholderTest, AStepThatForgetsToFeedNamesWhatItNeeds) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = Placeholder(root.WithOpName("images"), DT_FLOAT, {-1, 784});
  KernelRunner runner(&Kernels());
  const auto result = runner.Run(graph, x.node(), {});
  ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().message().find("'images' with dtype float and shape [?,784]"),
            std::string::npos)
      << result.status();
}

TEST(PlaceholderTest, EmptyBracesAreAScalarAndNoShapeIsAnyRank) {
  Graph graph(&Ops());
  const Scope root(&graph);
  EXPECT_EQ(Placeholder(root, DT_FLOAT, {}).shape().ToString(), "[]");
  EXPECT_EQ(Placeholder(root, DT_FLOAT, {-1, 2}).shape().ToString(), "[?,2]");
  EXPECT_EQ(Placeholder(root, DT_FLOAT).shape().ToString(), "<unknown>");
  EXPECT_EQ(Placeholder(root, DT_FLOAT, PartialShape()).shape().ToString(), "<unknown>");
  const Output any = Placeholder(root, DT_FLOAT);
  EXPECT_EQ(PlaceholderWithDefault(root, any, {}).shape().ToString(), "[]");
  EXPECT_EQ(PlaceholderWithDefault(root, any, PartialShape()).shape().ToString(), "<unknown>");
  EXPECT_TRUE(root.ok()) << root.status();
}

// Those that TensorFlow of today still runs have reference cases in tests/golden/ops/array.
TEST(OtherNamesTest, AreNodesOfTheOpThatTheyName) {
  const Tensor square = Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4});
  const Tensor zero = Tensor::Scalar<int64_t>(0);
  const struct {
    const char *name, *op;
    std::vector<Tensor> inputs;
    std::vector<float> expected;
  } cases[] = {
      {"BatchMatrixDiag", "MatrixDiag", {Tensor::Vector<float>({5, 6})}, {5, 0, 0, 6}},
      {"BatchMatrixDiagPart", "MatrixDiagPart", {square}, {1, 4}},
      {"BatchMatrixSetDiag",
       "MatrixSetDiag",
       {square, Tensor::Vector<float>({5, 6})},
       {5, 2, 3, 6}},
      {"BatchMatrixBandPart", "MatrixBandPart", {square, zero, zero}, {1, 0, 0, 4}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.name);
    Graph graph(&Ops());
    const Scope root(&graph);
    OpBuilder builder(root, test.name);
    for (const Tensor& input : test.inputs)
      builder.Input(Placeholder(root, input.dtype(), PartialShape(input.shape())));
    const Output result = builder.BuildOutput();
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(graph.op(result.node()).name(), test.op);
    KernelRunner runner(&Kernels());
    const auto values = runner.Run(graph, result.node(), test.inputs);
    ASSERT_TRUE(values.ok()) << values.status();
    const auto got = (*values)[0].values<float>();
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), test.expected);
  }
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = OpBuilder(root, "PlaceholderV2")
                       .Attr("dtype", DT_FLOAT)
                       .Attr("shape", PartialShape{2, -1})
                       .BuildOutput();
  EXPECT_EQ(x.shape().ToString(), "[2,?]");
  const Output host =
      OpBuilder(root, "HostConst").Attr("dtype", DT_FLOAT).Attr("value", square).BuildOutput();
  // An attribute that AddN lacks is left out.
  const Output sum = OpBuilder(root, "AccumulateNV2")
                         .Inputs(Outputs{x, host})
                         .Attr("shape", PartialShape{2, 2})
                         .BuildOutput();
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(graph.op(x.node()).name(), "Placeholder");
  EXPECT_EQ(graph.op(host.node()).name(), "Const");
  EXPECT_EQ(graph.op(sum.node()).name(), "AddN");
  EXPECT_EQ(sum.shape().ToString(), "[2,2]");
}

TEST(SplitTest, AThousandPartsHaveTheSizesThatAConstantGives) {
  Graph graph(&Ops());
  const Scope root(&graph);
  std::vector<int64_t> sizes(1000, 2);
  sizes[1] = 5;
  const Output x = Placeholder(root, DT_FLOAT, {2003, 3});
  const Outputs parts = SplitV(root, x, sizes, 0);
  EXPECT_EQ(parts[1].shape().ToString(), "[5,3]");
  EXPECT_EQ(parts[999].shape().ToString(), "[2,3]");
  // Through an identity, and as the result of arithmetic.
  const Output axis = Const(root, 0);
  const Output counted = Add(root, Identity(root, IntsConst(root, sizes)), Const(root, 0));
  const Outputs computed = SplitV(root, x, counted, axis, 1000);
  EXPECT_EQ(computed[1].shape().ToString(), "[5,3]");
  EXPECT_TRUE(root.ok()) << root.status();
}

Tensor Strings(const Shape& shape, std::initializer_list<const char*> values) {
  Tensor tensor = Tensor::Allocate(DT_STRING, shape).value();
  std::copy(values.begin(), values.end(), tensor.strings());
  return tensor;
}

TEST(StringTest, MoveAsOtherElementsDo) {
  const char* long_one = "a string that is too long to live inside its object";
  const Tensor x = Strings({2, 2}, {"a", long_one, "c", "d"});
  const Tensor y = Strings({2, 1}, {"e", "f"});
  const Tensor one = Tensor::Scalar<int32_t>(1);
  EXPECT_TRUE(BitEqual(Run1("ConcatV2", {x, y, one}),
                       Strings({2, 3}, {"a", long_one, "e", "c", "d", "f"})));
  EXPECT_TRUE(BitEqual(Run1("GatherV2", {x, Tensor::Vector<int32_t>({1, 1}), one}),
                       Strings({2, 2}, {long_one, long_one, "d", "d"})));
  EXPECT_TRUE(BitEqual(Run1("Pack", {y, y}, {{"axis", int64_t{1}}}),
                       Strings({2, 2, 1}, {"e", "e", "f", "f"})));
  const auto columns = RunOp("Unpack", {x}, {{"num", int64_t{2}}, {"axis", int64_t{1}}});
  ASSERT_TRUE(columns.ok()) << columns.status();
  EXPECT_TRUE(BitEqual((*columns)[1], Strings({2}, {long_one, "d"})));
  const auto parts = RunOp("Split", {one, x}, {{"num_split", int64_t{2}}});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_TRUE(BitEqual((*parts)[0], Strings({2, 1}, {"a", "c"})));
  EXPECT_TRUE(BitEqual(Run1("Reshape", {x, Tensor::Vector<int32_t>({4})}),
                       Strings({4}, {"a", long_one, "c", "d"})));
}

TEST(RelabelTest, ReshapeSplitAndRowsShareTheInputsMemory) {
  const Tensor x = Random<float>({4, 6});
  EXPECT_EQ(Run1("Reshape", {x, Tensor::Vector<int32_t>({3, -1})}).raw(), x.raw());
  const auto parts = RunOp("Split", {Tensor::Scalar<int32_t>(0), x}, {{"num_split", int64_t{2}}});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ((*parts)[1].raw(), x.data<float>() + 12);
  const Tensor rows =
      Run1("Slice", {x, Tensor::Vector<int32_t>({1, 0}), Tensor::Vector<int32_t>({2, -1})});
  EXPECT_EQ(rows.raw(), x.data<float>() + 6);
}

TEST(StridedSliceTest, AMaskThatIsNoInt32IsRefusedByItsName) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {3}), i = IntsConst(root, {1});
  const auto status = [&](const char* op, std::vector<Output> inputs, const char* mask,
                          int64_t value) {
    const Scope scope(&graph);
    OpBuilder(scope, op).Inputs(inputs).Attr(mask, value).BuildOutput();
    return scope.status();
  };
  for (const char* mask :
       {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    for (const int64_t value : {int64_t{1}, int64_t{INT32_MIN}, int64_t{1} << 31, INT64_MIN}) {
      const Status of_slice = status("StridedSlice", {x, i, i, i}, mask, value);
      const Status of_gradient = status("StridedSliceGrad", {i, i, i, i, x}, mask, value);
      for (const Status& result : {of_slice, of_gradient}) {
        if (value == static_cast<int32_t>(value)) {
          EXPECT_TRUE(result.ok()) << result;
          continue;
        }
        EXPECT_EQ(result.code(), Code::kInvalidArgument);
        const std::string text = mask + (" is " + std::to_string(value)) + ", out of range";
        EXPECT_NE(result.message().find(text), std::string::npos) << result;
      }
    }
  }
}

TEST(TransposeTest, LargePermutationsMoveEveryElement) {
  ThreadPools pools(1, 3);
  const Tensor x = Random<float>({37, 5, 130});
  for (const auto& perm : {std::array<int32_t, 3>{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}}) {
    const Tensor y =
        Run1("Transpose", {x, Tensor::Vector<int32_t>({perm[0], perm[1], perm[2]})}, {}, &pools);
    std::array<int64_t, 3> at{};
    const float* got = y.data<float>();
    for (at[static_cast<size_t>(perm[0])] = 0; at[static_cast<size_t>(perm[0])] < y.shape().dim(0);
         ++at[static_cast<size_t>(perm[0])]) {
      for (at[static_cast<size_t>(perm[1])] = 0;
           at[static_cast<size_t>(perm[1])] < y.shape().dim(1);
           ++at[static_cast<size_t>(perm[1])]) {
        for (at[static_cast<size_t>(perm[2])] = 0;
             at[static_cast<size_t>(perm[2])] < y.shape().dim(2);
             ++at[static_cast<size_t>(perm[2])]) {
          ASSERT_EQ(*got++, x.data<float>()[(at[0] * 5 + at[1]) * 130 + at[2]]);
        }
      }
    }
  }
}

TEST(ElementwiseTest, ARowBroadcastOverManyRowsIsTheSameOnAnyNumberOfThreads) {
  ThreadPools pools(1, 4);
  const Tensor x = Random<float>({300, 257}), row = Random<float>({257}, 2),
               column = Random<float>({300, 1}, 3);
  for (const Tensor& other : {row, column}) {
    const Tensor one = Run1("Mul", {x, other}), many = Run1("Mul", {other, x}, {}, &pools);
    EXPECT_TRUE(BitEqual(one, many));
    for (int64_t i = 0; i < 300; ++i) {
      for (int64_t k = 0; k < 257; ++k) {
        const float factor =
            other.shape().rank() == 1 ? other.data<float>()[k] : other.data<float>()[i];
        ASSERT_EQ(one.data<float>()[i * 257 + k], x.data<float>()[i * 257 + k] * factor);
      }
    }
  }
}

TEST(ElementwiseTest, AnInputThatNobodyElseNeedsIsOverwritten) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {8}),
               y = OpBuilder(root, "Neg").Input(x).BuildOutput();
  ASSERT_TRUE(root.ok()) << root.status();
  KernelRunner runner(&Kernels());
  Tensor mine = Random<float>({8});
  const void* memory = mine.raw();
  std::vector<Tensor> inputs;
  inputs.push_back(std::move(mine));
  auto result = runner.Run(graph, y.node(), std::move(inputs));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].raw(), memory);
  const Tensor kept = (*result)[0];
  result = runner.Run(graph, y.node(), {kept});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NE((*result)[0].raw(), memory);
}

// The vectorised functions against the library's, over their whole range: at most 3 units in the
// last place.
TEST(ElementwiseTest, ExpLogAndTanhAreExactToAFewUnitsInTheLastPlace) {
  struct Function {
    const char* op;
    double (*exact)(double);
    float low, high;
  };
  for (const Function& f :
       {Function{"Exp", std::exp, -87.0f, 88.0f}, Function{"Log", std::log, 1e-3f, 1e4f},
        Function{"Tanh", std::tanh, -10.0f, 10.0f}}) {
    constexpr int64_t kCount = 200001;
    Tensor x = Tensor::Allocate(DT_FLOAT, Shape{kCount}).value();
    for (int64_t i = 0; i < kCount; ++i) {
      x.data<float>()[i] =
          f.low + (f.high - f.low) * static_cast<float>(i) / static_cast<float>(kCount - 1);
    }
    const Tensor y = Run1(f.op, {x});
    for (int64_t i = 0; i < kCount; ++i) {
      const double exact = f.exact(static_cast<double>(x.data<float>()[i]));
      const double unit = std::abs(exact) * 0x1p-23 + 1e-9;
      ASSERT_NEAR(static_cast<double>(y.data<float>()[i]), exact, 3 * unit)
          << f.op << "(" << x.data<float>()[i] << ")";
    }
  }
}

TEST(ReduceTest, SumsHaveTheSameBitsOnAnyNumberOfThreads) {
  ThreadPools two(1, 2), four(1, 4);
  const Tensor x = Random<float>({701, 3, 257});
  for (const auto& axes : {std::vector<int32_t>{0, 1, 2}, {0}, {1}, {2}, {0, 2}, {0, 1}, {1, 2}}) {
    const Tensor axes_tensor =
        Tensor::FromValues<int32_t>(Shape{static_cast<int64_t>(axes.size())}, axes);
    for (const char* op : {"Sum", "Mean", "Max"}) {
      const Tensor one = Run1(op, {x, axes_tensor});
      EXPECT_TRUE(BitEqual(one, Run1(op, {x, axes_tensor}, {}, &two))) << op;
      EXPECT_TRUE(BitEqual(one, Run1(op, {x, axes_tensor}, {}, &four))) << op;
      ExpectNear(one, Run1(op, {AsDouble(x), axes_tensor}), op[0] == 'S' ? 2e-2 : 1e-6);
    }
  }
}

TEST(ReduceTest, ALongSumOfFloatsStaysAccurate) {
  Tensor ones = Tensor::Allocate(DT_FLOAT, Shape{1 << 25}).value();
  std::fill_n(ones.data<float>(), ones.elements(), 1.0f);
  EXPECT_EQ(Run1("Sum", {ones, Tensor::Scalar<int32_t>(0)}).scalar<float>(), 33554432.0f);
}

// The texts are TensorFlow's.
TEST(AssertTest, ShowsAsManyValuesOfEachTensorAsSummarizeSays) {
  Tensor cube = Tensor::Allocate(DT_FLOAT, {2, 3, 4}).value();
  for (int i = 0; i < 24; ++i) cube.data<float>()[i] = static_cast<float>(i) / 2;
  Tensor words = Tensor::Allocate(DT_STRING, {2}).value();
  words.strings()[0] = "a b";
  words.strings()[1] = "c";
  const auto message = [&](int64_t summarize) {
    return RunOp("Assert",
                 {Tensor::Scalar(false), cube, Tensor::Vector<int32_t>({1, 2, 3}), words,
                  Tensor::Scalar(true), Tensor::Allocate(DT_FLOAT, {0, 2}).value()},
                 {{"T", std::vector<DType>{DT_FLOAT, DT_INT32, DT_STRING, DT_BOOL, DT_FLOAT}},
                  {"summarize", summarize}})
        .status()
        .message();
  };
  const auto expect = [&](int64_t summarize, const std::string& text) {
    EXPECT_NE(message(summarize).find("assertion failed: " + text), std::string::npos)
        << message(summarize);
  };
  expect(2, "[[[0 0.5...]]...] [1 2...] [a b c] [1] []");
  expect(6, "[[[0 0.5 1 1.5][2 2.5...]]...] [1 2 3] [a b c] [1] []");
  expect(-1,
         "[[[0 0.5 1 1.5][2 2.5 3 3.5][4 4.5 5 5.5]][[6 6.5 7 7.5][8 8.5 9 9.5][10 10.5 11 11.5]]] "
         "[1 2 3] [a b c] [1] []");
}

}  // namespace
}  // namespace monograph::testing
