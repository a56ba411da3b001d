// The ops that the graph's own passes know by name: arguments and results of functions, calls and
// functional control flow (If, Case, While), and transfers between devices. First the shapes of
// their results, which follow from the functions that they name; then the definitions.
#include "graph/structural_ops.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "graph/function.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {
namespace {

// A function's argument says its shape in `_output_shapes`, as TensorFlow's does.
Status ArgShape(ShapeContext& c) {
  const AttrValue* shapes = c.attrs().Find("_output_shapes");
  if (shapes == nullptr) return Status();
  const auto* list = std::get_if<std::vector<PartialShape>>(shapes);
  if (list != nullptr && list->size() == 1) c.set_output(0, list->front());
  return Status();
}

Status RecvShape(ShapeContext& c) {
  c.set_output(0, c.attr<PartialShape>("shape"));
  return Status();
}

Status UnknownShapes(ShapeContext&) { return Status(); }

Status CallShape(ShapeContext& c) {
  const std::string& name = c.attr<FunctionName>("f").name;
  const Function* function = c.FindFunction(name);
  if (function == nullptr) return Status();
  const Graph& body = *function->body;
  const std::string calls = "function '" + name + "' has ";
  if (static_cast<int>(function->args.size()) != c.num_inputs()) {
    return InvalidArgument(
        fmt::format("{}{} arguments, not {}", calls, function->args.size(), c.num_inputs()));
  }
  if (static_cast<int>(function->results.size()) != c.num_outputs()) {
    return InvalidArgument(
        fmt::format("{}{} results, not {}", calls, function->results.size(), c.num_outputs()));
  }
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Endpoint arg{function->args[static_cast<size_t>(i)], 0};
    const std::string which = calls + "argument " + std::to_string(i) + " of type ";
    if (c.input_dtype(i) != DT_INVALID && c.input_dtype(i) != body.dtype(arg)) {
      return InvalidArgument(fmt::format("{}{}, not {}", which, DTypeName(body.dtype(arg)),
                                         DTypeName(c.input_dtype(i))));
    }
    if (!PartialShape::Merge(body.shape(arg), c.input(i)).ok()) {
      return InvalidArgument(fmt::format("{}and shape {}{}, which {} does not fit", which,
                                         DTypeName(body.dtype(arg)), body.shape(arg).ToString(),
                                         c.input(i).ToString()));
    }
  }
  const auto& types = c.attr<std::vector<DType>>("Tout");
  for (int i = 0; i < c.num_outputs(); ++i) {
    const Endpoint result = body.inputs(function->results[static_cast<size_t>(i)])[0];
    if (body.dtype(result) != DT_INVALID && body.dtype(result) != types[static_cast<size_t>(i)]) {
      return InvalidArgument(fmt::format("{}result {} of type {}, not {}", calls, i,
                                         DTypeName(body.dtype(result)),
                                         DTypeName(types[static_cast<size_t>(i)])));
    }
    c.set_output(i, body.shape(result));
  }
  return Status();
}

OpDef Call(const char* name) {
  return OpDef(name)
      .Input("args: Tin")
      .Output("output: Tout")
      .Attr("Tin: list(type) >= 0")
      .Attr("Tout: list(type) >= 0")
      .Attr("f: func")
      .Attr("config: string = ''")
      .Attr("config_proto: string = ''")
      .Attr("executor_type: string = ''")
      .Shape(CallShape);
}

// A branch's shapes, as far as all branches agree; `output_shapes` where TensorFlow has said them.
Status BranchShapes(ShapeContext& c, const std::vector<FunctionName>& branches) {
  const auto& said = c.attr<std::vector<PartialShape>>("output_shapes");
  if (static_cast<int>(said.size()) == c.num_outputs()) {
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, said[static_cast<size_t>(i)]);
    return Status();
  }
  const Function* first = c.FindFunction(branches[0].name);
  if (first == nullptr || static_cast<int>(first->results.size()) != c.num_outputs())
    return Status();
  std::set<const Function*> others;  // many branches may be of few functions
  for (const FunctionName& branch : branches) {
    const Function* other = c.FindFunction(branch.name);
    if (other == nullptr || other->results.size() != first->results.size()) return Status();
    if (other != first) others.insert(other);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const auto shape_in = [i](const Function& function) {
      const Graph& body = *function.body;
      return body.shape(body.inputs(function.results[static_cast<size_t>(i)])[0]);
    };
    const bool same = std::ranges::all_of(
        others, [&](const Function* other) { return shape_in(*other) == shape_in(*first); });
    if (same) c.set_output(i, shape_in(*first));
  }
  return Status();
}

Status IfShape(ShapeContext& c) {
  return BranchShapes(c,
                      {c.attr<FunctionName>("then_branch"), c.attr<FunctionName>("else_branch")});
}
Status CaseShape(ShapeContext& c) {
  return BranchShapes(c, c.attr<std::vector<FunctionName>>("branches"));
}

// A variable has the shape that the body takes and gives, if it gives none that it does not take.
Status WhileShape(ShapeContext& c) {
  const auto& said = c.attr<std::vector<PartialShape>>("output_shapes");
  const Function* function = c.FindFunction(c.attr<FunctionName>("body").name);
  for (int i = 0; i < c.num_outputs(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (static_cast<int>(said.size()) == c.num_outputs()) {
      c.set_output(i, said[at]);
    } else if (function != nullptr && at < function->args.size() && at < function->results.size()) {
      const Graph& body = *function->body;
      const PartialShape& taken = body.shape({function->args[at], 0});
      const PartialShape& given = body.shape(body.inputs(function->results[at])[0]);
      const auto merged = PartialShape::Merge(taken, given);
      if (merged.ok() && *merged == given) c.set_output(i, taken);
    }
  }
  return Status();
}

// `op` has its first input.
OpDef Functional(OpDef op) {
  return op.Input("input: Tin")
      .Output("output: Tout")
      .Attr("Tin: list(type) >= 0")
      .Attr("Tout: list(type) >= 0")
      .Attr("output_shapes: list(shape) = []");
}

OpDef Transfer(const char* name) {
  return OpDef(name)
      .Attr("T: type")
      .Attr("edge_id: int")
      .Attr("send_device: string")
      .Attr("recv_device: string")
      .Attr("tensor_name: string")
      .Attr("priority: int = 0")
      .Attr("control: bool = false")
      .Stateful();
}

}  // namespace

bool IsFunctional(const Graph& graph, NodeId node) {
  for (const std::string_view op :
       {"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile", "For"}) {
    if (graph.is(node, op)) return true;
  }
  return false;
}

void AddStructuralOps(OpRegistry* registry) {
  registry->Add(OpDef(std::string(kArgOp))
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("index: int >= 0")
                    .Stateful()
                    .Shape(ArgShape));
  registry->Add(
      OpDef("_Retval").Input("input: T").Attr("T: type").Attr("index: int >= 0").Stateful());
  registry->Add(Transfer("_Send").Input("tensor: N * T").Attr("N: int >= 0"));
  registry->Add(Transfer("_Recv").Output("tensor: T").Attr("shape: shape = ?").Shape(RecvShape));
  registry->Add(OpDef(std::string(kGpuSegmentOp))
                    .Input("args: Tin")
                    .Output("results: Tout")
                    .Attr("Tin: list(type) >= 0")
                    .Attr("Tout: list(type) >= 0")
                    .Stateful()
                    .Shape(UnknownShapes));
  registry->Add(OpDef(std::string(kGpuCopyOp))
                    .Input("tensor: T")
                    .Output("copy: T")
                    .Attr("T: type")
                    .Attr("tensor_name: string")
                    .Stateful()
                    .Shape(UnknownShapes));
  registry->Add(OpDef(std::string(kGpuFenceOp)).Stateful());
  registry->Add(OpDef(std::string(kRecursionEndOp))
                    .Input("input: Tin")
                    .Output("output: Tout")
                    .Attr("Tin: list(type) >= 0")
                    .Attr("Tout: list(type) >= 0")
                    .Attr("text: string")
                    .Stateful()
                    .NoGradient()
                    .Shape(UnknownShapes));
  registry->Add(Call("PartitionedCall"));
  registry->Add(Call("StatefulPartitionedCall").Stateful());
  for (const bool stateful : {true, false}) {
    const std::string prefix = stateful ? "" : "Stateless";
    const auto add = [&](OpDef op) { registry->Add(stateful ? op.Stateful() : op); };
    add(Functional(OpDef(prefix + "If").Input("cond: Tcond"))
            .Attr("Tcond: type")
            .Attr("then_branch: func")
            .Attr("else_branch: func")
            .Shape(IfShape));
    add(Functional(OpDef(prefix + "Case").Input("branch_index: int32"))
            .Attr("branches: list(func) >= 1")
            .Shape(CaseShape));
    add(OpDef(prefix + "While")
            .Input("input: T")
            .Output("output: T")
            .Attr("T: list(type) >= 0")
            .Attr("cond: func")
            .Attr("body: func")
            .Attr("output_shapes: list(shape) = []")
            .Attr("parallel_iterations: int = 10")
            .Shape(WhileShape));
  }
  registry->Add(OpDef("For")
                    .Input("start: int32")
                    .Input("limit: int32")
                    .Input("delta: int32")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: list(type) >= 0")
                    .Attr("body: func")
                    .Shape(UnknownShapes));
}

}  // namespace monograph
