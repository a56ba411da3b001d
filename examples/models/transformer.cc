// Tokens are rows of a matrix, [n * length, width], in every part but attention, so that dense
// layers are plain products. Of padded sequences all rows are computed, and attention is told which
// to look at: as one op by lengths, of plain ops by what is added to scores. Products and attention
// are of the type `compute`; the sum that runs from layer to layer is, too, and is normalised in
// float.
#include "examples/models/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/softmax/softmax.h"
#include "ops/transpose/transpose.h"

namespace monograph::examples {
namespace {

// Parts of one network: each takes its variables under its name.
class EncoderParts {
 public:
  // `lengths` as of Transformer::Logits.
  EncoderParts(const Scope& scope, const Transformer& net, const Output& lengths,
               ModelVariables& variables)
      : net_(net), lengths_(lengths), variables_(variables) {
    if (!lengths.valid() || net.fused_attention) return;
    std::vector<float> places(static_cast<size_t>(net.length));
    std::iota(places.begin(), places.end(), 0.0f);
    Tensor row = Tensor::Allocate(DT_FLOAT, Shape{1, net.length}).value();
    std::copy(places.begin(), places.end(), row.data<float>());
    const Output seen =
        Less(scope, Const(scope, row), Reshape(scope, Cast(scope, lengths, DT_FLOAT), {-1, 1}));
    const Output unseen = Sub(scope, Cast(scope, seen, DT_FLOAT), Const(scope, 1.0f));
    unseen_ =
        Cast(scope, Reshape(scope, Mul(scope, unseen, Const(scope, 1e9f)), {-1, 1, 1, net.length}),
             net.compute);
  }

  Output Dense(const Scope& scope, const std::string& name, const Output& x, int64_t in,
               int64_t out) {
    const double deviation = 1 / std::sqrt(static_cast<double>(in));
    const Output weights = variables_.Get(name + "/weights", Shape{in, out},
                                          Initial::TruncatedNormal(deviation)),
                 biases = variables_.Get(name + "/biases", Shape{out}, Initial::Zeros());
    return BiasAdd(scope, MatMul(scope, x, Cast(scope, weights, net_.compute)),
                   Cast(scope, biases, net_.compute));
  }

  // Each row with mean 0 and variance 1, then scaled and moved by what is learned.
  Output Norm(const Scope& scope, const std::string& name, const Output& rows) {
    const Output gamma = variables_.Get(name + "/gamma", Shape{net_.width}, Initial::Constant(1));
    const Output beta = variables_.Get(name + "/beta", Shape{net_.width}, Initial::Zeros());
    return LayerNorm(scope, rows, gamma, beta);
  }

  Output Attention(const Scope& scope, const std::string& name, const Output& x) {
    const int64_t size = net_.width / net_.heads;
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    // [n, length, heads, size]
    const auto heads = [&](const char* part) {
      const Output rows = Dense(scope.SubScope(part), name + "/" + part, x, net_.width, net_.width);
      return Reshape(scope, rows, {-1, net_.length, net_.heads, size});
    };
    const Output query = heads("query"), key = heads("key"), value = heads("value");
    const Output mixed =
        net_.fused_attention
            ? monograph::Attention(scope, query, key, value, static_cast<float>(scale), {lengths_})
            : OfPlainOps(scope, query, key, value, scale);
    return Dense(scope.SubScope("output"), name + "/output",
                 Reshape(scope, mixed, {-1, net_.width}), net_.width, net_.width);
  }

  Output OfPlainOps(const Scope& scope, const Output& query, const Output& key, const Output& value,
                    double scale) {
    const auto by_head = [&](const Output& x) { return Transpose(scope, x, {0, 2, 1, 3}); };
    const Output scores = BatchMatMul(scope, by_head(query), by_head(key), false, true);
    Output scaled = Mul(scope, scores, ScalarConst(scope, scale, net_.compute));
    if (unseen_.valid()) scaled = Add(scope, scaled, unseen_);
    return by_head(BatchMatMul(scope, Softmax(scope, scaled), by_head(value)));
  }

  Output Layer(const Scope& scope, const std::string& name, const Output& x) {
    const Scope attention = scope.SubScope("attention"), dense = scope.SubScope("dense");
    const Output y = Add(
        scope, x, Attention(attention, name + "/attention", Norm(attention, name + "/norm1", x)));
    const Output inner = Gelu(dense, Dense(dense, name + "/inner", Norm(dense, name + "/norm2", y),
                                           net_.width, net_.inner));
    return Add(scope, y, Dense(dense, name + "/outer", inner, net_.inner, net_.width));
  }

 private:
  const Transformer& net_;
  const Output lengths_;
  Output unseen_;  // -1e9 for each token that is not to be seen
  ModelVariables& variables_;
};

}  // namespace

int64_t Transformer::hidden(int64_t of_length) const { return std::max<int64_t>(1, of_length / 8); }

Output Transformer::Logits(const Scope& scope, const Output& tokens, const Output& lengths,
                           ModelVariables& variables) const {
  if (!tokens.valid()) return {};
  const Scope first = scope.SubScope("embedding");
  EncoderParts parts(first, *this, lengths, variables);
  // Scaled as in the paper. So the table's gradient is a tensor, not rows, of which a GPU would
  // have to count the different ones before it goes on.
  const double scale = std::sqrt(static_cast<double>(width));
  const auto table = [&](const char* name, int64_t rows) {
    const Output values =
        variables.Get(name, Shape{rows, width}, Initial::TruncatedNormal(0.1 / scale));
    return Mul(first, values, Const(first, static_cast<float>(scale)));
  };
  // A GPU reshapes int32 on the host; the gradient does that with what is looked up.
  const Output vectors = Gather(first, table("tokens", vocabulary), Cast(first, tokens, DT_INT64));
  const Output places = table("places", length);
  Output x = Cast(first, Reshape(first, Add(first, vectors, places), {-1, width}), compute);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string name = "layer" + std::to_string(i + 1);
    x = parts.Layer(scope.SubScope(name), name, x);
  }
  const Scope last = scope.SubScope("last");
  const Output logits = parts.Dense(last, "logits", parts.Norm(last, "norm", x), width, vocabulary);
  return Cast(last, logits, DT_FLOAT);
}

ModelFn Transformer::Training() const {
  return [net = *this](Scope& tower, std::span<const Output> batch,
                       ModelVariables& variables) -> Result<Outputs> {
    const Output logits =
        net.Logits(tower, batch[0], batch.size() > 3 ? batch[3] : Output(), variables);
    if (!logits.valid()) return Outputs{};
    const Scope loss = tower.SubScope("loss"), accuracy = tower.SubScope("accuracy");
    const Output labels = Reshape(loss, Cast(loss, batch[1], DT_INT64), {-1});
    // A mean over all tokens becomes one over those that are hidden.
    const double per_hidden =
        static_cast<double>(net.length) / static_cast<double>(net.hidden(net.length));
    const Output weights =
        Mul(loss, Reshape(loss, batch[2], {-1}), Const(loss, static_cast<float>(per_hidden)));
    const Output entropy = SparseSoftmaxCrossEntropyWithLogits(loss, logits, labels);
    const Output hits = Equal(accuracy, ArgMax(accuracy, logits, 1, DT_INT64), labels);
    return Outputs{ReduceMean(loss.WithOpName("mean"), Mul(loss, entropy, weights)),
                   ReduceMean(accuracy.WithOpName("mean"),
                              Mul(accuracy, Cast(accuracy, hits, DT_FLOAT), weights))};
  };
}

Outputs MaskedPlaceholders(const Scope& scope, const Transformer& net, int64_t rows) {
  const Shape shape{rows, net.length};
  Outputs batch = {Placeholder(scope.WithOpName("tokens"), DT_INT32, shape),
                   Placeholder(scope.WithOpName("labels"), DT_INT32, shape),
                   Placeholder(scope.WithOpName("hidden"), DT_FLOAT, shape)};
  if (net.padded()) batch.push_back(Placeholder(scope.WithOpName("lengths"), DT_INT32, {rows}));
  return batch;
}

Result<std::vector<Tensor>> MaskedSequences(const Transformer& net, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const Shape shape{rows, net.length};
  MG_ASSIGN_OR_RETURN(Tensor tokens, Tensor::Allocate(DT_INT32, shape));
  MG_ASSIGN_OR_RETURN(Tensor labels, Tensor::Allocate(DT_INT32, shape));
  MG_ASSIGN_OR_RETURN(Tensor weights, Tensor::Allocate(DT_FLOAT, shape));
  MG_ASSIGN_OR_RETURN(Tensor lengths, Tensor::Allocate(DT_INT32, Shape{rows}));
  const int64_t shortest = net.padded() ? net.min_length : net.length;
  std::vector<int64_t> pairs;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t half =
        (shortest + (net.padded() ? 2 * below((net.length - shortest) / 2 + 1) : 0)) / 2;
    const int64_t hidden = net.hidden(2 * half);
    lengths.data<int32_t>()[row] = static_cast<int32_t>(2 * half);
    pairs.resize(static_cast<size_t>(half));
    std::iota(pairs.begin(), pairs.end(), 0);
    int32_t* const token = tokens.data<int32_t>() + row * net.length;
    int32_t* const label = labels.data<int32_t>() + row * net.length;
    float* const weight = weights.data<float>() + row * net.length;
    for (int64_t i = 0; i < half; ++i)
      label[i] = label[i + half] = static_cast<int32_t>(below(net.vocabulary - 1));
    std::fill(label + 2 * half, label + net.length, 0);
    std::copy_n(label, net.length, token);
    std::fill_n(weight, net.length, 0.0f);
    for (int64_t i = 0; i < hidden; ++i) {
      std::swap(pairs[static_cast<size_t>(i)], pairs[static_cast<size_t>(i + below(half - i))]);
      const int64_t place = pairs[static_cast<size_t>(i)] + half * below(2);
      token[place] = static_cast<int32_t>(net.vocabulary - 1);
      weight[place] = static_cast<float>(net.hidden(net.length)) / static_cast<float>(hidden);
    }
  }
  std::vector<Tensor> batch{std::move(tokens), std::move(labels), std::move(weights)};
  if (net.padded()) batch.push_back(std::move(lengths));
  return batch;
}

}  // namespace monograph::examples
