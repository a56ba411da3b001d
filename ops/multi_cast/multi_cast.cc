// _MultiCast: several casts as one node, in one launch of a GPU. Some also move the last dimension
// to the front, as cuDNN wants filters to lie, or, `back`, the first one to the end. What is not
// float keeps its type. GroupCasts makes it.
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph::ops::multi_cast {
namespace {

PartialShape Moved(const PartialShape& shape, bool back) {
  if (!shape.known_rank() || shape.rank() == 0) return shape;
  PartialShape moved = shape;
  const int rank = shape.rank();
  for (int i = 0; i < rank; ++i) moved.set_dim(i, shape.dim((i + (back ? 1 : rank - 1)) % rank));
  return moved;
}

Status MultiCastShape(ShapeContext& c) {
  const auto& moved = c.attr<std::vector<bool>>("last_first");
  if (c.num_outputs() != c.num_inputs() || static_cast<int>(moved.size()) != c.num_inputs()) {
    return InvalidArgument(std::to_string(c.num_inputs()) +
                           " tensors need as many types and "
                           "values of last_first, got " +
                           std::to_string(c.num_outputs()) + " and " +
                           std::to_string(moved.size()));
  }
  for (int i = 0; i < c.num_inputs(); ++i)
    c.set_output(
        i, moved[static_cast<size_t>(i)] ? Moved(c.input(i), c.attr<bool>("back")) : c.input(i));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("_MultiCast")
                    .Input("x: SrcT")
                    .Output("y: DstT")
                    .Attr("SrcT: list(type) >= 1")
                    .Attr("DstT: list(type) >= 1")
                    .Attr("last_first: list(bool)")
                    .Attr("back: bool = false")
                    .Shape(MultiCastShape));
}

}  // namespace monograph::ops::multi_cast
