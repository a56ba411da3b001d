#include "ops/launch.h"
#include "ops/moves.h"
#include "ops/on_host_cuda.h"
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

Status RunSelect(KernelContext& c, const SelectSpace& space, Tensor* out) {
  return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
    using W = decltype(word);
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
    return ForEach(c, out->elements(), body);
  });
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  AddForTypes<SelectV2Kernel<&RunSelect>>(registry, {.op = "SelectV2", .device = "GPU"}, "T",
                                          kDeviceTypes);
  AddForTypes<SelectKernel<&RunSelect>>(registry, {.op = "Select", .device = "GPU"}, "T",
                                        kDeviceTypes);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"SelectV2", "Select"})
    AddOnHost(registry, cpu, op, {"condition", "t", "e", "output"}, "T", kHostInt);
}

}  // namespace monograph::ops::select
