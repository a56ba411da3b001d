#include <utility>

#include "ops/gpu/launch.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"
#include "ops/gpu/vectors.h"
#include "ops/select/space.h"

namespace monograph::ops::select {

void RegisterCpu(KernelRegistry* registry);

namespace {

template <typename W>
struct SelectBody {
  const bool* condition;
  const W *t, *e;
  W* out;
  int rank;
  Divisor size[kMaxRank];
  int64_t condition_stride[kMaxRank], t_stride[kMaxRank], e_stride[kMaxRank];

  MG_HD void operator()(int64_t i) const {
    int64_t rest = i, c_at = 0, t_at = 0, e_at = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t next = size[d].Divide(rest), at = rest - next * size[d].divisor();
      rest = next;
      c_at += at * condition_stride[d];
      t_at += at * t_stride[d];
      e_at += at * e_stride[d];
    }
    out[i] = condition[c_at] ? t[t_at] : e[e_at];
  }
};

// Where each operand is as long as the result or one element: as many as 16 bytes hold per thread.
template <typename W>
struct SelectPacksBody {
  static constexpr int kPack = kWidth<W>;
  const bool* condition;
  const W *t, *e;
  W* out;
  int64_t n;
  int64_t condition_step, t_step, e_step;  // 1; 0: one element

  MG_HD void operator()(int64_t group) const {
    const int64_t first = group * kPack;
    if (first + kPack > n) {
      for (int64_t i = first; i < n; ++i)
        out[i] = condition[i * condition_step] ? t[i * t_step] : e[i * e_step];
      return;
    }
    const auto which = Load(condition, first, condition_step);
    const auto yes = Load(t, first, t_step), no = Load(e, first, e_step);
    ElementPack<W, kPack> chosen;
    MG_UNROLL
    for (int k = 0; k < kPack; ++k)
      chosen.values[k] = which.values[k] ? yes.values[k] : no.values[k];
    StorePack<W, kPack>(out + first, chosen);
  }

 private:
  template <typename V>
  MG_HD static ElementPack<V, kPack> Load(const V* from, int64_t first, int64_t step) {
    if (step != 0) return LoadPack<V, kPack>(from + first);
    ElementPack<V, kPack> same;
    MG_UNROLL
    for (int k = 0; k < kPack; ++k) same.values[k] = *from;
    return same;
  }
};

Status RunSelect(KernelContext& c, const SelectSpace& space, Tensor* out) {
  return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
    using W = decltype(word);
    const int64_t n = out->elements();
    if (space.rank == 1 && Aligned({c.input(0).raw(), c.input(1).raw(), c.input(2).raw(),
                                    std::as_const(*out).raw()})) {
      constexpr int64_t kPack = SelectPacksBody<W>::kPack;
      return ForEach(
          c, (n + kPack - 1) / kPack,
          SelectPacksBody<W>{c.input(0).data<bool>(), c.input(1).data<W>(), c.input(2).data<W>(),
                             out->data<W>(), n, space.c[0], space.t[0], space.e[0]});
    }
    SelectBody<W> body{c.input(0).data<bool>(),
                       c.input(1).data<W>(),
                       c.input(2).data<W>(),
                       out->data<W>(),
                       space.rank,
                       {},
                       {},
                       {},
                       {}};
    for (int i = 0; i < space.rank; ++i) {
      const auto k = static_cast<size_t>(i);
      body.size[i] = Divisor(space.size[k]);
      body.condition_stride[i] = space.c[k];
      body.t_stride[i] = space.t[k];
      body.e_stride[i] = space.e[k];
    }
    return ForEach(c, n, body);
  });
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  AddForTypes<SelectV2Kernel<&RunSelect>>(registry, {.op = "SelectV2", .device = kGpu}, "T",
                                          kDeviceTypes);
  AddForTypes<SelectKernel<&RunSelect>>(registry, {.op = "Select", .device = kGpu}, "T",
                                        kDeviceTypes);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"SelectV2", "Select"})
    AddOnHost(registry, cpu, op, {"condition", "t", "e", "output"}, "T", kHostInt);
}

}  // namespace monograph::ops::select
