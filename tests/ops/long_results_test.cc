// Results of kernels whose loops are cut into pieces, for inputs of several pieces.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

constexpr int64_t kMany = 200'000;

Tensor Strings(std::initializer_list<std::string> texts) {
  Tensor tensor = Tensor::Allocate(DT_STRING, Shape{static_cast<int64_t>(texts.size())}).value();
  std::copy(texts.begin(), texts.end(), tensor.strings());
  return tensor;
}
Tensor Text(const std::string& text) { return Strings({text}).Reshaped(Shape()); }

TEST(ResultsOfSeveralPieces, OfOrdersAreThoseOfASort) {
  Tensor x = Random<float>({1, kMany});
  for (int64_t i = 0; i < kMany; i += 3) x.data<float>()[i] = 0.25f;  // many are equal
  const float* const value = x.data<float>();
  std::vector<int64_t> order(kMany);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [value](int64_t a, int64_t b) { return value[b] < value[a]; });
  for (const int32_t k : {1, 7, 70'000, static_cast<int32_t>(kMany)}) {
    const auto top = RunOp("TopKV2", {x, Tensor::Scalar(k)}).value();
    for (int32_t i = 0; i < k; ++i) {
      ASSERT_EQ(top[1].data<int32_t>()[i], order[static_cast<size_t>(i)]) << i << " of " << k;
      ASSERT_EQ(top[0].data<float>()[i], value[order[static_cast<size_t>(i)]]);
    }
  }
  for (const int32_t n : {0, 5, 100'000, static_cast<int32_t>(kMany) - 1}) {
    EXPECT_EQ(Run1("NthElement", {x, Tensor::Scalar(n)}).data<float>()[0],
              value[order[static_cast<size_t>(kMany - 1 - n)]]);
  }
}

TEST(ResultsOfSeveralPieces, OfAReorderedSparseTensorAreInOrderAndEqualOnesStayInTheirs) {
  Tensor indices = Tensor::Allocate(DT_INT64, Shape{kMany, 1}).value();
  Tensor values = Tensor::Allocate(DT_INT64, Shape{kMany}).value();
  for (int64_t i = 0; i < kMany; ++i) {
    indices.data<int64_t>()[i] = (i * 7919) % 50'000;
    values.data<int64_t>()[i] = i;
  }
  Tensor shape = Tensor::Allocate(DT_INT64, Shape{1}).value();
  *shape.data<int64_t>() = 50'000;
  const auto out = RunOp("SparseReorder", {indices, values, shape}).value();
  for (int64_t i = 1; i < kMany; ++i) {
    const int64_t *index = out[0].data<int64_t>() + i, *value = out[1].data<int64_t>() + i;
    ASSERT_EQ(*index, (*value * 7919) % 50'000);
    ASSERT_TRUE(index[-1] < index[0] || (index[-1] == index[0] && value[-1] < value[0])) << i;
  }
}

TEST(ResultsOfSeveralPieces, OfSegmentsAndSlicesOfLongRowsAreSums) {
  const Tensor data = Random<float>({3, kMany});
  Tensor ids = Tensor::Allocate(DT_INT32, Shape{3}).value();
  std::copy_n(std::initializer_list<int32_t>{0, 0, 1}.begin(), 3, ids.data<int32_t>());
  Tensor all = Tensor::Allocate(DT_INT32, Shape{3}).value();
  std::iota(all.data<int32_t>(), all.data<int32_t>() + 3, 0);
  Tensor shape = Tensor::Allocate(DT_INT32, Shape{2}).value();
  shape.data<int32_t>()[0] = 2;
  shape.data<int32_t>()[1] = static_cast<int32_t>(kMany);
  const Tensor sums[] = {Run1("SegmentSum", {data, ids}),
                         Run1("SparseSegmentSum", {data, all, ids}),
                         Run1("ScatterNd", {ids.Reshaped(Shape{3, 1}), data, shape})};
  for (const Tensor& sum : sums) {
    ASSERT_TRUE(sum.valid());
    const float *x = data.data<float>(), *y = sum.data<float>();
    for (int64_t i = 0; i < kMany; ++i) {
      ASSERT_EQ(y[i], x[i] + x[kMany + i]);
      ASSERT_EQ(y[kMany + i], x[2 * kMany + i]);
    }
  }
}

TEST(ResultsOfSeveralPieces, OfLongTextsAreWhole) {
  std::string text;
  for (int64_t i = 0; i < kMany; ++i) text += static_cast<char>('a' + i % 26);
  std::string upper = text;
  for (char& letter : upper) letter = static_cast<char>(letter - 'a' + 'A');
  const Tensor one = Strings({text});
  EXPECT_EQ(*Run1("StringUpper", {one}).strings(), upper);
  EXPECT_EQ(*Run1("DecodeBase64", {Run1("EncodeBase64", {one})}).strings(), text);
  EXPECT_EQ(*Run1("AsString", {one}).strings(), text);
  EXPECT_EQ(*Run1("StringJoin", {one, one}, {{"N", int64_t{2}}}).strings(), text + text);
  const Tensor raw = Run1("DecodeRaw", {one}, {{"out_type", DT_UINT8}});
  EXPECT_EQ(std::string(static_cast<const char*>(raw.raw()), raw.bytes()), text);
  // The separator lies across the border of two pieces, and the last part is long.
  for (const size_t before : {size_t{65535}, size_t{65536}, size_t{65537}, size_t{5}}) {
    const std::string first(before, 'x'), last(kMany, 'y');
    const Tensor both = Strings({first + "<>" + last});
    const auto parts = RunOp("StringSplitV2", {both, Text("<>")}).value();
    ASSERT_EQ(parts[1].elements(), 2);
    EXPECT_EQ(parts[1].strings()[0], first);
    EXPECT_EQ(parts[1].strings()[1], last);
    const auto old = RunOp("StringSplit", {both, Text("<>")}).value();
    ASSERT_EQ(old[1].elements(), 2);
    EXPECT_EQ(old[1].strings()[0], first);
    EXPECT_EQ(old[1].strings()[1], last);
    const auto words = RunOp("StringSplitV2", {Strings({first + " " + last}), Text("")}).value();
    ASSERT_EQ(words[1].elements(), 2);
    EXPECT_EQ(words[1].strings()[1], last);
  }
}

}  // namespace
}  // namespace monograph
