// First what one slice does to another, by update and type (CombineOf gives it as a function),
// then where slices lie: indices are checked, and become places.
#include "ops/cpu/slices_cpu.h"

#include <array>
#include <string>
#include <type_traits>

#include "base/independent_loop.h"
#include "ops/check_indices.h"
#include "ops/cpu/looks_cpu.h"

namespace monograph {
namespace {

struct Set {
  template <typename T>
  static T Of(T, T update) {
    return update;
  }
};
struct Add {
  template <typename T>
  static T Of(T old, T update) {
    return T(old + update);
  }
};
struct Sub {
  template <typename T>
  static T Of(T old, T update) {
    return T(old - update);
  }
};
struct Mul {
  template <typename T>
  static T Of(T old, T update) {
    return T(old * update);
  }
};
struct Div {
  template <typename T>
  static T Of(T old, T update) {
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      if (update == -1) return T(0 - static_cast<std::make_unsigned_t<T>>(old));  // never a trap
    }
    return T(old / update);
  }
};
struct Min {
  template <typename T>
  static T Of(T old, T update) {
    return update < old ? update : old;
  }
};
struct Max {
  template <typename T>
  static T Of(T old, T update) {
    return old < update ? update : old;
  }
};

template <typename Op, typename T>
void Combine(void* table, const int64_t* places, int64_t n, const void* updates, int64_t step,
             int64_t size) {
  T* const to = static_cast<T*>(table);
  const T* from = static_cast<const T*>(updates);
  if (size == 1) {
    for (int64_t i = 0; i < n; ++i, from += step)
      to[places[i]] = Op::template Of<T>(to[places[i]], *from);
    return;
  }
  for (int64_t i = 0; i < n; ++i, from += step) {
    T* const slice = to + places[i] * size;
    MG_INDEPENDENT_LOOP
    for (int64_t k = 0; k < size; ++k) slice[k] = Op::template Of<T>(slice[k], from[k]);
  }
}

// What is added to a string is put behind it.
void CombineStrings(void* table, const int64_t* places, int64_t n, const void* updates,
                    int64_t step, int64_t size) {
  const auto* from = static_cast<const std::string*>(updates);
  for (int64_t i = 0; i < n; ++i, from += step) {
    for (int64_t k = 0; k < size; ++k)
      (static_cast<std::string*>(table) + places[i] * size)[k] += from[k];
  }
}
void SetStrings(void* table, const int64_t* places, int64_t n, const void* updates, int64_t step,
                int64_t size) {
  const auto* from = static_cast<const std::string*>(updates);
  for (int64_t i = 0; i < n; ++i, from += step)
    std::copy_n(from, size, static_cast<std::string*>(table) + places[i] * size);
}

// Room for what n slices of `updates` bring, if these are strings.
bool RoomForUpdates(const KernelContext& c, CombineFn combine, int64_t n, const void* updates,
                    int64_t step, int64_t size) {
  if (combine != &CombineStrings && combine != &SetStrings) return true;
  const auto* from = static_cast<const std::string*>(updates);
  size_t bytes = 0;
  for (int64_t i = 0; i < n; ++i, from += step) {
    for (int64_t k = 0; k < size; ++k) bytes += from[k].size();
  }
  return bytes == 0 || c.RoomForStrings(bytes);
}

// Of complex numbers, by an Op that takes real and imaginary parts apart.
template <typename Op, typename T>
void CombineParts(void* table, const int64_t* places, int64_t n, const void* updates, int64_t step,
                  int64_t size) {
  const T* from = static_cast<const T*>(updates);
  for (int64_t i = 0; i < n; ++i, from += 2 * step) {
    T* const slice = static_cast<T*>(table) + places[i] * 2 * size;
    for (int64_t k = 0; k < 2 * size; ++k) slice[k] = Op::template Of<T>(slice[k], from[k]);
  }
}

template <typename Op>
CombineFn CombineNumbers(DType dtype) {
  if constexpr (std::is_same_v<Op, Add> || std::is_same_v<Op, Sub>) {
    if (dtype == DT_COMPLEX64) return &CombineParts<Op, float>;
    if (dtype == DT_COMPLEX128) return &CombineParts<Op, double>;
  }
  switch (dtype) {
#define CASE(T)     \
  case kDTypeOf<T>: \
    return &Combine<Op, T>;
    MG_REAL_TYPES(CASE)
#undef CASE
    default:
      return nullptr;
  }
}

// Elements that are only moved go by their size.
CombineFn Moved(DType dtype) {
  switch (DTypeSize(dtype)) {
    case 1:
      return &Combine<Set, uint8_t>;
    case 2:
      return &Combine<Set, uint16_t>;
    case 4:
      return &Combine<Set, uint32_t>;
    case 8:
      return &Combine<Set, uint64_t>;
    case 16:
      return &Combine<Set, std::array<uint64_t, 2>>;
    default:
      return nullptr;
  }
}

Status SlicesDoNotFit(const Shape& shape, const Shape& indices, const Shape& updates,
                      const std::string& whole) {
  return InvalidArgument("updates of shape " + updates.ToString() +
                         " do not fit indices of shape " + indices.ToString() + " into " + whole +
                         " of shape " + shape.ToString());
}

}  // namespace

CombineFn CombineOf(SliceUpdate update, DType dtype) {
  switch (update) {
    case SliceUpdate::kSet:
      return dtype == DT_STRING ? &SetStrings : Moved(dtype);
    case SliceUpdate::kAdd:
      if (dtype == DT_STRING) return &CombineStrings;
      if (dtype == DT_BOOL) return &Combine<Max, bool>;
      return CombineNumbers<Add>(dtype);
    case SliceUpdate::kSub:
      return CombineNumbers<Sub>(dtype);
    case SliceUpdate::kMul:
      return CombineNumbers<Mul>(dtype);
    case SliceUpdate::kDiv:
      return CombineNumbers<Div>(dtype);
    case SliceUpdate::kMin:
      return CombineNumbers<Min>(dtype);
    case SliceUpdate::kMax:
      return CombineNumbers<Max>(dtype);
  }
  return nullptr;
}

Status CheckNdShapes(const Shape& shape, const Shape& indices, const Shape& updates,
                     const std::string& whole) {
  if (shape.rank() < 1) return InvalidArgument("a scalar " + whole + " has no slices to update");
  const int outer = indices.rank() - 1;
  const int64_t depth = outer < 0 ? 0 : indices[outer];
  bool fits = outer >= 0 && depth <= shape.rank() &&
              updates.rank() == outer + shape.rank() - static_cast<int>(depth);
  for (int i = 0; fits && i < updates.rank(); ++i)
    fits = updates[i] == (i < outer ? indices[i] : shape[static_cast<int>(depth) + i - outer]);
  return fits ? Status() : SlicesDoNotFit(shape, indices, updates, whole);
}

Status CheckRowIndices(const KernelContext& c, int64_t limit, const Tensor& indices) {
  return WithIndices(indices, [&](auto all) {
    Status status;
    const bool whole = InPieces(c, indices.elements(), [&](int64_t begin, int64_t end) {
      const auto piece = all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      if (status.ok()) status = ops::CheckIndices(piece, limit, "indices", begin);
    });
    return whole ? status : StepAborted();
  });
}

Status CheckNdIndices(const KernelContext& c, const Shape& shape, const Tensor& indices) {
  const auto depth = static_cast<size_t>(DepthOf(indices));
  Looks looks(c);
  return WithIndices(indices, [&](auto span) {
    for (size_t at = 0; depth > 0 && at < span.size(); at += depth) {
      if (!looks.GoOn(1)) return StepAborted();
      const auto index = span.subspan(at, depth);
      bool inside = true;
      for (size_t i = 0; i < depth; ++i)
        inside = inside && index[i] >= 0 && index[i] < shape[static_cast<int>(i)];
      if (inside) continue;
      std::string text;
      for (const auto value : index) text += (text.empty() ? "" : ", ") + std::to_string(value);
      return InvalidArgument("indices[" + std::to_string(at / depth) + "] = [" + text +
                             "] does not index into param shape " + shape.ToString());
    }
    return Status();
  });
}

void NdPlaces(const Shape& shape, const Tensor& indices, int depth, int64_t first, int64_t n,
              int64_t* places) {
  WithIndices(indices, [&](auto span) {
    const auto* index = span.data() + first * depth;
    if (depth == 1) {
      std::copy_n(index, n, places);
      return;
    }
    for (int64_t k = 0; k < n; ++k, index += depth) {
      int64_t place = 0;
      for (int i = 0; i < depth; ++i) place = place * shape[i] + index[i];
      places[k] = place;
    }
  });
}

void CombineSlice(const KernelContext& c, CombineFn combine, size_t element_bytes, void* table,
                  int64_t place, const void* update, int64_t size) {
  if (!RoomForUpdates(c, combine, 1, update, size, size)) return;
  if (size <= kPiece) return combine(table, &place, 1, update, size, size);
  InPieces(c, size, [&](int64_t begin, int64_t end) {
    const int64_t first = 0;
    combine(static_cast<char*>(table) + static_cast<size_t>(place * size + begin) * element_bytes,
            &first, 1,
            static_cast<const char*>(update) + static_cast<size_t>(begin) * element_bytes,
            end - begin, end - begin);
  });
}

void CombineNd(const KernelContext& c, CombineFn combine, void* table, const Shape& shape,
               const Tensor& indices, int depth, int64_t n, const void* updates,
               size_t element_bytes, int64_t step, int64_t size) {
  std::array<int64_t, 512> places;
  const auto most = std::clamp<int64_t>(kPiece / std::max<int64_t>(1, size), 1, places.size());
  for (int64_t first = 0; first < n && !c.cancelled(); first += most) {
    const int64_t count = std::min(most, n - first);
    NdPlaces(shape, indices, depth, first, count, places.data());
    const char* const from =
        static_cast<const char*>(updates) + static_cast<size_t>(first * step) * element_bytes;
    if (count == 1) {
      CombineSlice(c, combine, element_bytes, table, places[0], from, size);
    } else if (RoomForUpdates(c, combine, count, from, step, size)) {
      combine(table, places.data(), count, from, step, size);
    }
  }
}

}  // namespace monograph
