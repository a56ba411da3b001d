// Functions, shape functions, gradients and definitions. The ops come in pairs that undo each
// other, and so each is the gradient of the other; Roll and ReverseSequence undo themselves.
#include "ops/rearrange/rearrange.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"

namespace monograph {
namespace {

Output BlockOp(const Scope& scope, const char* op, const Output& input, int64_t block_size,
               const std::string& data_format) {
  return OpBuilder(scope, op)
      .Input(input)
      .Attr("block_size", AttrValue(block_size))
      .Attr("data_format", AttrValue(data_format))
      .BuildOutput();
}

Output MirrorOp(const Scope& scope, const char* op, const Output& input, const Output& paddings,
                const std::string& mode) {
  return OpBuilder(scope, op)
      .Input(input)
      .Input(paddings)
      .Attr("mode", AttrValue(mode))
      .BuildOutput();
}

Output BatchOp(const Scope& scope, const char* op, const Output& input, const Output& block_shape,
               const Output& edges) {
  return OpBuilder(scope, op).Input(input).Input(block_shape).Input(edges).BuildOutput();
}

}  // namespace

Output Roll(const Scope& scope, const Output& input, const Output& shift, const Output& axis) {
  return OpBuilder(scope, "Roll").Input(input).Input(shift).Input(axis).BuildOutput();
}

Output ReverseSequence(const Scope& scope, const Output& input, const Output& seq_lengths,
                       int64_t seq_dim, int64_t batch_dim) {
  return OpBuilder(scope, "ReverseSequence")
      .Input(input)
      .Input(seq_lengths)
      .Attr("seq_dim", AttrValue(seq_dim))
      .Attr("batch_dim", AttrValue(batch_dim))
      .BuildOutput();
}

Output MirrorPad(const Scope& scope, const Output& input, const Output& paddings,
                 const std::string& mode) {
  return MirrorOp(scope, "MirrorPad", input, paddings, mode);
}

Output SpaceToBatchND(const Scope& scope, const Output& input, const Output& block_shape,
                      const Output& paddings) {
  return BatchOp(scope, "SpaceToBatchND", input, block_shape, paddings);
}
Output BatchToSpaceND(const Scope& scope, const Output& input, const Output& block_shape,
                      const Output& crops) {
  return BatchOp(scope, "BatchToSpaceND", input, block_shape, crops);
}

Output SpaceToDepth(const Scope& scope, const Output& input, int64_t block_size,
                    const std::string& data_format) {
  return BlockOp(scope, "SpaceToDepth", input, block_size, data_format);
}
Output DepthToSpace(const Scope& scope, const Output& input, int64_t block_size,
                    const std::string& data_format) {
  return BlockOp(scope, "DepthToSpace", input, block_size, data_format);
}

namespace ops::rearrange {
namespace {

Status RollShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  if (input.known_rank() && input.rank() < 1)
    return InvalidArgument("the input must have at least one dimension");
  for (int i : {1, 2}) {
    if (c.input(i).known_rank() && c.input(i).rank() > 1)
      return InvalidArgument("shift and axis must be scalars or vectors");
  }
  c.set_output(0, input);
  return Status();
}

Status ReverseSequenceShape(ShapeContext& c) {
  PartialShape input = c.input(0);
  MG_ASSIGN_OR_RETURN(const PartialShape lengths, c.WithRank(1, 1));
  const auto seq = c.attr<int64_t>("seq_dim"), batch = c.attr<int64_t>("batch_dim");
  if (input.known_rank()) {
    if (seq < 0 || seq >= input.rank() || batch < 0 || batch >= input.rank() || seq == batch) {
      return InvalidArgument("seq_dim " + std::to_string(seq) + " and batch_dim " +
                             std::to_string(batch) + " must be two dimensions of " +
                             input.ToString());
    }
    const auto b = static_cast<int>(batch);
    if (input.dim(b) < 0) {
      input.set_dim(b, lengths.dim(0));
    } else if (lengths.dim(0) >= 0 && lengths.dim(0) != input.dim(b)) {
      return InvalidArgument("there are " + std::to_string(lengths.dim(0)) +
                             " seq_lengths for dimension " + std::to_string(batch) + " of " +
                             input.ToString());
    }
  }
  c.set_output(0, input);
  return Status();
}

// The rows of input 1, a matrix of two columns, are what is put on or taken off each dimension.
Status PaddedShape(ShapeContext& c, int sign) {
  const PartialShape& input = c.input(0);
  MG_ASSIGN_OR_RETURN(const PartialShape paddings, c.WithRank(1, 2));
  if (paddings.dim(1) >= 0 && paddings.dim(1) != 2)
    return InvalidArgument("paddings must have 2 columns, not shape " + paddings.ToString());
  const int64_t rank = input.known_rank() ? input.rank() : paddings.dim(0);
  if (rank > kMaxRank) return TooManyDimensions();
  if (input.known_rank() && paddings.dim(0) >= 0 && paddings.dim(0) != input.rank()) {
    return InvalidArgument("paddings of shape " + paddings.ToString() + " for an input of shape " +
                           input.ToString());
  }
  if (rank < 0) {
    c.set_output(0, PartialShape());
    return Status();
  }
  PartialShape output = PartialShape::UnknownOfRank(static_cast<int>(rank));
  const Tensor* value = c.input_value(1);
  for (int i = 0; value != nullptr && input.known_rank() && i < input.rank(); ++i) {
    const auto at = [&](int64_t k) {
      return value->dtype() == DT_INT32 ? int64_t{value->data<int32_t>()[k]}
                                        : value->data<int64_t>()[k];
    };
    if (at(2 * i) < 0 || at(2 * i + 1) < 0) return InvalidArgument("paddings must not be negative");
    if (input.dim(i) < 0) continue;
    int64_t sum = 0, dim = 0;
    if (__builtin_add_overflow(at(2 * i), at(2 * i + 1), &sum) ||
        __builtin_add_overflow(input.dim(i), sign * sum, &dim)) {
      return InvalidArgument("the sum of paddings does not fit in 63 bits");
    }
    if (dim < 0) return InvalidArgument("paddings are larger than the input");
    output.set_dim(i, dim);
  }
  c.set_output(0, output);
  return Status();
}

Status MirrorPadShape(ShapeContext& c) { return PaddedShape(c, 1); }
Status MirrorPadGradShape(ShapeContext& c) { return PaddedShape(c, -1); }

// Of SpaceToBatch (and SpaceToBatchND) or back. `blocks`: one per dimension behind the first, -1 or
// no entry where it is not known.
Status BatchBlocksShape(ShapeContext& c, int edges_input, bool to_batch,
                        const std::optional<std::vector<int64_t>>& blocks) {
  const PartialShape& input = c.input(0);
  if (!input.known_rank() || !blocks) {
    c.set_output(0,
                 input.known_rank() ? PartialShape::UnknownOfRank(input.rank()) : PartialShape());
    return Status();
  }
  const auto dims = static_cast<int>(blocks->size());
  if (input.rank() < dims + 1) {
    return InvalidArgument("an input of shape " + input.ToString() + " has no " +
                           std::to_string(dims) + " dimensions behind the first");
  }
  const Tensor* edges = c.input_value(edges_input);
  if (edges != nullptr && edges->elements() != 2 * dims)
    return InvalidArgument("there must be 2 paddings or crops for each of " + std::to_string(dims) +
                           " dimensions, not shape " + edges->shape().ToString());
  PartialShape output = input;
  int64_t product = 1;
  for (int i = 0; i < dims; ++i) {
    const int64_t block = (*blocks)[static_cast<size_t>(i)];
    if (block < 1) return InvalidArgument("block sizes must be positive");
    if (__builtin_mul_overflow(product, block, &product))
      return InvalidArgument("the product of the block sizes does not fit in 63 bits");
    int64_t size = input.dim(i + 1);
    if (edges == nullptr || size < 0) {
      output.set_dim(i + 1, -1);
      continue;
    }
    const auto at = [&](int64_t k) {
      return edges->dtype() == DT_INT32 ? int64_t{edges->data<int32_t>()[k]}
                                        : edges->data<int64_t>()[k];
    };
    const int64_t first = at(2 * i), last = at(2 * i + 1);
    if (first < 0 || last < 0) return InvalidArgument("paddings and crops must not be negative");
    int64_t sum = 0;
    if (__builtin_add_overflow(first, last, &sum) ||
        (to_batch ? __builtin_add_overflow(size, sum, &size)
                  : __builtin_mul_overflow(size, block, &size))) {
      return InvalidArgument("dimension " + std::to_string(i + 1) +
                             " with its blocks, paddings or crops does not fit in 63 bits");
    }
    if (to_batch) {
      if (size % block != 0) {
        return InvalidArgument("padded dimension " + std::to_string(i + 1) + " is " +
                               std::to_string(size) + ", which is no multiple of its block size " +
                               std::to_string(block));
      }
      output.set_dim(i + 1, size / block);
    } else {
      if (size < sum)
        return InvalidArgument("crops are larger than dimension " + std::to_string(i + 1));
      output.set_dim(i + 1, size - sum);
    }
  }
  if (input.dim(0) >= 0) {
    if (!to_batch && input.dim(0) % product != 0) {
      return InvalidArgument("batch " + std::to_string(input.dim(0)) +
                             " is no multiple of the block's size " + std::to_string(product));
    }
    int64_t batch = input.dim(0) / product;
    if (to_batch && __builtin_mul_overflow(input.dim(0), product, &batch))
      return InvalidArgument("the result is too large");
    output.set_dim(0, batch);
  }
  c.set_output(0, output);
  return Status();
}

template <bool kToBatch>
Status BatchNdShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(2, 2).status());
  return BatchBlocksShape(c, 2, kToBatch, c.InputAsInts(1));
}

template <bool kToBatch>
Status Batch2dShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 4).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 2).status());
  const auto block = c.attr<int64_t>("block_size");
  return BatchBlocksShape(c, 1, kToBatch, std::vector<int64_t>{block, block});
}

template <bool kToDepth>
Status DepthShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  const auto& format = c.attr<std::string>("data_format");
  const auto block = c.attr<int64_t>("block_size");
  if (format == "NCHW_VECT_C")
    return Unimplemented("data_format NCHW_VECT_C is not supported; use NHWC or NCHW");
  const int depth = format == "NCHW" ? 1 : 3, height = format == "NCHW" ? 2 : 1;
  int64_t square = 0;
  if (__builtin_mul_overflow(block, block, &square))
    return InvalidArgument("block_size " + std::to_string(block) + " is too large");
  PartialShape output = input;
  for (int i : {depth, height, height + 1}) {
    const int64_t size = input.dim(i);
    if (size < 0) continue;
    const bool grows = (i == depth) == kToDepth;
    const int64_t factor = i == depth ? square : block;
    if (!grows && size % factor != 0) {
      return InvalidArgument("dimension " + std::to_string(i) + " of " + input.ToString() +
                             " is no multiple of " + std::to_string(factor));
    }
    int64_t scaled = size / factor;
    if (grows && __builtin_mul_overflow(size, factor, &scaled))
      return InvalidArgument("the result is too large");
    output.set_dim(i, scaled);
  }
  c.set_output(0, output);
  return Status();
}

Status RollGradient(GradientContext& c) {
  c.set_grad(0, Roll(c.scope(), c.grad(0), Neg(c.scope(), c.input(1)), c.input(2)));
  return Status();
}

Status ReverseSequenceGradient(GradientContext& c) {
  c.set_grad(0, ReverseSequence(c.scope(), c.grad(0), c.input(1), c.attrs().Get<int64_t>("seq_dim"),
                                c.attrs().Get<int64_t>("batch_dim")));
  return Status();
}

Status MirrorPadGradient(GradientContext& c) {
  c.set_grad(0, MirrorOp(c.scope(), "MirrorPadGrad", c.grad(0), c.input(1),
                         c.attrs().Get<std::string>("mode")));
  return Status();
}
Status MirrorPadGradGradient(GradientContext& c) {
  c.set_grad(0, MirrorPad(c.scope(), c.grad(0), c.input(1), c.attrs().Get<std::string>("mode")));
  return Status();
}

Status SpaceToBatchNdGradient(GradientContext& c) {
  c.set_grad(0, BatchToSpaceND(c.scope(), c.grad(0), c.input(1), c.input(2)));
  return Status();
}
Status BatchToSpaceNdGradient(GradientContext& c) {
  c.set_grad(0, SpaceToBatchND(c.scope(), c.grad(0), c.input(1), c.input(2)));
  return Status();
}

Status OldBatchGradient(GradientContext& c, const char* op) {
  c.set_grad(0, OpBuilder(c.scope(), op)
                    .Input(c.grad(0))
                    .Input(c.input(1))
                    .Attr("block_size", AttrValue(c.attrs().Get<int64_t>("block_size")))
                    .BuildOutput());
  return Status();
}
Status SpaceToBatchGradient(GradientContext& c) { return OldBatchGradient(c, "BatchToSpace"); }
Status BatchToSpaceGradient(GradientContext& c) { return OldBatchGradient(c, "SpaceToBatch"); }

Status SpaceToDepthGradient(GradientContext& c) {
  c.set_grad(0, DepthToSpace(c.scope(), c.grad(0), c.attrs().Get<int64_t>("block_size"),
                             c.attrs().Get<std::string>("data_format")));
  return Status();
}
Status DepthToSpaceGradient(GradientContext& c) {
  c.set_grad(0, SpaceToDepth(c.scope(), c.grad(0), c.attrs().Get<int64_t>("block_size"),
                             c.attrs().Get<std::string>("data_format")));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Roll")
                    .Input("input: T")
                    .Input("shift: Tshift")
                    .Input("axis: Taxis")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tshift: {int32, int64}")
                    .Attr("Taxis: {int32, int64}")
                    .Shape(RollShape)
                    .Gradient(RollGradient));
  registry->Add(OpDef("ReverseSequence")
                    .Input("input: T")
                    .Input("seq_lengths: Tlen")
                    .Output("output: T")
                    .Attr("seq_dim: int")
                    .Attr("batch_dim: int = 0")
                    .Attr("T: type")
                    .Attr("Tlen: {int32, int64} = DT_INT64")
                    .Shape(ReverseSequenceShape)
                    .Gradient(ReverseSequenceGradient));
  const auto mirror = [registry](const char* name, ShapeFn shape, GradientFn gradient) {
    registry->Add(OpDef(name)
                      .Input("input: T")
                      .Input("paddings: Tpaddings")
                      .Output("output: T")
                      .Attr("T: type")
                      .Attr("Tpaddings: {int32, int64} = DT_INT32")
                      .Attr("mode: {'REFLECT', 'SYMMETRIC'}")
                      .Shape(shape)
                      .Gradient(gradient));
  };
  mirror("MirrorPad", MirrorPadShape, MirrorPadGradient);
  mirror("MirrorPadGrad", MirrorPadGradShape, MirrorPadGradGradient);
  const auto batch = [registry](const char* name, const char* edges, const char* edges_type,
                                ShapeFn shape, GradientFn gradient) {
    registry->Add(OpDef(name)
                      .Input("input: T")
                      .Input("block_shape: Tblock_shape")
                      .Input(edges)
                      .Output("output: T")
                      .Attr("T: type")
                      .Attr("Tblock_shape: {int32, int64} = DT_INT32")
                      .Attr(edges_type)
                      .Shape(shape)
                      .Gradient(gradient));
  };
  batch("SpaceToBatchND", "paddings: Tpaddings", "Tpaddings: {int32, int64} = DT_INT32",
        BatchNdShape<true>, SpaceToBatchNdGradient);
  batch("BatchToSpaceND", "crops: Tcrops", "Tcrops: {int32, int64} = DT_INT32", BatchNdShape<false>,
        BatchToSpaceNdGradient);
  registry->Add(OpDef("SpaceToBatch")
                    .Input("input: T")
                    .Input("paddings: Tpaddings")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tpaddings: {int32, int64} = DT_INT32")
                    .Attr("block_size: int >= 2")
                    .Shape(Batch2dShape<true>)
                    .Gradient(SpaceToBatchGradient));
  registry->Add(OpDef("BatchToSpace")
                    .Input("input: T")
                    .Input("crops: Tidx")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("block_size: int >= 2")
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Shape(Batch2dShape<false>)
                    .Gradient(BatchToSpaceGradient));
  const auto depth = [registry](const char* name, ShapeFn shape, GradientFn gradient) {
    registry->Add(OpDef(name)
                      .Input("input: T")
                      .Output("output: T")
                      .Attr("T: type")
                      .Attr("block_size: int >= 2")
                      .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
                      .Shape(shape)
                      .Gradient(gradient));
  };
  depth("SpaceToDepth", DepthShape<true>, SpaceToDepthGradient);
  depth("DepthToSpace", DepthShape<false>, DepthToSpaceGradient);
}

}  // namespace ops::rearrange
}  // namespace monograph
