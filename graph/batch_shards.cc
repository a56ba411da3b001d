// A batch whose size is known while building is cut by constant sizes; else nodes compute sizes and
// weights in each step (PartsAtRunTime). WeightedMean adds up in the order of replicas.
#include "graph/batch_shards.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace monograph {
namespace {

Output Constant(const Scope& scope, std::string_view name, Tensor value) {
  const DType dtype = value.dtype();
  return OpBuilder(scope.WithOpName(name), "Const")
      .Attr("value", std::move(value))
      .Attr("dtype", dtype)
      .BuildOutput();
}

Tensor Vector64(const std::vector<int64_t>& values) {
  return Tensor::FromValues<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

// The sizes of the parts and their weights, computed in the step from the batch's first dimension.
struct RuntimeParts {
  Output sizes;
  Outputs weights;
};
RuntimeParts PartsAtRunTime(const Scope& scope, const Output& input, int replicas) {
  const int64_t n = replicas;
  const Output shape =
      OpBuilder(scope, "Shape").Input(input).Attr("out_type", DT_INT64).BuildOutput();
  const Output first = OpBuilder(scope, "Slice")
                           .Input(shape)
                           .Input(Constant(scope, "begin", Tensor::Vector<int32_t>({0})))
                           .Input(Constant(scope, "size", Tensor::Vector<int32_t>({1})))
                           .BuildOutput();
  const Output batch =
      OpBuilder(scope.WithOpName("batch"), "Reshape")
          .Input(first)
          .Input(Constant(scope, "scalar",
                          Tensor::FromValues<int32_t>(Shape{0}, std::initializer_list<int32_t>{})))
          .BuildOutput();
  const Output count = Constant(scope, "replicas", Tensor::Scalar<int64_t>(n));
  const Output enough = OpBuilder(scope, "GreaterEqual").Input(batch).Input(count).BuildOutput();
  const Outputs message = {
      Constant(scope, "message_0", Tensor::String("The batch of")), batch,
      Constant(scope, "message_1", Tensor::String("examples is smaller than its")), count,
      Constant(scope, "message_2", Tensor::String("replicas"))};
  const Operation assertion =
      OpBuilder(scope, "Assert").Input(enough).Inputs(message).Attr("summarize", 3).Build();

  std::vector<int64_t> lower(static_cast<size_t>(n)), upper(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    lower[static_cast<size_t>(i)] = i;
    upper[static_cast<size_t>(i)] = i + 1;
  }
  auto bounds = [&](std::string_view name, const std::vector<int64_t>& factors) {
    const Output product = OpBuilder(scope, "Mul")
                               .Input(Constant(scope, name, Vector64(factors)))
                               .Input(batch)
                               .BuildOutput();
    return OpBuilder(scope, "FloorDiv").Input(product).Input(count).BuildOutput();
  };
  const Output begin = bounds("lower", lower), end = bounds("upper", upper);
  Scope checked = scope;
  if (assertion.valid()) checked = scope.WithControlDependencies({assertion});
  RuntimeParts parts;
  parts.sizes = OpBuilder(checked.WithOpName("sizes"), "Sub").Input(end).Input(begin).BuildOutput();
  auto to_float = [&](const Output& value) {
    return OpBuilder(scope, "Cast").Input(value).Attr("DstT", DT_FLOAT).BuildOutput();
  };
  const Output fractions = OpBuilder(scope.WithOpName("weights"), "RealDiv")
                               .Input(to_float(parts.sizes))
                               .Input(to_float(batch))
                               .BuildOutput();
  const Operation unpack =
      OpBuilder(scope, "Unpack").Input(fractions).Attr("num", replicas).Attr("axis", 0).Build();
  for (int i = 0; i < replicas; ++i) parts.weights.push_back(unpack.output(i));
  return parts;
}

// The common number of rows, as far as it is known while building.
struct KnownRows {
  int64_t rows = -1;
  std::string input;  // whose shape says so
};
Result<KnownRows> CheckBatch(const Graph* graph, std::span<const Output> inputs) {
  if (inputs.empty()) return InvalidArgument("SplitBatch: there are no inputs");
  KnownRows known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Output& input = inputs[i];
    const std::string which = "SplitBatch: input " + std::to_string(i);
    if (!input.valid() || input.graph != graph) {
      return InvalidArgument(which + " is not a tensor of this graph");
    }
    if (!input.shape().known_rank()) continue;
    if (input.shape().rank() == 0)
      return InvalidArgument(fmt::format("{}, '{}', is a scalar", which, input.name()));
    const int64_t rows = input.shape().dim(0);
    if (rows < 0) continue;
    if (known.rows >= 0 && rows != known.rows) {
      return InvalidArgument(fmt::format("{}, '{}', has {} rows, but '{}' has {}", which,
                                         input.name(), rows, known.input, known.rows));
    }
    known = {rows, input.name()};
  }
  return known;
}

}  // namespace

std::vector<int64_t> RowsByShares(int64_t batch, std::span<const int64_t> shares) {
  const int64_t total = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::vector<int64_t> rows;
  int64_t before = 0;
  for (const int64_t share : shares) {
    rows.push_back(batch * (before + share) / total - batch * before / total);
    before += share;
  }
  return rows;
}

Result<BatchShards> SplitBatch(const Scope& scope, std::span<const Output> inputs,
                               std::span<const int64_t> shares) {
  MG_RETURN_IF_ERROR(scope.status());
  if (shares.empty()) return InvalidArgument("SplitBatch: there are no shares");
  for (const int64_t share : shares) {
    if (share < 1) return InvalidArgument("SplitBatch: a share of " + std::to_string(share));
  }
  const bool even =
      std::all_of(shares.begin(), shares.end(), [&](int64_t share) { return share == shares[0]; });
  const int replicas = static_cast<int>(shares.size());
  MG_ASSIGN_OR_RETURN(const KnownRows known, CheckBatch(scope.graph(), inputs));
  if (!even && known.rows < 0) {
    return InvalidArgument(
        "a batch that is cut in unequal shares needs a known number of examples");
  }
  if (known.rows >= 0 && known.rows < replicas) {
    return InvalidArgument(
        fmt::format("The batch of {} examples ('{}') is smaller than its {} replicas", known.rows,
                    known.input, replicas));
  }
  BatchShards result;
  result.shards.resize(static_cast<size_t>(replicas));
  if (replicas == 1) {
    result.shards[0].assign(inputs.begin(), inputs.end());
    return result;
  }
  const Scope split_scope = scope.SubScope("split_batch");
  const Output axis = Constant(split_scope, "axis", Tensor::Scalar<int32_t>(0));
  std::vector<int64_t> rows;
  if (known.rows >= 0) rows = RowsByShares(known.rows, shares);
  const bool equal = known.rows >= 0 && std::all_of(rows.begin(), rows.end(),
                                                    [&](int64_t part) { return part == rows[0]; });
  Output sizes;
  if (known.rows < 0) {
    RuntimeParts parts = PartsAtRunTime(split_scope, inputs[0], replicas);
    sizes = parts.sizes;
    result.weights = std::move(parts.weights);
  } else if (!equal) {
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r] == 0) {
        return InvalidArgument(
            fmt::format("replica {} with a share of {} gets no row of a batch of {}", r, shares[r],
                        known.rows));
      }
      const float weight = static_cast<float>(rows[r]) / static_cast<float>(known.rows);
      result.weights.push_back(Constant(split_scope, "weight", Tensor::Scalar<float>(weight)));
    }
  }
  for (const Output& input : inputs) {
    const bool exact = input.shape().known_rank() && input.shape().dim(0) >= 0;
    Operation split;
    if (equal && exact) {
      split = OpBuilder(split_scope, "Split")
                  .Input(axis)
                  .Input(input)
                  .Attr("num_split", replicas)
                  .Build();
    } else {
      // Given sizes also check an input whose number of rows is known only in the step.
      if (!sizes.valid()) sizes = Constant(split_scope, "sizes", Vector64(rows));
      split = OpBuilder(split_scope, "SplitV")
                  .Input(input)
                  .Input(sizes)
                  .Input(axis)
                  .Attr("num_split", replicas)
                  .Build();
    }
    MG_RETURN_IF_ERROR(scope.status());
    for (int r = 0; r < replicas; ++r)
      result.shards[static_cast<size_t>(r)].push_back(split.output(r));
  }
  return result;
}

Result<Output> WeightedMean(const Scope& scope, std::span<const Output> values,
                            std::span<const Output> weights) {
  MG_RETURN_IF_ERROR(scope.status());
  if (values.empty()) return InvalidArgument("WeightedMean: there are no values");
  if (!weights.empty() && weights.size() != values.size()) {
    return InvalidArgument(
        fmt::format("WeightedMean: {} values but {} weights", values.size(), weights.size()));
  }
  for (const Output& value : values) {
    if (!value.valid()) return InvalidArgument("WeightedMean: one of the values is not a tensor");
    if (value.dtype() != values[0].dtype() || !IsFloating(value.dtype())) {
      return InvalidArgument(
          fmt::format("WeightedMean: '{}' is {}; values are to be of one floating type",
                      value.name(), DTypeName(value.dtype())));
    }
  }
  if (values.size() == 1) return values[0];
  const DType dtype = values[0].dtype();
  auto cast = [&](const Scope& where, const Output& weight) {
    if (!weight.valid() || weight.dtype() == dtype) return weight;
    return OpBuilder(where, "Cast").Input(weight).Attr("DstT", dtype).BuildOutput();
  };
  const Scope mean = scope.SubScope("mean");
  Output result;
  if (weights.empty()) {
    const Output sum = OpBuilder(mean, "AddN").Inputs(values).BuildOutput();
    const Output count =
        Constant(mean, "count", Tensor::Scalar<float>(static_cast<float>(values.size())));
    result = OpBuilder(mean, "RealDiv").Input(sum).Input(cast(mean, count)).BuildOutput();
  } else {
    Outputs products;
    for (size_t i = 0; i < values.size(); ++i) {
      const DeviceName& device = values[i].graph->device(values[i].node());
      const Scope there = device.empty() ? mean : mean.WithDevice(device.ToString());
      products.push_back(
          OpBuilder(there, "Mul").Input(values[i]).Input(cast(there, weights[i])).BuildOutput());
    }
    result = OpBuilder(mean, "AddN").Inputs(products).BuildOutput();
  }
  MG_RETURN_IF_ERROR(scope.status());
  return result;
}

}  // namespace monograph
