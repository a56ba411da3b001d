// CPU kernels. Both need a set of values: a table in the step's memory, so that it counts against
// the task's limit, and loops that look at cancellation.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/random.h"
#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::unique {
namespace {

Status RequireVector(const Tensor& tensor, const char* name) {
  if (tensor.shape().rank() == 1) return Status();
  return InvalidArgument(std::string(name) + " must be a vector, not of shape " +
                         tensor.shape().ToString());
}

// Spreads values over a table. Nobody can choose values that meet: the seed is the process's own.
uint64_t Mix(uint64_t bits) {
  static const uint64_t seed = RandomNonZero();
  bits = (bits ^ seed) * 0xff51afd7ed558ccd;
  bits = (bits ^ (bits >> 33)) * 0xc4ceb9fe1a85ec53;
  return bits ^ (bits >> 33);
}

// A set of values: for each distinct one the place where Add first saw it. Open addressing in a
// table of the step's memory, at most half full.
template <typename T>
class Places {
 public:
  // Of at most `values` values.
  static Result<Places> Make(KernelContext& c, int64_t values) {
    Places made;
    made.size_ = std::bit_ceil(static_cast<uint64_t>(2 * values + 1));
    MG_ASSIGN_OR_RETURN(made.table_,
                        c.AllocateTemp(DT_INT64, Shape{static_cast<int64_t>(2 * made.size_)}));
    made.slots_ = static_cast<Slot*>(made.table_.raw());
    c.ParallelFor(static_cast<int64_t>(made.size_), 1,
                  [slots = made.slots_](int64_t begin, int64_t end) {
                    std::fill(slots + begin, slots + end, Slot{});
                  });
    return Result<Places>(std::move(made));
  }
  // The place of an equal value that is there; else `place`, which is noted for this one.
  int64_t Add(T value, int64_t place) {
    if (value != value) return place;  // a NaN equals nothing
    Slot& slot = Find(value);
    if (slot.place < 0) slot = {value, place};
    return slot.place;
  }
  bool Has(T value) const { return value == value && Find(value).place >= 0; }

 private:
  struct Slot {
    T value{};
    int64_t place = -1;
  };
  static_assert(sizeof(Slot) == 2 * sizeof(int64_t));

  Slot& Find(T value) const {
    // Equal values have equal bits but for 0 and -0.
    uint64_t bits = 0;
    const T key = value == T(0) ? T(0) : value;
    std::memcpy(&bits, &key, sizeof key);
    for (uint64_t at = Mix(bits);; ++at) {
      Slot& slot = slots_[at & (size_ - 1)];
      if (slot.place < 0 || slot.value == value) return slot;
    }
  }

  uint64_t size_ = 0;
  Tensor table_;
  Slot* slots_ = nullptr;
};

// Puts the first `count` rows of `from`, which has room for more, out.
Status PutOut(KernelContext& c, int output, const Tensor& from, int64_t count) {
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(output, Shape{count}));
  return HostMoves::Copy(c, out->raw(), from.raw(), out->bytes());
}

// Sets the element of a tensor of int32 or int64.
void SetPlace(Tensor* tensor, int64_t at, int64_t place) {
  if (tensor->dtype() == DT_INT32) {
    tensor->data<int32_t>()[at] = static_cast<int32_t>(place);
  } else {
    tensor->data<int64_t>()[at] = place;
  }
}

template <typename T>
class UniqueKernel : public Kernel {
 public:
  explicit UniqueKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(RequireVector(c.input(0), "x"));
    const auto x = c.input(0).values<T>();
    const auto n = static_cast<int64_t>(x.size());
    MG_ASSIGN_OR_RETURN(Places<T> places, Places<T>::Make(c, n));
    if (c.cancelled()) return Status();  // the table may not be filled
    MG_ASSIGN_OR_RETURN(Tensor distinct, c.AllocateTemp(kDTypeOf<T>, Shape{n}));
    MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(1, Shape{n}));
    T* const values = distinct.data<T>();
    int64_t count = 0;
    InPieces(c, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T value = x[static_cast<size_t>(i)];
        const int64_t place = places.Add(value, count);
        if (place == count) values[count++] = value;
        SetPlace(indices, i, place);
      }
    });
    return PutOut(c, 0, distinct, count);
  }
};

template <typename T>
class ListDiffKernel : public Kernel {
 public:
  explicit ListDiffKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(RequireVector(c.input(0), "x"));
    MG_RETURN_IF_ERROR(RequireVector(c.input(1), "y"));
    const auto x = c.input(0).values<T>(), y = c.input(1).values<T>();
    const auto n = static_cast<int64_t>(x.size()), taken = static_cast<int64_t>(y.size());
    MG_ASSIGN_OR_RETURN(Places<T> places, Places<T>::Make(c, taken));
    if (c.cancelled()) return Status();  // the table may not be filled
    InPieces(c, taken, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) places.Add(y[static_cast<size_t>(i)], i);
    });
    MG_ASSIGN_OR_RETURN(Tensor kept, c.AllocateTemp(kDTypeOf<T>, Shape{n}));
    MG_ASSIGN_OR_RETURN(Tensor indices, c.AllocateTemp(c.output_dtype(1), Shape{n}));
    T* const values = kept.data<T>();
    int64_t count = 0;
    InPieces(c, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T value = x[static_cast<size_t>(i)];
        if (places.Has(value)) continue;
        values[count] = value;
        SetPlace(&indices, count++, i);
      }
    });
    MG_RETURN_IF_ERROR(PutOut(c, 0, kept, count));
    return PutOut(c, 1, indices, count);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define MG_ADD(T)                                                                  \
  registry->Add<UniqueKernel<T>>({.op = "Unique", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<ListDiffKernel<T>>(                                                \
      {.op = "ListDiff", .types = {{"T", kDTypeOf<T>}}, .host_args = {"x", "y", "out", "idx"}});
  MG_ADD(float)
  MG_ADD(double)
  MG_ADD(int32_t)
  MG_ADD(int64_t)
#undef MG_ADD
}

}  // namespace monograph::ops::unique
