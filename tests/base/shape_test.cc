#include "base/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace monograph {
namespace {

TEST(Shape, CountsElementsAndPrints) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape({2, 3}).elements(), 6);
  EXPECT_EQ(Shape({2, 0, 3}).elements(), 0);
  EXPECT_EQ(Shape({2, 3}).ToString(), "[2,3]");
  EXPECT_EQ(PartialShape({-1, 784}).ToString(), "[?,784]");
  EXPECT_EQ(PartialShape().ToString(), "<unknown>");
}

TEST(Shape, RefusesBadSizes) {
  EXPECT_FALSE(Shape::Make(std::vector<int64_t>{2, -1}).ok());
  EXPECT_FALSE(Shape::Make(std::vector<int64_t>(kMaxRank + 1, 1)).ok());
  EXPECT_FALSE(Shape::Make(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}).ok());
}

TEST(PartialShape, AcceptsAndMerges) {
  EXPECT_TRUE(PartialShape({-1, 784}).Accepts(Shape{3, 784}));
  EXPECT_FALSE(PartialShape({-1, 784}).Accepts(Shape{3, 783}));
  EXPECT_TRUE(PartialShape().Accepts(Shape{1}));
  EXPECT_EQ(PartialShape::Merge({-1, 3}, {2, -1}).value(), PartialShape({2, 3}));
  EXPECT_FALSE(PartialShape::Merge({2, 3}, {2, 4}).ok());
}

TEST(Shape, BroadcastsLikeNumPy) {
  EXPECT_EQ(BroadcastShapes(Shape{2, 1, 3}, Shape{4, 1}).value(), Shape({2, 4, 3}));
  EXPECT_EQ(BroadcastShapes(Shape{}, Shape{4, 1}).value(), Shape({4, 1}));
  EXPECT_EQ(BroadcastShapes(Shape{0}, Shape{1}).value(), Shape({0}));
  EXPECT_FALSE(BroadcastShapes(Shape{2}, Shape{3}).ok());
  EXPECT_EQ(BroadcastShapes(PartialShape{-1, 3}, PartialShape{2, 1}).value(), PartialShape({2, 3}));
}

TEST(Shape, MoreElementsThanAnIntegerCountsAreNoBroadcastAndNoSmallNumber) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(BroadcastShapes(Shape{kHuge, 1}, Shape{1, 4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(BroadcastShapes(PartialShape{kHuge, 1}, PartialShape{1, 4}).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(BroadcastShapes(PartialShape{kHuge, 1}, PartialShape{1, -1}).ok());
  EXPECT_EQ(BroadcastShapes(Shape{kHuge, 1}, Shape{1, 0}).value(), Shape({kHuge, 0}));
  EXPECT_EQ(PartialShape({kHuge, 4}).elements(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(PartialShape({kHuge, 4, 0}).elements(), 0);
}

}  // namespace
}  // namespace monograph
