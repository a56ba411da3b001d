#include "base/dtype.h"

#include <string>

#include "base/variant.h"

namespace monograph {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::string_view alias;
  size_t size;
};

constexpr Entry kEntries[] = {
    {DT_FLOAT, "float", "float32", 4},
    {DT_DOUBLE, "double", "float64", 8},
    {DT_INT32, "int32", "int", 4},
    {DT_UINT8, "uint8", "", 1},
    {DT_INT16, "int16", "", 2},
    {DT_INT8, "int8", "", 1},
    {DT_STRING, "string", "", sizeof(std::string)},
    {DT_COMPLEX64, "complex64", "", 8},
    {DT_INT64, "int64", "", 8},
    {DT_BOOL, "bool", "", 1},
    {DT_QINT8, "qint8", "", 1},
    {DT_QUINT8, "quint8", "", 1},
    {DT_QINT32, "qint32", "", 4},
    {DT_BFLOAT16, "bfloat16", "", 2},
    {DT_QINT16, "qint16", "", 2},
    {DT_QUINT16, "quint16", "", 2},
    {DT_UINT16, "uint16", "", 2},
    {DT_COMPLEX128, "complex128", "", 16},
    {DT_HALF, "half", "float16", 2},
    {DT_RESOURCE, "resource", "", 3 * sizeof(std::string)},
    {DT_VARIANT, "variant", "", sizeof(Variant)},
    {DT_UINT32, "uint32", "", 4},
    {DT_UINT64, "uint64", "", 8},
};

}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry.name;
  }
  return dtype == DT_INVALID ? "invalid" : "unknown";
}

Result<DType> ParseDType(std::string_view name) {
  std::string lower(name);
  if (lower.starts_with("DT_")) {
    lower = lower.substr(3);
    for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  for (const Entry& entry : kEntries) {
    if (lower == entry.name || (!entry.alias.empty() && lower == entry.alias)) return entry.dtype;
  }
  return InvalidArgument(
      "unknown type '" + std::string(name) +
      "'; known are float, double, half, bfloat16, "
      "int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool, "
      "complex64, complex128, qint8, qint16, qint32, quint8, quint16, string, resource, variant");
}

size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DT_FLOAT:
    case DT_INT32:
    case DT_UINT32:
      return 4;
    case DT_DOUBLE:
    case DT_INT64:
    case DT_UINT64:
      return 8;
    case DT_UINT8:
    case DT_INT8:
    case DT_BOOL:
      return 1;
    case DT_INT16:
    case DT_UINT16:
    case DT_HALF:
    case DT_BFLOAT16:
      return 2;
    default:
      break;
  }
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry.size;
  }
  return 0;
}

DType StoredAs(DType dtype) {
  switch (dtype) {
    case DT_QINT8:
      return DT_INT8;
    case DT_QUINT8:
      return DT_UINT8;
    case DT_QINT16:
      return DT_INT16;
    case DT_QUINT16:
      return DT_UINT16;
    case DT_QINT32:
      return DT_INT32;
    default:
      return dtype;
  }
}

uint16_t half::FloatToHalfBits(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal or zero: let the float adder round at the right bit
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float half::HalfBitsToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace monograph
