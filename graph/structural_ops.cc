#include "graph/structural_ops.h"

#include <fmt/core.h>

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
  registry->Add(Call("PartitionedCall"));
  registry->Add(Call("StatefulPartitionedCall").Stateful());
}

}  // namespace monograph
