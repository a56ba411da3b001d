// Three steps: Make gives the body an _Arg per argument; the caller builds the tower in the body;
// Call adds a _Retval per result, prunes what no result needs, such as the gradient of the images,
// puts the function into the graph's library and adds the calls.
#include "graph/tower_function.h"

#include <fmt/core.h>

#include <utility>

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

std::string What(const std::string& name) { return "tower '" + name + "'"; }

Status CheckArgs(const std::string& name, std::span<const std::string> devices,
                 std::span<const Outputs> args, const Graph* graph) {
  const std::string what = What(name) + ": ";
  if (devices.empty()) return InvalidArgument(what + "there are no devices");
  if (args.size() != devices.size()) {
    return InvalidArgument(fmt::format("{}{} devices but arguments for {} replicas", what,
                                       devices.size(), args.size()));
  }
  for (size_t r = 0; r < args.size(); ++r) {
    const std::string replica = what + "replica " + std::to_string(r);
    if (args[r].size() != args[0].size()) {
      return InvalidArgument(fmt::format("{} has {} arguments, replica 0 has {}", replica,
                                         args[r].size(), args[0].size()));
    }
    for (size_t i = 0; i < args[r].size(); ++i) {
      const Output& arg = args[r][i];
      const std::string argument = replica + ", argument " + std::to_string(i);
      if (!arg.valid()) return InvalidArgument(argument + " is not a tensor");
      if (arg.graph != graph)
        return InvalidArgument(fmt::format("{}, '{}', is of another graph", argument, arg.name()));
      if (arg.dtype() != args[0][i].dtype()) {
        return InvalidArgument(fmt::format("{}, '{}', is {}; for replica 0 it is {}", argument,
                                           arg.name(), DTypeName(arg.dtype()),
                                           DTypeName(args[0][i].dtype())));
      }
    }
  }
  return Status();
}

// Gives `arg` the type and shape of the variable whose handle argument i is, as far as the replicas
// agree.
void DescribeHandles(std::span<const Outputs> per_replica_args, size_t i, OpBuilder* arg) {
  const Output& first = per_replica_args[0][i];
  PartialShape shape = HandleShape(*first.graph, first.endpoint);
  for (const Outputs& replica : per_replica_args)
    shape = Common(shape, HandleShape(*replica[i].graph, replica[i].endpoint));
  arg->Attr("_handle_shapes", std::vector<PartialShape>{shape});
  arg->Attr("_handle_dtypes", std::vector<DType>{HandleDType(*first.graph, first.endpoint)});
}

}  // namespace

TowerFunction::TowerFunction(const Scope& scope, const std::string& name,
                             std::span<const std::string> devices,
                             std::span<const Outputs> per_replica_args)
    : scope_(scope),
      name_(name),
      devices_(devices.begin(), devices.end()),
      per_replica_args_(per_replica_args.begin(), per_replica_args.end()),
      body_(std::make_shared<Graph>(&scope.graph()->registry())),
      body_scope_(Scope(body_.get()).WithSeed(scope.seed())) {}

Result<TowerFunction> TowerFunction::Make(const Scope& scope, const std::string& name,
                                          std::span<const std::string> devices,
                                          std::span<const Outputs> per_replica_args) {
  MG_RETURN_IF_ERROR(scope.status());
  MG_RETURN_IF_ERROR(CheckArgs(name, devices, per_replica_args, scope.graph()));
  TowerFunction tower(scope, name, devices, per_replica_args);
  tower.body_->ShareFunctions(scope.graph()->shared_functions());
  for (size_t i = 0; i < per_replica_args[0].size(); ++i) {
    PartialShape shape = per_replica_args[0][i].shape();
    for (const Outputs& replica : per_replica_args) shape = Common(shape, replica[i].shape());
    const DType dtype = per_replica_args[0][i].dtype();
    OpBuilder arg(tower.body_scope_.WithOpName("arg_" + std::to_string(i)), "_Arg");
    arg.Attr("T", dtype).Attr("index", static_cast<int64_t>(i));
    arg.Attr("_output_shapes", std::vector<PartialShape>{shape});
    if (dtype == DT_RESOURCE) DescribeHandles(per_replica_args, i, &arg);
    tower.args_.push_back(arg.BuildOutput());
  }
  MG_RETURN_IF_ERROR(tower.body_scope_.status().WithContext(What(name)));
  return tower;
}

Status TowerFunction::AddResults(const Outputs& results) {
  const std::string what = What(name_) + ": result ";
  for (size_t i = 0; i < results.size(); ++i) {
    const Output& result = results[i];
    if (!result.valid()) return InvalidArgument(fmt::format("{}{} is not a tensor", what, i));
    if (result.graph != body_.get()) {
      return InvalidArgument(fmt::format(
          "{}{}, '{}', is not built in the tower; pass it as an argument if the tower needs it",
          what, i, result.name()));
    }
    OpBuilder(body_scope_.WithOpName("result_" + std::to_string(i)), "_Retval")
        .Input(result)
        .Attr("T", result.dtype())
        .Attr("index", static_cast<int64_t>(i))
        .Build();
  }
  return body_scope_.status().WithContext(What(name_));
}

Result<TowerCalls> TowerFunction::Call(const Result<Outputs>& results, int first_replica) {
  Status built = body_scope_.status();
  if (!results.ok()) built.Update(results.status());
  if (!built.ok()) return built.WithContext(What(name_));
  MG_RETURN_IF_ERROR(AddResults(*results));
  std::vector<DType> in_types, out_types;
  std::vector<PartialShape> result_shapes;
  for (const Output& arg : args_) in_types.push_back(arg.dtype());
  for (const Output& result : *results) {
    out_types.push_back(result.dtype());
    result_shapes.push_back(result.shape());
  }
  bool stateful = false;
  std::vector<NodeId> needed;
  for (NodeId node = 0; node < body_->num_nodes(); ++node) {
    const bool boundary = body_->is(node, "_Arg") || body_->is(node, "_Retval");
    stateful |= !boundary && body_->op(node).stateful();
    if (boundary || body_->op(node).stateful()) needed.push_back(node);
  }
  MG_ASSIGN_OR_RETURN(Graph pruned, Prune(*body_, {}, {}, needed, nullptr));
  body_ = std::make_shared<Graph>(std::move(pruned));
  // The library holds the body; the body must not hold the library.
  body_->ShareFunctions(std::make_shared<FunctionLibrary>());

  Graph& graph = *scope_.graph();
  std::string function_name = name_;
  for (int i = 1; graph.functions().Find(function_name) != nullptr; ++i) {
    function_name = name_ + "_fn_" + std::to_string(i);
  }
  MG_ASSIGN_OR_RETURN(Function function, Function::Make(function_name, std::move(body_)));
  function.stateful = stateful;
  MG_RETURN_IF_ERROR(graph.functions().Add(std::move(function)));

  TowerCalls tower;
  tower.results.resize(result_shapes.size());
  for (size_t r = 0; r < devices_.size(); ++r) {
    const int64_t number = first_replica + static_cast<int64_t>(r);
    const Operation call = OpBuilder(scope_.WithOpName(name_ + "_" + std::to_string(number))
                                         .WithDevice(devices_[r])
                                         .WithAttr("_replica", number),
                                     stateful ? "StatefulPartitionedCall" : "PartitionedCall")
                               .Inputs(per_replica_args_[r])
                               .Attr("Tin", in_types)
                               .Attr("Tout", out_types)
                               .Attr("f", FunctionName{function_name})
                               .Build();
    MG_RETURN_IF_ERROR(scope_.status().WithContext(What(name_)));
    for (size_t i = 0; i < result_shapes.size(); ++i) {
      tower.results[i].push_back(call.output(static_cast<int>(i)));
    }
    tower.calls.push_back(call);
  }
  return tower;
}

}  // namespace monograph
