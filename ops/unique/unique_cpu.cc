// CPU kernels. Both need a set of values: a table in the step's memory, so that it counts against
// the task's limit, and loops that look at cancellation.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
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

// The same for strings and for rows as bytes, of which the places hold views.
class TextPlaces {
 public:
  static Result<TextPlaces> Make(KernelContext&, int64_t values) {
    TextPlaces made;
    made.table_.reserve(static_cast<size_t>(std::min(values, kPiece)));  // few may be distinct
    return Result<TextPlaces>(std::move(made));
  }
  int64_t Add(std::string_view value, int64_t place) {
    return table_.emplace(value, place).first->second;
  }
  bool Has(std::string_view value) const { return table_.contains(value); }

 private:
  std::unordered_map<std::string_view, int64_t> table_;
};

template <typename T>
using PlacesOf = std::conditional_t<std::is_same_v<T, std::string>, TextPlaces, Places<T>>;

// Puts the first `count` elements of `from`, which has room for more, out.
Status PutOut(KernelContext& c, int output, const Tensor& from, int64_t count) {
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(output, Shape{count}));
  const auto size = static_cast<int64_t>(DTypeSize(from.dtype()));
  InPieces(c, count, [&](int64_t begin, int64_t end) {
    CopyElements(c, from.dtype(), static_cast<const char*>(from.raw()) + begin * size,
                 static_cast<char*>(out->raw()) + begin * size,
                 static_cast<size_t>((end - begin) * size));
  });
  return Status();
}

// Output 2, where there is one: how often each of `count` places stands in `indices`.
Status PutCounts(KernelContext& c, const Tensor& indices, int64_t count) {
  if (c.num_outputs() < 3) return Status();
  MG_ASSIGN_OR_RETURN(Tensor * counts, c.AllocateOutput(2, Shape{count}));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, counts->raw(), counts->bytes()));
  InPieces(c, indices.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = IndexAt(indices, i);
      SetIndex(counts, place, IndexAt(*counts, place) + 1);
    }
  });
  return Status();
}

template <typename T>
Status UniqueElements(KernelContext& c) {
  const Tensor& input = c.input(0);
  MG_RETURN_IF_ERROR(RequireVector(input, "x"));
  const auto x = input.values<T>();
  const auto n = static_cast<int64_t>(x.size());
  using P = PlacesOf<T>;
  MG_ASSIGN_OR_RETURN(P places, P::Make(c, n));
  if (c.cancelled()) return Status();  // the table may not be filled
  MG_ASSIGN_OR_RETURN(Tensor distinct, c.AllocateTemp(input.dtype(), Shape{n}));
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(1, Shape{n}));
  T* const values = distinct.data<T>();
  int64_t count = 0;
  const bool whole = InPieces(c, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T& value = x[static_cast<size_t>(i)];
      const int64_t place = places.Add(value, count);
      if (place == count) values[count++] = value;
      SetIndex(indices, i, place);
    }
  });
  if (!whole) return Status();
  MG_RETURN_IF_ERROR(PutOut(c, 0, distinct, count));
  return PutCounts(c, *indices, count);
}

// Of slices along one dimension, compared by their bits.
Status UniqueSlices(KernelContext& c, int axis) {
  const Tensor& x = c.input(0);
  const Shape shape = x.shape();
  const int64_t n = shape[axis];
  const size_t bytes = DTypeSize(x.dtype());
  const auto strides = StridesOf(shape);
  Shape rows_shape{n};
  StridedSpace space;
  space.Add(n, strides[static_cast<size_t>(axis)], n == 0 ? 0 : shape.elements() / n);
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) rows_shape.AddDim(shape[i]);
  }
  const auto row_strides = StridesOf(rows_shape);
  for (int i = 0, k = 1; i < shape.rank(); ++i) {
    if (i == axis) continue;
    space.Add(shape[i], strides[static_cast<size_t>(i)], row_strides[static_cast<size_t>(k++)]);
  }
  MG_ASSIGN_OR_RETURN(Tensor rows, c.AllocateTemp(x.dtype(), rows_shape));
  if (shape.elements() > 0) StridedCopy(c, bytes, x.raw(), rows.raw(), space);
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(1, Shape{n}));
  MG_ASSIGN_OR_RETURN(TextPlaces places, TextPlaces::Make(c, n));
  const size_t row = n == 0 ? 0 : rows.bytes() / static_cast<size_t>(n);
  char* const first = static_cast<char*>(rows.raw());
  std::vector<int64_t> distinct;
  Looks looks(c);
  for (int64_t i = 0; i < n; ++i) {
    if (!looks.GoOn(100 + static_cast<int64_t>(row))) return Status();
    const auto count = static_cast<int64_t>(distinct.size());
    const int64_t place =
        places.Add(std::string_view(first + static_cast<size_t>(i) * row, row), count);
    if (place == count) distinct.push_back(i);
    SetIndex(indices, i, place);
  }
  Shape out_shape = shape;
  out_shape.set_dim(axis, static_cast<int64_t>(distinct.size()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, out_shape));
  const auto out_strides = StridesOf(out_shape);
  for (size_t k = 0; k < distinct.size() && row > 0 && !c.cancelled(); ++k) {
    StridedSpace slice;
    for (int i = 0, d = 1; i < shape.rank(); ++i) {
      if (i == axis) continue;
      slice.Add(shape[i], row_strides[static_cast<size_t>(d++)],
                out_strides[static_cast<size_t>(i)]);
    }
    StridedCopy(c, bytes, first + static_cast<size_t>(distinct[k]) * row,
                static_cast<char*>(out->raw()) +
                    k * static_cast<size_t>(out_strides[static_cast<size_t>(axis)]) * bytes,
                slice);
  }
  return PutCounts(c, *indices, static_cast<int64_t>(distinct.size()));
}

template <typename T>
class UniqueKernel : public Kernel {  // also those with counts and those with an axis
 public:
  explicit UniqueKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const int rank = c.input(0).shape().rank();
    if (c.num_inputs() < 2 || c.input(1).elements() == 0) return UniqueElements<T>(c);
    if (c.input(1).elements() > 1) return InvalidArgument("axis must have at most one element");
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(1), rank));
    if (rank == 1) return UniqueElements<T>(c);
    if constexpr (std::is_same_v<T, std::string>) {
      return Unimplemented("unique slices of a tensor of strings are not supported");
    } else {
      return UniqueSlices(c, axis);
    }
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
    using P = PlacesOf<T>;
    MG_ASSIGN_OR_RETURN(P places, P::Make(c, taken));
    if (c.cancelled()) return Status();  // the table may not be filled
    InPieces(c, taken, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) places.Add(y[static_cast<size_t>(i)], i);
    });
    MG_ASSIGN_OR_RETURN(Tensor kept, c.AllocateTemp(c.output_dtype(0), Shape{n}));
    MG_ASSIGN_OR_RETURN(Tensor indices, c.AllocateTemp(c.output_dtype(1), Shape{n}));
    T* const values = kept.data<T>();
    int64_t count = 0;
    InPieces(c, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T& value = x[static_cast<size_t>(i)];
        if (places.Has(value)) continue;
        values[count] = value;
        SetIndex(&indices, count++, i);
      }
    });
    MG_RETURN_IF_ERROR(PutOut(c, 0, kept, count));
    return PutOut(c, 1, indices, count);
  }
};

template <typename T>
void Register(KernelRegistry* registry, DType dtype) {
  for (const char* op : {"Unique", "UniqueWithCounts"})
    registry->Add<UniqueKernel<T>>({.op = op, .types = {{"T", dtype}}});
  for (const char* op : {"UniqueV2", "UniqueWithCountsV2"})
    registry->Add<UniqueKernel<T>>({.op = op, .types = {{"T", dtype}}, .host_args = {"axis"}});
  registry->Add<ListDiffKernel<T>>(
      {.op = "ListDiff", .types = {{"T", dtype}}, .host_args = {"x", "y", "out", "idx"}});
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define MG_ADD(T) Register<T>(registry, kDTypeOf<T>);
  MG_REAL_TYPES(MG_ADD)
  MG_ADD(bool)
#undef MG_ADD
  Register<std::string>(registry, DT_STRING);
}

}  // namespace monograph::ops::unique
