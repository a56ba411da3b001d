#include "graph/shape_inference.h"

#include <gtest/gtest.h>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Binary;
using testing::Const;
using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

class ShapeInferenceTest : public ::testing::Test {
 protected:
  // The static shape of Reshape(x, shape).
  std::string Reshaped(const Output& shape) {
    const Output y = Binary(root_, "Reshape", Placeholder(root_, DT_FLOAT, PartialShape()), shape);
    return root_.ok() ? y.shape().ToString() : root_.status().message();
  }
  Output Int(int32_t value) { return Const(root_, Tensor::Scalar<int32_t>(value)); }
  Output Ints(std::initializer_list<int32_t> values) {
    return Const(root_, Tensor::Vector<int32_t>(values));
  }
  Output Slice(const Output& x, int32_t begin, int32_t end, int32_t stride, int begin_mask,
               int end_mask, int shrink) {
    return OpBuilder(root_, "StridedSlice")
        .Input(x)
        .Input(Ints({begin}))
        .Input(Ints({end}))
        .Input(Ints({stride}))
        .Attr("begin_mask", begin_mask)
        .Attr("end_mask", end_mask)
        .Attr("shrink_axis_mask", shrink)
        .BuildOutput();
  }
  Graph graph_{&TestRegistry()};
  Scope root_{&graph_};
};

TEST_F(ShapeInferenceTest, AConstantShapeIsReadAlsoThroughIdentity) {
  EXPECT_EQ(Reshaped(Ints({2, -1, 4})), "[2,?,4]");
  EXPECT_EQ(Reshaped(Unary(root_, "Identity", Ints({5}))), "[5]");
  EXPECT_EQ(Reshaped(Const(root_, Tensor::Vector<int32_t>({}))), "[]");
}

TEST_F(ShapeInferenceTest, AnUnknownShapeKeepsItsRank) {
  EXPECT_EQ(Reshaped(Placeholder(root_, DT_INT32, {3})), "[?,?,?]");
  EXPECT_EQ(Reshaped(Placeholder(root_, DT_INT32, {-1})), "<unknown>");
  EXPECT_EQ(Reshaped(Placeholder(root_, DT_INT32, PartialShape())), "<unknown>");
}

TEST_F(ShapeInferenceTest, MistakenShapesAreRefused) {
  EXPECT_NE(Reshaped(Ints({2, -3}))
                .find("input 1 is a shape with dimension -3; only -1 (unknown) may be negative"),
            std::string::npos);
}

TEST_F(ShapeInferenceTest, AMatrixIsNoShape) {
  EXPECT_NE(
      Reshaped(Placeholder(root_, DT_INT32, {1, 1})).find("must be a vector, but has shape [1,1]"),
      std::string::npos);
}

TEST_F(ShapeInferenceTest, AShapeOfTooManyDimensionsIsRefused) {
  const Output dims = Const(root_, Tensor::FromValues<int32_t>(
                                       Shape{kMaxRank + 1}, std::vector<int32_t>(kMaxRank + 1, 1)));
  EXPECT_NE(Reshaped(dims).find("at most 12 are supported"), std::string::npos);
}

TEST_F(ShapeInferenceTest, ShapesThatAreComputedAreFollowed) {
  const Output images = Placeholder(root_, DT_FLOAT, {-1, 28, 28, 3});
  const Output shape = Unary(root_, "Shape", images);
  EXPECT_EQ(Reshaped(shape), "[?,28,28,3]");
  const Output batch = Slice(shape, 0, 1, 1, 0, 0, 1);
  const Outputs flat = {batch, Int(-1)};
  EXPECT_EQ(Reshaped(OpBuilder(root_, "Pack").Inputs(flat).BuildOutput()), "[?,?]");
  const Output width = Slice(shape, -2, 0, 1, 0, 0, 1);
  const Outputs packed = {batch, Binary(root_, "Mul", width, Int(10))};
  EXPECT_EQ(Reshaped(OpBuilder(root_, "Pack").Inputs(packed).BuildOutput()), "[?,280]");
  const Outputs parts = {Slice(shape, 1, 0, 1, 0, 1, 0), Ints({7}), Int(0)};
  EXPECT_EQ(Reshaped(OpBuilder(root_, "ConcatV2").Inputs(parts).BuildOutput()), "[28,28,3,7]");
  EXPECT_EQ(Reshaped(Slice(shape, 0, 0, -1, 1, 1, 0)), "[3,28,28,?]");
  EXPECT_EQ(Reshaped(Slice(shape, 0, 100, 2, 0, 0, 0)), "[?,28]");
}

TEST_F(ShapeInferenceTest, ADiamondOfShapeArithmeticEndsQuickly) {
  Output x = Unary(root_, "Shape", Placeholder(root_, DT_FLOAT, {2, 2}));
  for (int i = 0; i < 60; ++i) x = Binary(root_, "Mul", x, x);
  EXPECT_EQ(Reshaped(x), "[?,?]");
}

TEST_F(ShapeInferenceTest, AxesCountFromBothEnds) {
  EXPECT_EQ(*NormalizeAxis(-1, 4), 3);
  EXPECT_EQ(*NormalizeAxis(0, 1), 0);
  EXPECT_EQ(NormalizeAxis(2, 2).status().message(),
            "axis 2 is not in [-2, 2), as a tensor of rank 2 needs");
  EXPECT_FALSE(NormalizeAxis(0, 0).ok());
}

TEST_F(ShapeInferenceTest, SharedFunctionsBroadcastAndMerge) {
  const Output a = Placeholder(root_, DT_FLOAT, {-1, 3}), b = Placeholder(root_, DT_FLOAT, {5, 1});
  EXPECT_EQ(Binary(root_, "Mul", a, b).shape().ToString(), "[5,3]");
  const Outputs both = {a, Placeholder(root_, DT_FLOAT, {4, -1})};
  EXPECT_EQ(OpBuilder(root_, "AddN").Inputs(both).BuildOutput().shape().ToString(), "[4,3]");
  const Outputs wrong = {a, b};
  OpBuilder(root_, "AddN").Inputs(wrong).Build();
  EXPECT_NE(root_.status().message().find("do not agree"), std::string::npos);
}

}  // namespace
}  // namespace monograph
