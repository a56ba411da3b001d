#include "graph/resource_handle.h"

namespace monograph {
namespace {

// The input that an output is, of a node that hands it on; -1 for other nodes.
int HandedOn(const Graph& graph, Endpoint output) {
  const FlowOp flow = graph.op(output.node).flow();
  if (graph.inputs(output.node).empty()) return -1;  // fed
  if (graph.is(output.node, "IdentityN")) return output.index;
  const bool first =
      graph.is(output.node, "Identity") || flow == FlowOp::kEnter || flow == FlowOp::kSwitch;
  return first ? 0 : -1;
}

// The node that tells about the handle; -1 if it is no handle.
NodeId Source(const Graph& graph, Endpoint handle) {
  constexpr int kMostPassed = 1000;  // each node that reads it may ask
  int input = HandedOn(graph, handle);
  for (int i = 0; input >= 0; ++i) {
    if (i == kMostPassed) return -1;
    handle = graph.inputs(handle.node)[static_cast<size_t>(input)];
    input = HandedOn(graph, handle);
  }
  const auto& outputs = graph.op(handle.node).outputs();
  const bool strings = outputs.size() == 1 && outputs[0].is_string_handle();
  return strings || graph.dtype(handle) == DT_RESOURCE ? handle.node : -1;
}

}  // namespace

const Attrs* HandleAttrs(const Graph& graph, Endpoint handle) {
  const NodeId source = Source(graph, handle);
  return source < 0 ? nullptr : &graph.attrs(source);
}

PartialShape HandleShape(const Graph& graph, Endpoint handle) {
  const Attrs* attrs = HandleAttrs(graph, handle);
  if (attrs == nullptr) return PartialShape();
  const auto shapes = attrs->GetOr<std::vector<PartialShape>>("_handle_shapes", {});
  if (shapes.size() == 1) return shapes.front();
  for (const char* name : {"shape", "element_shape", "value_shape"}) {
    if (attrs->Find(name) != nullptr) return attrs->GetOr<PartialShape>(name, PartialShape());
  }
  return PartialShape();
}

DType HandleDType(const Graph& graph, Endpoint handle) {
  const Attrs* attrs = HandleAttrs(graph, handle);
  if (attrs == nullptr) return DT_INVALID;
  const auto types = attrs->GetOr<std::vector<DType>>("_handle_dtypes", {});
  return types.size() == 1 ? types.front() : attrs->GetOr<DType>("dtype", DT_INVALID);
}

std::string_view HandleOp(const Graph& graph, Endpoint handle) {
  const NodeId source = Source(graph, handle);
  return source < 0 ? std::string_view() : graph.op(source).name();
}

}  // namespace monograph
