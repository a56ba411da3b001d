#include "graph/resource_handle.h"

namespace monograph {
namespace {

// The attributes of the node that tells about the handle; nullptr if it is no handle.
const Attrs* Source(const Graph& graph, Endpoint handle) {
  constexpr int kMostPassed = 1000;  // each node that reads it may ask
  for (int i = 0;
       graph.is(handle.node, "Identity") || graph.op(handle.node).flow() == FlowOp::kEnter; ++i) {
    if (i == kMostPassed) return nullptr;
    handle = graph.inputs(handle.node)[0];
  }
  return graph.dtype(handle) == DT_RESOURCE ? &graph.attrs(handle.node) : nullptr;
}

}  // namespace

PartialShape HandleShape(const Graph& graph, Endpoint handle) {
  const Attrs* attrs = Source(graph, handle);
  if (attrs == nullptr) return PartialShape();
  const auto shapes = attrs->GetOr<std::vector<PartialShape>>("_handle_shapes", {});
  if (shapes.size() == 1) return shapes.front();
  return attrs->GetOr<PartialShape>("shape",
                                    attrs->GetOr<PartialShape>("element_shape", PartialShape()));
}

DType HandleDType(const Graph& graph, Endpoint handle) {
  const Attrs* attrs = Source(graph, handle);
  if (attrs == nullptr) return DT_INVALID;
  const auto types = attrs->GetOr<std::vector<DType>>("_handle_dtypes", {});
  return types.size() == 1 ? types.front() : attrs->GetOr<DType>("dtype", DT_INVALID);
}

}  // namespace monograph
