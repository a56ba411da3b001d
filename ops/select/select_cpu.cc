#include <algorithm>
#include <string>
#include <type_traits>

#include "base/independent_loop.h"
#include "executor/kernel.h"
#include "ops/cpu/copy_elements_cpu.h"
#include "ops/select/space.h"
#include "ops/words.h"

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
    MG_INDEPENDENT_LOOP
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? t[i] : e[i];
  } else if (ts != 0) {
    const W other = *e;
    MG_INDEPENDENT_LOOP
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? t[i] : other;
  } else if (es != 0) {
    const W other = *t;
    MG_INDEPENDENT_LOOP
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? other : e[i];
  } else {
    const W yes = *t, no = *e;
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? yes : no;
  }
}

// Room for the strings that SelectRow copies.
bool RoomForRow(const KernelContext& c, const bool* condition, const std::string* t,
                const std::string* e, int64_t n, int64_t cs, int64_t ts, int64_t es) {
  size_t bytes = 0;
  for (int64_t i = 0; i < n; ++i)
    bytes += StringBytes((condition[i * cs] ? t[i * ts] : e[i * es]).size());
  return bytes == 0 || c.RoomForStrings(bytes);
}

template <typename W>
void SelectElements(KernelContext& c, const SelectSpace& space, Tensor* out) {
  const auto inner = static_cast<size_t>(space.rank - 1);
  const int64_t n = space.size[inner];
  int64_t outer = 1;
  for (size_t i = 0; i < inner; ++i) outer *= space.size[i];
  const bool* condition = c.input(0).data<bool>();
  const void *t = c.input(1).raw(), *e = c.input(2).raw();
  void* to = out->raw();
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
      const bool* const by = condition + co + first * space.c[inner];
      const W* const yes = static_cast<const W*>(t) + ti + first * space.t[inner];
      const W* const no = static_cast<const W*>(e) + ei + first * space.e[inner];
      const int64_t count = std::min(kChunk, n - first);
      if constexpr (std::is_same_v<W, std::string>) {
        if (!RoomForRow(c, by, yes, no, count, space.c[inner], space.t[inner], space.e[inner]))
          return;
      }
      SelectRow(by, yes, no, static_cast<W*>(to) + i / chunks * n + first, count, space.c[inner],
                space.t[inner], space.e[inner]);
    }
  });
}

Status RunSelect(KernelContext& c, const SelectSpace& space, Tensor* out) {
  if (out->dtype() == DT_STRING) {
    SelectElements<std::string>(c, space, out);
    return Status();
  }
  return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
    SelectElements<decltype(word)>(c, space, out);
    return Status();
  });
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForCopiedTypes<SelectV2Kernel<&RunSelect>>(registry, {.op = "SelectV2"});
  AddForCopiedTypes<SelectKernel<&RunSelect>>(registry, {.op = "Select"});
}

}  // namespace monograph::ops::select
