// BroadcastTo's kernel, for any device (ops/gpu/moves.h).
#pragma once

#include "executor/kernel.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::shape {

template <typename Moves>
class BroadcastToKernel : public Kernel {
 public:
  explicit BroadcastToKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const Shape out_shape, ShapeFrom(c.input(1), "the shape"));
    if (in == out_shape) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    const int lead = out_shape.rank() - in.rank();
    const auto from = StridesOf(in), to = StridesOf(out_shape);
    StridedSpace space;
    for (int i = 0; i < out_shape.rank(); ++i) {
      const int64_t size = out_shape.dim(i), mine = i < lead ? 1 : in.dim(i - lead);
      if (lead < 0 || (mine != 1 && mine != size)) {
        return InvalidArgument("cannot broadcast " + in.ToString() + " to " + out_shape.ToString());
      }
      space.Add(size, mine == 1 ? 0 : from[static_cast<size_t>(i - lead)],
                to[static_cast<size_t>(i)]);
    }
    if (lead < 0)
      return InvalidArgument("cannot broadcast " + in.ToString() + " to " + out_shape.ToString());
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, out_shape));
    return Moves::Strided(c, DTypeSize(out->dtype()), c.input(0).raw(), out->raw(), space);
  }
};

}  // namespace monograph::ops::shape
