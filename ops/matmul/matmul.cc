// Functions, shape functions, gradients and definitions. The gradient of a product is two products,
// one form for each combination of transposed operands, so that nothing is transposed in memory.
// The gradient of a batch product is also summed over the batch dimensions in which an operand was
// repeated (Unbroadcast).
#include "ops/matmul/matmul.h"

#include <vector>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"
#include "ops/matmul/equation.h"

namespace monograph {

Output MatMul(const Scope& scope, Output a, Output b, const MatMulOptions& options) {
  return OpBuilder(scope, "MatMul")
      .Input(a)
      .Input(b)
      .Attr("transpose_a", AttrValue(options.transpose_a))
      .Attr("transpose_b", AttrValue(options.transpose_b))
      .BuildOutput();
}

Output BatchMatMul(const Scope& scope, Output x, Output y, bool adj_x, bool adj_y) {
  return OpBuilder(scope, "BatchMatMulV2")
      .Input(x)
      .Input(y)
      .Attr("adj_x", AttrValue(adj_x))
      .Attr("adj_y", AttrValue(adj_y))
      .BuildOutput();
}

Output Einsum(const Scope& scope, const Outputs& inputs, const std::string& equation) {
  return OpBuilder(scope, "Einsum").Inputs(inputs).Attr("equation", equation).BuildOutput();
}

namespace ops::matmul {
namespace {

Status MatMulShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  const bool ta = c.attr<bool>("transpose_a"), tb = c.attr<bool>("transpose_b");
  MG_RETURN_IF_ERROR(
      MergeDim(a.dim(ta ? 0 : 1), b.dim(tb ? 1 : 0), "inner dimensions of the product").status());
  c.set_output(0, PartialShape{a.dim(ta ? 1 : 0), b.dim(tb ? 0 : 1)});
  return Status();
}

Status BatchMatMulShape(ShapeContext& c) {
  const PartialShape &x = c.input(0), &y = c.input(1);
  if (!x.known_rank() || !y.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (x.rank() < 2 || y.rank() < 2) {
    return InvalidArgument("both inputs need at least two dimensions, got " + x.ToString() +
                           " and " + y.ToString());
  }
  const bool ax = c.attr<bool>("adj_x"), ay = c.attr<bool>("adj_y");
  const int rx = x.rank(), ry = y.rank();
  MG_RETURN_IF_ERROR(MergeDim(x.dim(ax ? rx - 2 : rx - 1), y.dim(ay ? ry - 1 : ry - 2),
                              "inner dimensions of the product")
                         .status());
  MG_ASSIGN_OR_RETURN(PartialShape out,
                      BroadcastShapes(PartialShape(x.dims().first(static_cast<size_t>(rx - 2))),
                                      PartialShape(y.dims().first(static_cast<size_t>(ry - 2)))));
  out.AddDim(x.dim(ax ? rx - 1 : rx - 2));
  out.AddDim(y.dim(ay ? ry - 2 : ry - 1));
  c.set_output(0, out);
  return Status();
}

// BatchMatMul's batches are equal; those of its later versions broadcast.
Status EqualBatchesShape(ShapeContext& c) {
  const PartialShape &x = c.input(0), &y = c.input(1);
  if (x.known_rank() && y.known_rank() && x.rank() >= 2 && y.rank() >= 2) {
    const auto batch = [](const PartialShape& shape) {
      return PartialShape(shape.dims().first(static_cast<size_t>(shape.rank() - 2)));
    };
    MG_RETURN_IF_ERROR(PartialShape::Merge(batch(x), batch(y)).status());
  }
  return BatchMatMulShape(c);
}

Status EinsumShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Equation equation,
                      Equation::Parse(c.attr<std::string>("equation"), c.num_inputs()));
  std::vector<PartialShape> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
  MG_ASSIGN_OR_RETURN(const PartialShape out, equation.OutputShape(inputs));
  c.set_output(0, out);
  return Status();
}

Status MatMulGradient(GradientContext& c) {
  const bool ta = c.attrs().Get<bool>("transpose_a"), tb = c.attrs().Get<bool>("transpose_b");
  const Output a = c.input(0), b = c.input(1), g = c.grad(0);
  const Scope& s = c.scope();
  if (!ta && !tb) {
    c.set_grad(0, MatMul(s, g, b, {.transpose_b = true}));
    c.set_grad(1, MatMul(s, a, g, {.transpose_a = true}));
  } else if (!ta && tb) {
    c.set_grad(0, MatMul(s, g, b));
    c.set_grad(1, MatMul(s, g, a, {.transpose_a = true}));
  } else if (ta && !tb) {
    c.set_grad(0, MatMul(s, b, g, {.transpose_b = true}));
    c.set_grad(1, MatMul(s, a, g));
  } else {
    c.set_grad(0, MatMul(s, b, g, {.transpose_a = true, .transpose_b = true}));
    c.set_grad(1, MatMul(s, g, a, {.transpose_a = true, .transpose_b = true}));
  }
  return Status();
}

// The gradient of a broadcast operand: summed over the dimensions that were stretched, in the
// operand's own shape.
Output Unbroadcast(const Scope& s, Output gradient, Output operand, Output other) {
  const auto batch = [](const PartialShape& shape) {
    return shape.dims().first(static_cast<size_t>(shape.rank() - 2));
  };
  const PartialShape &mine = operand.shape(), &theirs = other.shape();
  if (mine.known_rank() && theirs.known_rank() &&
      PartialShape(batch(mine)) == PartialShape(batch(theirs)) &&
      PartialShape(batch(mine)).fully_known()) {
    return gradient;
  }
  const auto shape_of = [&](Output x) { return OpBuilder(s, "Shape").Input(x).BuildOutput(); };
  const auto ints = [&](std::initializer_list<int32_t> values) {
    return OpBuilder(s, "Const")
        .Attr("value", AttrValue(Tensor::Vector<int32_t>(values)))
        .Attr("dtype", AttrValue(DT_INT32))
        .BuildOutput();
  };
  // BroadcastGradientArgs on the batch dimensions only: shape[:-2].
  const auto head = [&](Output shape) {
    return OpBuilder(s, "StridedSlice")
        .Input(shape)
        .Input(ints({0}))
        .Input(ints({-2}))
        .Input(ints({1}))
        .Attr("begin_mask", 1)
        .BuildOutput();
  };
  const Output shape = shape_of(operand);
  const Operation axes =
      OpBuilder(s, "BroadcastGradientArgs").Input(head(shape)).Input(head(shape_of(other))).Build();
  const Output sum = OpBuilder(s, "Sum").Input(gradient).Input(axes.output(0)).BuildOutput();
  return OpBuilder(s, "Reshape").Input(sum).Input(shape).BuildOutput();
}

Status BatchMatMulGradient(GradientContext& c) {
  const bool ax = c.attrs().Get<bool>("adj_x"), ay = c.attrs().Get<bool>("adj_y");
  const Output x = c.input(0), y = c.input(1), g = c.grad(0);
  const Scope& s = c.scope();
  Output dx, dy;
  if (!ax && !ay) {
    dx = BatchMatMul(s, g, y, false, true);
    dy = BatchMatMul(s, x, g, true, false);
  } else if (!ax && ay) {
    dx = BatchMatMul(s, g, y, false, false);
    dy = BatchMatMul(s, g, x, true, false);
  } else if (ax && !ay) {
    dx = BatchMatMul(s, y, g, false, true);
    dy = BatchMatMul(s, x, g, false, false);
  } else {
    dx = BatchMatMul(s, y, g, true, true);
    dy = BatchMatMul(s, g, x, true, true);
  }
  c.set_grad(0, Unbroadcast(s, dx, x, y));
  c.set_grad(1, Unbroadcast(s, dy, y, x));
  return Status();
}

Status SparseMatMulGradient(GradientContext& c) {
  const bool ta = c.attrs().Get<bool>("transpose_a"), tb = c.attrs().Get<bool>("transpose_b");
  const Scope& s = c.scope();
  const auto as = [&](const Output& x, DType dtype) {
    return x.dtype() == dtype
               ? x
               : OpBuilder(s, "Cast").Input(x).Attr("DstT", AttrValue(dtype)).BuildOutput();
  };
  const Output a = as(c.input(0), DT_FLOAT), b = as(c.input(1), DT_FLOAT), g = c.grad(0);
  const Output da = ta ? MatMul(s, b, g, {.transpose_a = tb, .transpose_b = true})
                       : MatMul(s, g, b, {.transpose_b = !tb});
  const Output db = tb ? MatMul(s, g, a, {.transpose_a = true, .transpose_b = ta})
                       : MatMul(s, a, g, {.transpose_a = !ta});
  c.set_grad(0, as(da, c.input(0).dtype()));
  c.set_grad(1, as(db, c.input(1).dtype()));
  return Status();
}

// Each operand's gradient is a product again: of what flows in and the other operand. Labels of an
// operand that occur nowhere else were summed: its gradient is repeated along them.
Status EinsumGradient(GradientContext& c) {
  MG_ASSIGN_OR_RETURN(const Equation equation,
                      Equation::Parse(c.attrs().Get<std::string>("equation"), c.num_inputs()));
  MG_RETURN_IF_ERROR(equation.CheckGradient(c.op().name()));
  const Scope& s = c.scope();
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Output x = c.input(i);
    std::string from = equation.output(), known;
    Outputs factors{c.grad(0)};
    if (c.num_inputs() == 2) {
      from += "," + equation.input(1 - i);
      factors.push_back(c.input(1 - i));
    }
    std::vector<int64_t> lonely;  // dimensions of x
    const std::string& labels = equation.input(i);
    for (size_t d = 0; d < labels.size(); ++d) {
      if (from.find(labels[d]) == std::string::npos) {
        lonely.push_back(static_cast<int64_t>(d));
      } else {
        known += labels[d];
      }
    }
    Output gradient = Einsum(s, factors, from + "->" + known);
    for (int64_t dimension : lonely) {
      const Output axis =
          OpBuilder(s, "Const")
              .Attr("value", AttrValue(Tensor::Scalar<int32_t>(static_cast<int32_t>(dimension))))
              .Attr("dtype", AttrValue(DT_INT32))
              .BuildOutput();
      gradient = OpBuilder(s, "ExpandDims").Input(gradient).Input(axis).BuildOutput();
    }
    if (!lonely.empty()) {
      const Output shape = OpBuilder(s, "Shape").Input(x).BuildOutput();
      gradient = OpBuilder(s, "BroadcastTo").Input(gradient).Input(shape).BuildOutput();
    }
    c.set_grad(i, gradient);
  }
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("MatMul")
                    .Input("a: T")
                    .Input("b: T")
                    .Output("product: T")
                    .Attr("transpose_a: bool = false")
                    .Attr("transpose_b: bool = false")
                    .Attr("T: {bfloat16, half, float, double, int32, int64}")
                    .Shape(MatMulShape)
                    .Gradient(MatMulGradient));
  registry->Add(OpDef("_FusedMatMul")
                    .Input("a: T")
                    .Input("b: T")
                    .Input("args: num_args * T")
                    .Output("product: T")
                    .Attr("transpose_a: bool = false")
                    .Attr("transpose_b: bool = false")
                    .Attr("T: {bfloat16, half, float, double}")
                    .Attr("num_args: int >= 0")
                    .Attr("fused_ops: list(string) = []")
                    .Attr("epsilon: float = 0.0001")
                    .Attr("leakyrelu_alpha: float = 0.2")
                    .Shape(MatMulShape));
  registry->Add(OpDef("BatchMatMulV2")
                    .Input("x: T")
                    .Input("y: T")
                    .Output("output: T")
                    .Attr("adj_x: bool = false")
                    .Attr("adj_y: bool = false")
                    .Attr("T: {bfloat16, half, float, double, int32, int64}")
                    .Shape(BatchMatMulShape)
                    .Gradient(BatchMatMulGradient));
  registry->Add(OpDef("BatchMatMul")
                    .Input("x: T")
                    .Input("y: T")
                    .Output("output: T")
                    .Attr("adj_x: bool = false")
                    .Attr("adj_y: bool = false")
                    .Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
                    .Shape(EqualBatchesShape)
                    .Gradient(BatchMatMulGradient));
  registry->Add(
      OpDef("BatchMatMulV3")
          .Input("x: Ta")
          .Input("y: Tb")
          .Output("output: Tout")
          .Attr("adj_x: bool = false")
          .Attr("adj_y: bool = false")
          .Attr("Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
                "complex128}")
          .Attr("Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
                "complex128}")
          .Attr("Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}")
          .Shape(BatchMatMulShape)
          .Gradient(BatchMatMulGradient));
  registry->Add(OpDef("SparseMatMul")
                    .Input("a: Ta")
                    .Input("b: Tb")
                    .Output("product: float")
                    .Attr("transpose_a: bool = false")
                    .Attr("transpose_b: bool = false")
                    .Attr("a_is_sparse: bool = false")
                    .Attr("b_is_sparse: bool = false")
                    .Attr("Ta: {float, bfloat16} = DT_FLOAT")
                    .Attr("Tb: {float, bfloat16} = DT_FLOAT")
                    .Shape(MatMulShape)
                    .Gradient(SparseMatMulGradient));
  registry->Add(OpDef("Einsum")
                    .Input("inputs: N * T")
                    .Output("output: T")
                    .Attr("equation: string")
                    .Attr("N: int >= 1")
                    .Attr("T: type")
                    .Shape(EinsumShape)
                    .Gradient(EinsumGradient));
}

}  // namespace ops::matmul
}  // namespace monograph
