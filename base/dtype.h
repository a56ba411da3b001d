// DType: the element types of tensors, with TensorFlow's names and numbers, and 16-bit floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace monograph {

enum DType : int {
  DT_INVALID = 0,
  DT_FLOAT = 1,
  DT_DOUBLE = 2,
  DT_INT32 = 3,
  DT_UINT8 = 4,
  DT_INT16 = 5,
  DT_INT8 = 6,
  DT_STRING = 7,
  DT_COMPLEX64 = 8,
  DT_INT64 = 9,
  DT_BOOL = 10,
  DT_QINT8 = 11,
  DT_QUINT8 = 12,
  DT_QINT32 = 13,
  DT_BFLOAT16 = 14,
  DT_QINT16 = 15,
  DT_QUINT16 = 16,
  DT_UINT16 = 17,
  DT_COMPLEX128 = 18,
  DT_HALF = 19,
  DT_RESOURCE = 20,
  DT_VARIANT = 21,
  DT_UINT32 = 22,
  DT_UINT64 = 23,
};

// "float", "int32", "bfloat16", ...; "unknown" for an unknown number.
std::string_view DTypeName(DType dtype);

// The inverse of DTypeName; also accepts "DT_FLOAT" and TensorFlow's aliases "float32", "float64",
// "float16".
Result<DType> ParseDType(std::string_view name);

// Bytes of one element; 0 for numbers that are no type. A complex number is two floats or doubles,
// the real part first; a quantized one is an integer (StoredAs). DT_STRING elements are std::string
// objects, DT_RESOURCE elements ResourceHandle objects and DT_VARIANT elements Variant objects,
// none of which may be copied as bytes.
size_t DTypeSize(DType dtype);

// What the elements of a quantized type (qint8, ...) are in memory: the integer of that size. Other
// types are returned as they are.
DType StoredAs(DType dtype);

inline bool IsPlainData(DType dtype) {
  return dtype != DT_STRING && dtype != DT_RESOURCE && dtype != DT_VARIANT && DTypeSize(dtype) > 0;
}
inline bool IsFloating(DType dtype) {
  return dtype == DT_FLOAT || dtype == DT_DOUBLE || dtype == DT_HALF || dtype == DT_BFLOAT16;
}
inline bool IsComplex(DType dtype) { return dtype == DT_COMPLEX64 || dtype == DT_COMPLEX128; }
// Not of quantized types.
inline bool IsInteger(DType dtype) {
  switch (dtype) {
    case DT_INT32:
    case DT_INT64:
    case DT_UINT8:
    case DT_INT8:
    case DT_INT16:
    case DT_UINT16:
    case DT_UINT32:
    case DT_UINT64:
      return true;
    default:
      return false;
  }
}

// The upper half of an IEEE float; rounds to nearest, ties to even, NaN stays NaN.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }  // NOLINT
};

// IEEE binary16; rounds to nearest, ties to even.
struct half {
  uint16_t bits = 0;
  half() = default;
  explicit half(float value) : bits(FloatToHalfBits(value)) {}
  operator float() const { return HalfBitsToFloat(bits); }  // NOLINT

  static uint16_t FloatToHalfBits(float value);
  static float HalfBitsToFloat(uint16_t bits);
};

template <typename T>
struct DTypeOf;
#define MG_DTYPE_OF(type, value)           \
  template <>                              \
  struct DTypeOf<type> {                   \
    static constexpr DType kValue = value; \
  }
MG_DTYPE_OF(float, DT_FLOAT);
MG_DTYPE_OF(double, DT_DOUBLE);
MG_DTYPE_OF(int32_t, DT_INT32);
MG_DTYPE_OF(uint8_t, DT_UINT8);
MG_DTYPE_OF(int16_t, DT_INT16);
MG_DTYPE_OF(int8_t, DT_INT8);
MG_DTYPE_OF(int64_t, DT_INT64);
MG_DTYPE_OF(bool, DT_BOOL);
MG_DTYPE_OF(bfloat16, DT_BFLOAT16);
MG_DTYPE_OF(uint16_t, DT_UINT16);
MG_DTYPE_OF(half, DT_HALF);
MG_DTYPE_OF(uint32_t, DT_UINT32);
MG_DTYPE_OF(uint64_t, DT_UINT64);
#undef MG_DTYPE_OF

template <typename T>
constexpr DType kDTypeOf = DTypeOf<T>::kValue;

}  // namespace monograph
