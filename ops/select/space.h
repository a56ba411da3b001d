// What SelectV2 and Select choose from, by broadcast strides.
#pragma once

#include <array>

#include "ops/cpu/kernel_util.h"

namespace monograph::ops::select {

struct SelectSpace {
  int rank = 0;
  std::array<int64_t, kMaxRank> size{}, c{}, t{}, e{};
};

// Joins neighbouring dimensions in which every operand either moves on or stays.
inline SelectSpace MakeSpace(const Shape& out, const Shape& condition, const Shape& t,
                             const Shape& e) {
  SelectSpace space;
  const std::array<const Shape*, 3> shapes = {&condition, &t, &e};
  std::array<std::array<int64_t, kMaxRank>, 3> strides{};
  for (size_t k = 0; k < 3; ++k) {
    const auto own = StridesOf(*shapes[k]);
    const int lead = out.rank() - shapes[k]->rank();
    for (int i = lead; i < out.rank(); ++i) {
      if (shapes[k]->dim(i - lead) != 1)
        strides[k][static_cast<size_t>(i)] = own[static_cast<size_t>(i - lead)];
    }
  }
  for (int i = 0; i < out.rank(); ++i) {
    const auto d = static_cast<size_t>(i);
    const int64_t size = out.dim(i);
    if (size == 1) continue;
    if (space.rank > 0) {
      const auto last = static_cast<size_t>(space.rank - 1);
      if (space.c[last] == strides[0][d] * size && space.t[last] == strides[1][d] * size &&
          space.e[last] == strides[2][d] * size) {
        space.size[last] *= size;
        space.c[last] = strides[0][d], space.t[last] = strides[1][d], space.e[last] = strides[2][d];
        continue;
      }
    }
    const auto last = static_cast<size_t>(space.rank++);
    space.size[last] = size;
    space.c[last] = strides[0][d], space.t[last] = strides[1][d], space.e[last] = strides[2][d];
  }
  if (space.rank == 0) space.size[0] = 1, space.rank = 1;
  return space;
}

// The condition of Select, whose single dimension may stand for rows, as SelectV2 takes it.
inline Result<Shape> ConditionOfSelect(const KernelContext& c) {
  Shape condition = c.input(0).shape();
  const Shape shape = c.input(1).shape();
  if (!(c.input(2).shape() == shape)) {
    return InvalidArgument("t and e must have one shape, not " + shape.ToString() + " and " +
                           c.input(2).shape().ToString());
  }
  if (condition.rank() == 1 && shape.rank() > 1 && condition.dim(0) == shape.dim(0)) {
    while (condition.rank() < shape.rank()) condition.AddDim(1);
  } else if (condition.rank() != 0 && !(condition == shape)) {
    return InvalidArgument("the condition has shape " + condition.ToString() + ", t and e have " +
                           shape.ToString());
  }
  return condition;
}

// The kernels, for any device: kRun(c, space, out) chooses.
using RunSelectFn = Status(KernelContext& c, const SelectSpace& space, Tensor* out);

template <RunSelectFn* kRun>
class SelectV2Kernel : public Kernel {
 public:
  explicit SelectV2Kernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape condition = c.input(0).shape(), t = c.input(1).shape(), e = c.input(2).shape();
    MG_ASSIGN_OR_RETURN(const Shape data, BroadcastShapes(t, e));
    MG_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes(condition, data));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(t == shape ? 1 : 2, 0, shape));
    if (shape.elements() == 0) return Status();
    return kRun(c, MakeSpace(shape, condition, t, e), out);
  }
};

template <RunSelectFn* kRun>
class SelectKernel : public Kernel {
 public:
  explicit SelectKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(1).shape();
    MG_ASSIGN_OR_RETURN(const Shape condition, ConditionOfSelect(c));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(1, 0, shape));
    if (shape.elements() == 0) return Status();
    return kRun(c, MakeSpace(shape, condition, shape, shape), out);
  }
};

}  // namespace monograph::ops::select
