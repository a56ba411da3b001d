#include "executor/kernel.h"
#include "ops/kernel_util.h"

namespace monograph::ops::select {
namespace {

// out[i] = condition[i] ? t[i] : e[i]; a stride of 0 keeps its operand.
template <typename W>
void SelectRow(const bool* condition, const W* t, const W* e, W* out, int64_t n, int64_t cs,
               int64_t ts, int64_t es) {
  if (cs == 0) {
    const W* from = *condition ? t : e;
    const int64_t stride = *condition ? ts : es;
    for (int64_t i = 0; i < n; ++i) out[i] = from[i * stride];
  } else if (ts != 0 && es != 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? t[i] : e[i];
  } else if (ts != 0) {
    const W other = *e;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? t[i] : other;
  } else if (es != 0) {
    const W other = *t;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? other : e[i];
  } else {
    const W yes = *t, no = *e;
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? yes : no;
  }
}

struct SelectSpace {
  int rank = 0;
  std::array<int64_t, kMaxRank> size{}, c{}, t{}, e{};
};

// Joins neighbouring dimensions in which every operand either moves on or stays.
SelectSpace MakeSpace(const Shape& out, const Shape& condition, const Shape& t, const Shape& e) {
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

void RunSelect(KernelContext& c, const SelectSpace& space, Tensor* out) {
  const auto inner = static_cast<size_t>(space.rank - 1);
  const int64_t n = space.size[inner];
  int64_t outer = 1;
  for (size_t i = 0; i < inner; ++i) outer *= space.size[i];
  const bool* condition = c.input(0).data<bool>();
  const void *t = c.input(1).raw(), *e = c.input(2).raw();
  void* to = out->raw();
  DispatchSize(DTypeSize(out->dtype()), [&](auto word) {
    using W = decltype(word);
    constexpr int64_t kChunk = 8192;
    const int64_t chunks = (n + kChunk - 1) / kChunk;  // long rows are cut
    const int64_t cost = 3 + std::min(n, kChunk) * static_cast<int64_t>(sizeof(W)) / 8;
    c.ParallelFor(outer * chunks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i / chunks, co = 0, ti = 0, ei = 0;
        const int64_t first = i % chunks * kChunk;
        for (size_t d = inner; d-- > 0;) {
          const int64_t at = rest % space.size[d];
          rest /= space.size[d];
          co += at * space.c[d], ti += at * space.t[d], ei += at * space.e[d];
        }
        SelectRow(condition + co + first * space.c[inner],
                  static_cast<const W*>(t) + ti + first * space.t[inner],
                  static_cast<const W*>(e) + ei + first * space.e[inner],
                  static_cast<W*>(to) + i / chunks * n + first, std::min(kChunk, n - first),
                  space.c[inner], space.t[inner], space.e[inner]);
      }
    });
  });
}

class SelectV2Kernel : public Kernel {
 public:
  explicit SelectV2Kernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape condition = c.input(0).shape(), t = c.input(1).shape(), e = c.input(2).shape();
    MG_ASSIGN_OR_RETURN(const Shape data, BroadcastShapes(t, e));
    MG_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes(condition, data));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(t == shape ? 1 : 2, 0, shape));
    if (shape.elements() > 0) RunSelect(c, MakeSpace(shape, condition, t, e), out);
    return Status();
  }
};

class SelectV1Kernel : public Kernel {
 public:
  explicit SelectV1Kernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
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
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(1, 0, shape));
    if (shape.elements() > 0) RunSelect(c, MakeSpace(shape, condition, shape, shape), out);
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForPlainTypes<SelectV2Kernel>(registry, {.op = "SelectV2"});
  AddForPlainTypes<SelectV1Kernel>(registry, {.op = "Select"});
}

}  // namespace monograph::ops::select
