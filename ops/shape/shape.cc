// Functions, shape functions, gradients and definitions. SumToShapeOf, which every broadcasting
// op's gradient uses, decides while the graph is built which axes are to be summed if the shapes
// allow it; only otherwise does the step compute the axes (BroadcastGradientArgs). Reshape's rules
// for -1 and for dimensions of 0 stand here and in shape_cpu.cc, for shapes known before and in the
// step.
#include "ops/shape/shape.h"

#include <numeric>

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/reduce/reduce.h"
#include "ops/types.h"

namespace monograph {

Output ShapeOf(const Scope& scope, const Output& input, DType out_type) {
  return OpBuilder(scope, "Shape").Input(input).Attr("out_type", out_type).BuildOutput();
}

Outputs ShapeN(const Scope& scope, const Outputs& inputs, DType out_type) {
  const Operation node =
      OpBuilder(scope, "ShapeN").Inputs(inputs).Attr("out_type", out_type).Build();
  Outputs outputs;
  for (size_t i = 0; i < inputs.size(); ++i) outputs.push_back(node.output(static_cast<int>(i)));
  return outputs;
}

Output Size(const Scope& scope, const Output& input, DType out_type) {
  return OpBuilder(scope, "Size").Input(input).Attr("out_type", out_type).BuildOutput();
}

Output Rank(const Scope& scope, const Output& input) {
  return OpBuilder(scope, "Rank").Input(input).BuildOutput();
}

Output Reshape(const Scope& scope, const Output& tensor, const Output& shape) {
  return OpBuilder(scope, "Reshape").Input(tensor).Input(shape).BuildOutput();
}

Output Reshape(const Scope& scope, const Output& tensor, std::initializer_list<int64_t> shape) {
  return Reshape(scope, tensor, IntsConst(scope.WithOpName("Reshape/shape"), shape));
}

Output ExpandDims(const Scope& scope, const Output& input, const Output& axis) {
  return OpBuilder(scope, "ExpandDims").Input(input).Input(axis).BuildOutput();
}

Output ExpandDims(const Scope& scope, const Output& input, int axis) {
  return ExpandDims(scope, input, Const(scope.WithOpName("ExpandDims/dim"), axis));
}

Output Squeeze(const Scope& scope, const Output& input, const std::vector<int64_t>& axes) {
  return OpBuilder(scope, "Squeeze").Input(input).Attr("squeeze_dims", axes).BuildOutput();
}

Output BroadcastTo(const Scope& scope, const Output& input, const Output& shape) {
  return OpBuilder(scope, "BroadcastTo").Input(input).Input(shape).BuildOutput();
}

Output BroadcastArgs(const Scope& scope, const Output& s0, const Output& s1) {
  return OpBuilder(scope, "BroadcastArgs").Input(s0).Input(s1).BuildOutput();
}

std::pair<Output, Output> BroadcastGradientArgs(const Scope& scope, const Output& s0,
                                                const Output& s1) {
  const Operation node = OpBuilder(scope, "BroadcastGradientArgs").Input(s0).Input(s1).Build();
  return {node.output(0), node.output(1)};
}

Output SumToShapeOf(const Scope& scope, const Output& gradient, const Output& x,
                    const Output& other) {
  if (!gradient.valid() || !x.valid() || !other.valid()) return {};
  const PartialShape a = x.shape(), b = other.shape();
  bool static_axes = a.known_rank() && b.known_rank();
  std::vector<int64_t> axes;
  const int rank = static_axes ? std::max(a.rank(), b.rank()) : 0;
  const int lead = static_axes ? rank - a.rank() : 0;
  for (int i = 0; i < rank && static_axes; ++i) {
    const int64_t mine = i < lead ? 1 : a.dim(i - lead);
    const int64_t its = i < rank - b.rank() ? 1 : b.dim(i - (rank - b.rank()));
    if (i < lead || (mine == 1 && its != 1)) {
      axes.push_back(i);  // over an unknown dimension that turns out to be 1, a sum does no harm
    } else if (mine < 0 && its != 1) {
      static_axes = false;  // it may turn out to be 1
    }
  }
  if (static_axes) {
    if (axes.empty()) return gradient;
    const Output axes_const = IntsConst(scope.WithOpName("sum_axes"), axes);
    if (lead == 0) return Sum(scope, gradient, axes_const, /*keep_dims=*/true);
    const Output sum = Sum(scope, gradient, axes_const);
    if (static_cast<int>(axes.size()) == lead) return sum;
    if (a.fully_known()) return Reshape(scope, sum, IntsConst(scope.WithOpName("shape"), a.dims()));
    return Reshape(scope, sum, ShapeOf(scope, x));
  }
  const Output shape = ShapeOf(scope, x);
  const Output sum_axes = BroadcastGradientArgs(scope, shape, ShapeOf(scope, other)).first;
  return Reshape(scope, Sum(scope, gradient, sum_axes), shape);
}

namespace ops::shape {
namespace {

PartialShape VectorOfRank(const PartialShape& shape) {
  return PartialShape{shape.known_rank() ? shape.rank() : -1};
}

Status ShapeShape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_output(i, VectorOfRank(c.input(i)));
  return Status();
}

Status ReshapeShape(ShapeContext& c) {
  if (c.input(1).known_rank() && c.input(1).rank() != 1) {
    return InvalidArgument("the shape must be a vector, not of shape " + c.input(1).ToString());
  }
  MG_ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(1));
  if (!shape.known_rank()) {
    c.set_output(0, shape);
    return Status();
  }
  const Tensor* value = c.input_value(1);
  const PartialShape& input = c.input(0);
  if (value == nullptr) {
    c.set_output(0, shape);
    return Status();
  }
  int open = -1;
  int64_t product = 1;  // of the dimensions that are given and not 0
  bool has_zero = false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) < 0) {
      if (open >= 0)
        return InvalidArgument("only one dimension of " + shape.ToString() + " may be -1");
      open = i;
    } else if (shape.dim(i) == 0) {
      has_zero = true;
    } else if (__builtin_mul_overflow(product, shape.dim(i), &product)) {
      return InvalidArgument("shape " + shape.ToString() + " has more than 2^63 elements");
    }
  }
  if (input.fully_known()) {
    // Where the shape has a 0, zeros are left out of the count on both sides: [0, 3] to [0, -1] is
    // [0, 3].
    int64_t counted = 1;
    bool left_out = false;
    for (int64_t dim : input.dims()) {
      if (dim == 0 && has_zero) {
        left_out = true;
      } else if (__builtin_mul_overflow(counted, dim, &counted)) {
        return InvalidArgument("shape " + input.ToString() + " has more than 2^63 elements");
      }
    }
    if (open >= 0 && !left_out && counted % product != 0) {
      return InvalidArgument("cannot reshape " + std::to_string(counted) + " elements to " +
                             shape.ToString());
    }
    if (open >= 0) shape.set_dim(open, counted / product);
    if (shape.elements() != input.elements()) {
      return InvalidArgument("cannot reshape " + std::to_string(input.elements()) +
                             " elements to " + shape.ToString() + ", which has " +
                             std::to_string(shape.elements()));
    }
  }
  c.set_output(0, shape);
  return Status();
}

Status ExpandDimsShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  const auto axis = c.InputAsInts(1);
  if (axis && axis->size() != 1) return InvalidArgument("the axis must be one number");
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (input.rank() == kMaxRank) return TooManyDimensions();
  if (!axis) {
    c.set_output(0, PartialShape::UnknownOfRank(input.rank() + 1));
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis->front(), input.rank() + 1));
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i <= input.rank(); ++i)
    output.AddDim(i == at ? 1 : input.dim(i < at ? i : i - 1));
  c.set_output(0, output);
  return Status();
}

Status SqueezeShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  const auto axes = c.attrs().GetOr<std::vector<int64_t>>("squeeze_dims", {});
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  PartialShape output = PartialShape::Scalar();
  if (axes.empty()) {
    for (int64_t dim : input.dims()) {
      if (dim < 0) {
        c.set_output(0, PartialShape());  // it may be 1, and then goes
        return Status();
      }
      if (dim != 1) output.AddDim(dim);
    }
  } else {
    std::array<bool, kMaxRank> gone{};
    for (int64_t axis : axes) {
      MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, input.rank()));
      if (input.dim(at) >= 0 && input.dim(at) != 1) {
        return InvalidArgument("cannot squeeze dimension " + std::to_string(at) + " of " +
                               input.ToString() + ": it is not 1");
      }
      gone[static_cast<size_t>(at)] = true;
    }
    for (int i = 0; i < input.rank(); ++i) {
      if (!gone[static_cast<size_t>(i)]) output.AddDim(input.dim(i));
    }
  }
  c.set_output(0, output);
  return Status();
}

Status BroadcastToShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(1));
  if (shape.known_rank() && c.input(0).known_rank()) {
    if (c.input(0).rank() > shape.rank()) {
      return InvalidArgument("cannot broadcast " + c.input(0).ToString() + " to " +
                             shape.ToString());
    }
    for (int i = 1; i <= c.input(0).rank(); ++i) {
      const int64_t from = c.input(0).dim(c.input(0).rank() - i), to = shape.dim(shape.rank() - i);
      if (from > 1 && to >= 0 && from != to) {
        return InvalidArgument("cannot broadcast " + c.input(0).ToString() + " to " +
                               shape.ToString());
      }
    }
  }
  c.set_output(0, shape);
  return Status();
}

Status BroadcastArgsShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 1));
  MG_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 1));
  const bool known = a.dim(0) >= 0 && b.dim(0) >= 0;
  c.set_output(0, PartialShape{known ? std::max(a.dim(0), b.dim(0)) : -1});
  return Status();
}

Status BroadcastGradientArgsShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, PartialShape{-1});
  c.set_output(1, PartialShape{-1});
  return Status();
}

// Reshape, ExpandDims, Squeeze.
Status RelabelGradient(GradientContext& c) {
  const Output x = c.input(0);
  if (x.shape().fully_known()) {
    c.set_grad(0, Reshape(c.scope(), c.grad(0),
                          IntsConst(c.scope().WithOpName("shape"), x.shape().dims())));
  } else {
    c.set_grad(0, Reshape(c.scope(), c.grad(0), ShapeOf(c.scope(), x)));
  }
  return Status();
}

Status BroadcastToGradient(GradientContext& c) {
  c.set_grad(0, SumToShapeOf(c.scope(), c.grad(0), c.input(0), c.output(0)));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Shape")
                    .Input("input: T")
                    .Output("output: out_type")
                    .Attr("T: type")
                    .Attr("out_type: {int32, int64} = DT_INT32")
                    .Shape(ShapeShape)
                    .NoGradient());
  registry->Add(OpDef("ShapeN")
                    .Input("input: N * T")
                    .Output("output: N * out_type")
                    .Attr("N: int >= 1")
                    .Attr("T: type")
                    .Attr("out_type: {int32, int64} = DT_INT32")
                    .Shape(ShapeShape)
                    .NoGradient());
  registry->Add(OpDef("Size")
                    .Input("input: T")
                    .Output("output: out_type")
                    .Attr("T: type")
                    .Attr("out_type: {int32, int64} = DT_INT32")
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("Rank")
                    .Input("input: T")
                    .Output("output: int32")
                    .Attr("T: type")
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("Reshape")
                    .Input("tensor: T")
                    .Input("shape: Tshape")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tshape: {int32, int64} = DT_INT32")
                    .ReadsOnly()
                    .Shape(ReshapeShape)
                    .Gradient(RelabelGradient));
  registry->Add(OpDef("ExpandDims")
                    .Input("input: T")
                    .Input("dim: Tdim")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tdim: {int32, int64} = DT_INT32")
                    .ReadsOnly()
                    .Shape(ExpandDimsShape)
                    .Gradient(RelabelGradient));
  registry->Add(OpDef("Squeeze")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("squeeze_dims: list(int) >= 0 = []")
                    .ReadsOnly()
                    .Shape(SqueezeShape)
                    .Gradient(RelabelGradient));
  registry->Add(OpDef("BroadcastTo")
                    .Input("input: T")
                    .Input("shape: Tidx")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Shape(BroadcastToShape)
                    .Gradient(BroadcastToGradient));
  registry->Add(OpDef("BroadcastArgs")
                    .Input("s0: T")
                    .Input("s1: T")
                    .Output("r0: T")
                    .Attr("T: {int32, int64} = DT_INT32")
                    .Shape(BroadcastArgsShape)
                    .NoGradient());
  registry->Add(OpDef("BroadcastGradientArgs")
                    .Input("s0: T")
                    .Input("s1: T")
                    .Output("r0: T")
                    .Output("r1: T")
                    .Attr("T: {int32, int64} = DT_INT32")
                    .Shape(BroadcastGradientArgsShape)
                    .NoGradient());
}

}  // namespace ops::shape
}  // namespace monograph
