// ReplicateTower traces the tower once into the body of a function and adds a call of it for each
// replica: the graph stays small however many replicas there are, and they cannot differ.
// SplitBatch cuts by constant sizes if the batch is known while building; else nodes compute sizes
// and weights in each step (PartsAtRunTime). WeightedMean adds up in the order of replicas.
#include "graph/tower_function.h"

#include <algorithm>
#include <numeric>

#include "graph/function.h"
#include "graph/prune.h"
#include "graph/resource_handle.h"

namespace monograph {
namespace {

// The shape in which dimensions that differ are unknown.
PartialShape Common(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank() || a.rank() != b.rank()) return PartialShape();
  PartialShape common = a;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) != b.dim(i)) common.set_dim(i, -1);
  }
  return common;
}

Status CheckArgs(const std::string& name, std::span<const std::string> devices,
                 std::span<const std::vector<Output>> args, const Graph* graph) {
  const std::string what = "ReplicateTower '" + name + "': ";
  if (devices.empty()) return InvalidArgument(what + "there are no devices");
  if (args.size() != devices.size()) {
    return InvalidArgument(what + std::to_string(devices.size()) + " devices but arguments for " +
                           std::to_string(args.size()) + " replicas");
  }
  for (size_t r = 0; r < args.size(); ++r) {
    const std::string replica = what + "replica " + std::to_string(r);
    if (args[r].size() != args[0].size()) {
      return InvalidArgument(replica + " has " + std::to_string(args[r].size()) +
                             " arguments, replica 0 has " + std::to_string(args[0].size()));
    }
    for (size_t i = 0; i < args[r].size(); ++i) {
      const Output& arg = args[r][i];
      const std::string argument = replica + ", argument " + std::to_string(i);
      if (!arg.valid()) return InvalidArgument(argument + " is not a tensor");
      if (arg.graph != graph)
        return InvalidArgument(argument + ", '" + arg.name() + "', is of another graph");
      if (arg.dtype() != args[0][i].dtype()) {
        return InvalidArgument(argument + ", '" + arg.name() + "', is " +
                               std::string(DTypeName(arg.dtype())) + "; for replica 0 it is " +
                               std::string(DTypeName(args[0][i].dtype())));
      }
    }
  }
  return Status();
}

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

// Gives `arg` the type and shape of the variable whose handle argument i is, as far as the replicas
// agree.
void DescribeHandles(std::span<const std::vector<Output>> per_replica_args, size_t i,
                     OpBuilder* arg) {
  const Output& first = per_replica_args[0][i];
  PartialShape shape = HandleShape(*first.graph, first.endpoint);
  for (const std::vector<Output>& replica : per_replica_args)
    shape = Common(shape, HandleShape(*replica[i].graph, replica[i].endpoint));
  arg->Attr("_handle_shapes", std::vector<PartialShape>{shape});
  arg->Attr("_handle_dtypes", std::vector<DType>{HandleDType(*first.graph, first.endpoint)});
}

}  // namespace

Result<ReplicatedTower> ReplicateTower(const Scope& scope, const std::string& name,
                                       std::span<const std::string> devices,
                                       std::span<const std::vector<Output>> per_replica_args,
                                       const TowerFn& tower, int first_replica) {
  MG_RETURN_IF_ERROR(scope.status());
  Graph& graph = *scope.graph();
  MG_RETURN_IF_ERROR(CheckArgs(name, devices, per_replica_args, &graph));
  const std::string what = "ReplicateTower '" + name + "'";

  auto body = std::make_shared<Graph>(&graph.registry());
  body->ShareFunctions(graph.shared_functions());
  Scope inside(body.get());
  inside = inside.WithSeed(scope.seed());
  Outputs args;
  std::vector<DType> in_types, out_types;
  for (size_t i = 0; i < per_replica_args[0].size(); ++i) {
    PartialShape shape = per_replica_args[0][i].shape();
    for (const std::vector<Output>& replica : per_replica_args)
      shape = Common(shape, replica[i].shape());
    in_types.push_back(per_replica_args[0][i].dtype());
    OpBuilder arg(inside.WithOpName("arg_" + std::to_string(i)), "_Arg");
    arg.Attr("T", in_types.back()).Attr("index", static_cast<int64_t>(i));
    arg.Attr("_output_shapes", std::vector<PartialShape>{shape});
    if (in_types.back() == DT_RESOURCE) DescribeHandles(per_replica_args, i, &arg);
    args.push_back(arg.BuildOutput());
  }
  MG_RETURN_IF_ERROR(inside.status().WithContext(what));
  Result<Outputs> results = tower(inside, args);
  Status status = inside.status();
  if (!results.ok()) status.Update(results.status());
  if (!status.ok()) return status.WithContext(what);
  for (size_t i = 0; i < results->size(); ++i) {
    const Output& result = (*results)[i];
    if (!result.valid())
      return InvalidArgument(what + ": result " + std::to_string(i) + " is not a tensor");
    if (result.graph != body.get()) {
      return InvalidArgument(
          what + ": result " + std::to_string(i) + ", '" + result.name() +
          "', is not built in the tower; pass it as an argument if the tower needs it");
    }
    out_types.push_back(result.dtype());
    OpBuilder(inside.WithOpName("result_" + std::to_string(i)), "_Retval")
        .Input(result)
        .Attr("T", result.dtype())
        .Attr("index", static_cast<int64_t>(i))
        .Build();
  }
  MG_RETURN_IF_ERROR(inside.status().WithContext(what));
  std::vector<PartialShape> result_shapes;
  for (const Output& result : *results) result_shapes.push_back(result.shape());
  // Prune what nothing needs, such as the gradient of the images.
  bool stateful = false;
  std::vector<NodeId> needed;
  for (NodeId node = 0; node < body->num_nodes(); ++node) {
    const bool boundary = body->is(node, "_Arg") || body->is(node, "_Retval");
    stateful |= !boundary && body->op(node).stateful();
    if (boundary || body->op(node).stateful()) needed.push_back(node);
  }
  MG_ASSIGN_OR_RETURN(Graph pruned, Prune(*body, {}, {}, needed, nullptr));
  body = std::make_shared<Graph>(std::move(pruned));
  // The library holds the body; the body must not hold the library.
  body->ShareFunctions(std::make_shared<FunctionLibrary>());

  std::string function_name = name;
  for (int i = 1; graph.functions().Find(function_name) != nullptr; ++i) {
    function_name = name + "_fn_" + std::to_string(i);
  }
  MG_ASSIGN_OR_RETURN(Function function, Function::Make(function_name, std::move(body)));
  function.stateful = stateful;
  MG_RETURN_IF_ERROR(graph.functions().Add(std::move(function)));

  ReplicatedTower replicated;
  replicated.results.resize(result_shapes.size());
  for (size_t r = 0; r < devices.size(); ++r) {
    const int64_t number = first_replica + static_cast<int64_t>(r);
    const Operation call = OpBuilder(scope.WithOpName(name + "_" + std::to_string(number))
                                         .WithDevice(devices[r])
                                         .WithAttr("_replica", number),
                                     stateful ? "StatefulPartitionedCall" : "PartitionedCall")
                               .Inputs(per_replica_args[r])
                               .Attr("Tin", in_types)
                               .Attr("Tout", out_types)
                               .Attr("f", FunctionName{function_name})
                               .Build();
    MG_RETURN_IF_ERROR(scope.status().WithContext(what));
    for (size_t i = 0; i < result_shapes.size(); ++i) {
      replicated.results[i].push_back(call.output(static_cast<int>(i)));
    }
    replicated.calls.push_back(call);
  }
  return replicated;
}

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

namespace {

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
      return InvalidArgument(which + ", '" + input.name() + "', is a scalar");
    const int64_t rows = input.shape().dim(0);
    if (rows < 0) continue;
    if (known.rows >= 0 && rows != known.rows) {
      return InvalidArgument(which + ", '" + input.name() + "', has " + std::to_string(rows) +
                             " rows, but '" + known.input + "' has " + std::to_string(known.rows));
    }
    known = {rows, input.name()};
  }
  return known;
}

Result<BatchShards> Split(const Scope& scope, std::span<const Output> inputs,
                          std::span<const int64_t> shares) {
  MG_RETURN_IF_ERROR(scope.status());
  const int replicas = static_cast<int>(shares.size());
  MG_ASSIGN_OR_RETURN(const KnownRows known, CheckBatch(scope.graph(), inputs));
  if (known.rows >= 0 && known.rows < replicas) {
    return InvalidArgument("The batch of " + std::to_string(known.rows) + " examples ('" +
                           known.input + "') is smaller than its " + std::to_string(replicas) +
                           " replicas");
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
        return InvalidArgument("replica " + std::to_string(r) + " with a share of " +
                               std::to_string(shares[r]) + " gets no row of a batch of " +
                               std::to_string(known.rows));
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

}  // namespace

Result<BatchShards> SplitBatch(const Scope& scope, std::span<const Output> inputs, int replicas) {
  if (replicas < 1) return InvalidArgument("SplitBatch: " + std::to_string(replicas) + " replicas");
  return Split(scope, inputs, std::vector<int64_t>(static_cast<size_t>(replicas), 1));
}

Result<BatchShards> SplitBatchByShares(const Scope& scope, std::span<const Output> inputs,
                                       std::span<const int64_t> shares) {
  if (shares.empty()) return InvalidArgument("SplitBatch: there are no shares");
  for (const int64_t share : shares) {
    if (share < 1) return InvalidArgument("SplitBatch: a share of " + std::to_string(share));
  }
  const bool even =
      std::all_of(shares.begin(), shares.end(), [&](int64_t share) { return share == shares[0]; });
  MG_ASSIGN_OR_RETURN(const KnownRows known, CheckBatch(scope.graph(), inputs));
  if (!even && known.rows < 0) {
    return InvalidArgument(
        "a batch that is cut in unequal shares needs a known number of examples");
  }
  return Split(scope, inputs, shares);
}

Result<Output> WeightedMean(const Scope& scope, std::span<const Output> values,
                            std::span<const Output> weights) {
  MG_RETURN_IF_ERROR(scope.status());
  if (values.empty()) return InvalidArgument("WeightedMean: there are no values");
  if (!weights.empty() && weights.size() != values.size()) {
    return InvalidArgument("WeightedMean: " + std::to_string(values.size()) + " values but " +
                           std::to_string(weights.size()) + " weights");
  }
  for (const Output& value : values) {
    if (!value.valid()) return InvalidArgument("WeightedMean: one of the values is not a tensor");
    if (value.dtype() != values[0].dtype() || !IsFloating(value.dtype())) {
      return InvalidArgument("WeightedMean: '" + value.name() + "' is " +
                             std::string(DTypeName(value.dtype())) +
                             "; values are to be of one floating type");
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
