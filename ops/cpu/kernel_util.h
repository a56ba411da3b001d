// What many CPU kernels need: reading small integer inputs, registering one kernel for many types,
// strided copies.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/kernel.h"

namespace monograph {

// Up to 32 integers without heap memory.
class SmallInts {
 public:
  static constexpr int kMaxSize = 32;

  int size() const { return size_; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  void push_back(int64_t value) { values_[static_cast<size_t>(size_++)] = value; }
  std::span<const int64_t> span() const { return {values_.data(), static_cast<size_t>(size_)}; }

 private:
  std::array<int64_t, kMaxSize> values_{};
  int size_ = 0;
};

// An int32 or int64 scalar or vector; InvalidArgument, saying `what`, for another type or rank or
// for too many.
Result<SmallInts> IntsOf(const Tensor& tensor, std::string_view what);
// One of them.
Result<int64_t> IntOf(const Tensor& tensor, std::string_view what);
// The one element of a tensor of strings.
Result<const std::string*> StringOf(const Tensor& tensor, std::string_view what);
// As a shape.
Result<Shape> ShapeFrom(const Tensor& tensor, std::string_view what);
// "axis" in [-rank, rank) to [0, rank).
Result<int> AxisOf(const Tensor& tensor, int rank);

// All types whose elements are plain bytes.
inline constexpr DType kPlainTypes[] = {
    DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64, DT_INT8, DT_INT16, DT_UINT8,
    DT_UINT16, DT_UINT32, DT_UINT64, DT_BOOL,
    // Moved, and computed by borrowed ops only.
    DT_COMPLEX64, DT_COMPLEX128, DT_QINT8, DT_QUINT8, DT_QINT16, DT_QUINT16, DT_QINT32};

// Registers K, which does not depend on the type, for each of `types` of the attribute `type_attr`.
template <typename K>
void AddForTypes(KernelRegistry* registry, const KernelDef& def, const std::string& type_attr,
                 std::span<const DType> types) {
  for (DType dtype : types) {
    KernelDef typed = def;
    typed.types.emplace_back(type_attr, dtype);
    registry->Add<K>(std::move(typed));
  }
}
template <typename K>
void AddForPlainTypes(KernelRegistry* registry, const KernelDef& def,
                      const std::string& type_attr = "T") {
  AddForTypes<K>(registry, def, type_attr, kPlainTypes);
}

// An index space with a source and a destination stride (in elements, possibly 0 or negative) for
// each dimension.
struct StridedSpace {
  int rank = 0;
  std::array<int64_t, kMaxRank> size{}, from{}, to{};

  void Add(int64_t dim_size, int64_t from_stride, int64_t to_stride) {
    const auto i = static_cast<size_t>(rank++);
    size[i] = dim_size, from[i] = from_stride, to[i] = to_stride;
  }
};

// to[sum of i*to] = from[sum of i*from] for all indices; `element_size` is 1, 2, 4, 8 or 16 bytes.
// Rows of consecutive elements, and the tiles of a transposition, are recognised. Destinations must
// differ.
void StridedCopy(KernelContext& c, size_t element_size, const void* from, void* to,
                 StridedSpace space);
// The same copy without dimensions of 1, and with neighbours joined that are one run on both sides;
// at least one dimension.
StridedSpace Collapsed(const StridedSpace& space);

// Row-major strides of a shape.
std::array<int64_t, kMaxRank> StridesOf(const Shape& shape);

// Rows of 16-bit floats to floats and back, vectorised.
void ToFloats(const half* in, float* out, int64_t n);
void ToFloats(const bfloat16* in, float* out, int64_t n);
void FromFloats(const float* in, half* out, int64_t n);
void FromFloats(const float* in, bfloat16* out, int64_t n);

}  // namespace monograph
