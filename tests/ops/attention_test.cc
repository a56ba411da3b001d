// Attention as one op, and its gradient, against what their formulas say in double.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

struct Dims {
  int64_t n, rows, columns, heads, size;
  std::vector<int32_t> lengths = {};  // of each sequence, if there are any
  bool causal = false;
  // How many columns row i of sequence `which` sees.
  size_t Seen(int64_t which, int64_t i) const {
    const int64_t length = lengths.empty() ? columns : lengths[static_cast<size_t>(which)];
    return static_cast<size_t>(causal ? std::min(length, i + 1) : length);
  }
  Shape query() const { return {n, rows, heads, size}; }
  Shape value() const { return {n, columns, heads, size}; }
};

// A tensor of float, and where an element of a head is.
struct Tokens {
  const Tensor& tensor;
  double operator()(int64_t n, int64_t head, int64_t token, int64_t d) const {
    const Shape shape = tensor.shape();
    return static_cast<double>(
        tensor.data<float>()[((n * shape[1] + token) * shape[2] + head) * shape[3] + d]);
  }
};

// The output and the gradients of query, key and value, as doubles, for a gradient g of the output.
std::vector<Tensor> Reference(const Dims& s, double scale, const Tensor& query, const Tensor& key,
                              const Tensor& value, const Tensor& gradient) {
  std::vector<Tensor> results;
  for (const Shape& shape : {s.query(), s.query(), s.value(), s.value()}) {
    results.push_back(Tensor::Allocate(DT_DOUBLE, shape).value());
    std::fill_n(results.back().data<double>(), shape.elements(), 0.0);
  }
  const Tokens q{query}, k{key}, v{value}, g{gradient};
  const auto add = [&](size_t which, int64_t n, int64_t head, int64_t token, int64_t d, double by) {
    const Shape shape = results[which].shape();
    results[which].data<double>()[((n * shape[1] + token) * shape[2] + head) * shape[3] + d] += by;
  };
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t head = 0; head < s.heads; ++head) {
      for (int64_t i = 0; i < s.rows; ++i) {
        std::vector<double> p(s.Seen(n, i)), dp(p.size());
        double top = -std::numeric_limits<double>::infinity(), sum = 0, mean = 0;
        for (size_t j = 0; j < p.size(); ++j) {
          const auto column = static_cast<int64_t>(j);
          for (int64_t d = 0; d < s.size; ++d) {
            p[j] += scale * q(n, head, i, d) * k(n, head, column, d);
            dp[j] += g(n, head, i, d) * v(n, head, column, d);
          }
          top = std::max(top, p[j]);
        }
        for (double& weight : p) sum += weight = std::exp(weight - top);
        for (size_t j = 0; j < p.size(); ++j) mean += dp[j] * (p[j] /= sum);
        for (size_t j = 0; j < p.size(); ++j) {
          const auto column = static_cast<int64_t>(j);
          const double ds = scale * p[j] * (dp[j] - mean);
          for (int64_t d = 0; d < s.size; ++d) {
            add(0, n, head, i, d, p[j] * v(n, head, column, d));
            add(1, n, head, i, d, ds * k(n, head, column, d));
            add(2, n, head, column, d, ds * q(n, head, i, d));
            add(3, n, head, column, d, p[j] * g(n, head, i, d));
          }
        }
      }
    }
  }
  return results;
}

Tensor Cast(const Tensor& tensor, DType to) {
  return Run1("Cast", {tensor}, {{"SrcT", tensor.dtype()}, {"DstT", to}});
}

// {output, dquery, dkey, dvalue} of inputs rounded to `dtype`, as floats; as many of the inputs.
struct Computed {
  std::vector<Tensor> inputs, results;
};
Computed Compute(const Dims& s, float scale, DType dtype, ThreadPools* pools = nullptr) {
  Computed all;
  std::vector<Tensor> narrow;
  for (const Shape& shape : {s.query(), s.value(), s.value(), s.query()}) {
    narrow.push_back(Cast(Random<float>(shape, narrow.size() + 1), dtype));
    all.inputs.push_back(Cast(narrow.back(), DT_FLOAT));
  }
  std::vector<Tensor> lengths;
  if (!s.lengths.empty()) {
    lengths.push_back(Tensor::Allocate(DT_INT32, Shape{s.n}).value());
    std::copy(s.lengths.begin(), s.lengths.end(), lengths[0].data<int32_t>());
  }
  const Attrs attrs{{"T", dtype},
                    {"scale", scale},
                    {"num_lengths", static_cast<int64_t>(lengths.size())},
                    {"causal", s.causal}};
  std::vector<Tensor> in{narrow[0], narrow[1], narrow[2]};
  in.insert(in.end(), lengths.begin(), lengths.end());
  const auto forward = RunOp("_FusedAttention", in, attrs, pools);
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) return all;
  in.insert(in.begin() + 3, {(*forward)[0], (*forward)[1], narrow[3]});
  const auto backward = RunOp("_FusedAttentionGrad", in, attrs, pools);
  EXPECT_TRUE(backward.ok()) << backward.status();
  if (!backward.ok()) return all;
  for (const Tensor& tensor : {(*forward)[0], (*backward)[0], (*backward)[1], (*backward)[2]})
    all.results.push_back(Cast(tensor, DT_FLOAT));
  return all;
}

TEST(AttentionTest, IsWhatItsFormulasSayForEachTypeAndSize) {
  for (const Dims& s :
       {Dims{2, 70, 130, 3, 5}, Dims{1, 1, 1, 1, 1}, Dims{3, 33, 64, 1, 16}, Dims{1, 5, 200, 2, 8},
        Dims{4, 40, 130, 2, 5, {65, 0, 130, 1}}, Dims{1, 100, 70, 2, 8, {}, true},
        Dims{1, 40, 130, 1, 4, {}, true}, Dims{3, 130, 100, 1, 5, {70, 3, 0}, true}}) {
    for (const DType dtype : {DT_FLOAT, DT_BFLOAT16, DT_HALF}) {
      // With the larger scale a row is almost one of its tokens.
      for (const float scale : {0.4f, 20.0f}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + s.query().ToString());
        const Computed got = Compute(s, scale, dtype);
        ASSERT_EQ(got.results.size(), 4u);
        const std::vector<Tensor> exact = Reference(s, static_cast<double>(scale), got.inputs[0],
                                                    got.inputs[1], got.inputs[2], got.inputs[3]);
        const double unit = dtype == DT_FLOAT ? 2e-6 : dtype == DT_HALF ? 2e-3 : 1e-2;
        for (size_t i = 0; i < exact.size(); ++i) {
          double most = 1;
          for (int64_t e = 0; e < exact[i].elements(); ++e)
            most = std::max(most, std::abs(exact[i].data<double>()[e]));
          SCOPED_TRACE(i);
          ExpectNear(got.results[i], exact[i], unit * most * std::max(1.0f, scale));
        }
      }
    }
  }
}

TEST(AttentionTest, TheBitsDoNotDependOnThreads) {
  for (const Dims& s : {Dims{2, 300, 100, 4, 16}, Dims{2, 300, 100, 4, 16, {70, 100}, true}}) {
    const Computed alone = Compute(s, 0.25f, DT_FLOAT);
    for (const int threads : {1, 3}) {
      ThreadPools pools(1, threads);
      const Computed got = Compute(s, 0.25f, DT_FLOAT, &pools);
      for (size_t i = 0; i < alone.results.size(); ++i)
        EXPECT_TRUE(BitEqual(got.results[i], alone.results[i])) << threads << " threads, " << i;
    }
  }
}

TEST(AttentionTest, LengthsOfAllColumnsChangeNoBit) {
  const Computed without = Compute({2, 40, 70, 2, 8}, 0.5f, DT_FLOAT),
                 with = Compute({2, 40, 70, 2, 8, {70, 70}}, 0.5f, DT_FLOAT);
  for (size_t i = 0; i < without.results.size(); ++i)
    EXPECT_TRUE(BitEqual(with.results[i], without.results[i])) << i;
}

TEST(AttentionTest, WithoutTokensToLookAtThereIsNothingToSee) {
  const Computed got = Compute({2, 3, 0, 2, 4}, 1, DT_FLOAT);
  ASSERT_EQ(got.results.size(), 4u);
  for (const size_t i : {0U, 1U}) {
    for (int64_t e = 0; e < got.results[i].elements(); ++e)
      EXPECT_EQ(got.results[i].data<float>()[e], 0) << i;
  }
}

TEST(AttentionTest, WhatDoesNotFitIsNamed) {
  const Tensor query = Random<float>({2, 3, 4, 5}), key = Random<float>({2, 6, 4, 5});
  const auto why = [&](const Tensor& value, const std::vector<Tensor>& lengths) {
    std::vector<Tensor> in{query, key, value};
    in.insert(in.end(), lengths.begin(), lengths.end());
    const auto result = RunOp(
        "_FusedAttention", in,
        {{"T", DT_FLOAT}, {"scale", 1.0f}, {"num_lengths", static_cast<int64_t>(lengths.size())}});
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    return result.status().message();
  };
  const auto lengths = [](std::initializer_list<int32_t> values) {
    return std::vector<Tensor>{Tensor::Vector<int32_t>(values)};
  };
  for (const auto& [got, wanted] : {
           std::pair{why(Random<float>({2, 7, 4, 5}), {}),
                     "lengths of key and value: 6 and 7 differ"},
           {why(key, lengths({1, 2, 3})), "sequences and lengths: 2 and 3 differ"},
           {why(key, lengths({1, 7})), "lengths[1] is 7, not in [0, 6]"},
           {why(key, lengths({-1, 7})), "lengths[0] is -1, not in [0, 6]"},
           {why(key, {key}), "int32"},
           {why(key, {lengths({1, 2})[0], lengths({1, 2})[0]}), "num_lengths must be 0 or 1"},
       }) {
    EXPECT_NE(got.find(wanted), std::string::npos) << got;
  }
}

}  // namespace
}  // namespace monograph
