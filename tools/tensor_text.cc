// Values of tensors as text and back. Printer walks the dimensions recursively, as NumPy does.
// ParseValues reads JSON: the first element of each list gives the shape, and Fill then checks
// every list against it. Numbers are checked against the type before they are stored, so that 300
// is refused for a uint8 and 2.5 for an integer.
#include "tools/tensor_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "base/json_value.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

constexpr double kMostFloat = std::numeric_limits<float>::max();
constexpr int64_t kEdge = 3;  // elements that each end of a long dimension shows

// fn(T()) for the type T of numbers that `dtype` is, or `other` if it is none.
template <typename Fn, typename R>
R WithNumberType(DType dtype, const Fn& fn, R other) {
  switch (StoredAs(dtype)) {
#define MG_CASE(type)  \
  case kDTypeOf<type>: \
    return fn(type());
    MG_CASE(float)
    MG_CASE(double)
    MG_CASE(half)
    MG_CASE(bfloat16)
    MG_CASE(int8_t)
    MG_CASE(int16_t)
    MG_CASE(int32_t)
    MG_CASE(int64_t)
    MG_CASE(uint8_t)
    MG_CASE(uint16_t)
    MG_CASE(uint32_t)
    MG_CASE(uint64_t)
#undef MG_CASE
    default:
      return other;
  }
}

template <typename T>
std::string Number(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    char text[64];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value);
    return std::string(text, end);
  } else {
    return Number(static_cast<float>(value));
  }
}

// As NumPy writes them: 1-2j.
template <typename T>
std::string Complex(const T* parts) {
  const std::string imaginary = Number(parts[1]);
  return Number(parts[0]) + (imaginary.starts_with('-') ? "" : "+") + imaginary + "j";
}

std::string Element(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DT_STRING:
      return JsonQuoted(tensor.strings()[i]);
    case DT_RESOURCE:
      return JsonQuoted(tensor.handles()[i].name);
    case DT_BOOL:
      return tensor.data<bool>()[i] ? "true" : "false";
    case DT_COMPLEX64:
      return Complex(tensor.data<float>() + 2 * i);
    case DT_COMPLEX128:
      return Complex(tensor.data<double>() + 2 * i);
    default:
      return WithNumberType(
          tensor.dtype(), [&](auto zero) { return Number(tensor.data<decltype(zero)>()[i]); },
          std::string("?"));
  }
}

class Printer {
 public:
  Printer(const Tensor& tensor, int64_t limit) : tensor_(tensor), cut_(tensor.elements() > limit) {}

  // The elements [begin, begin + count) below dimension `dim`.
  void Print(int dim, int64_t begin, int64_t count, std::string* text) const {
    const int rank = tensor_.shape().rank();
    if (dim == rank) {
      *text += Element(tensor_, begin);
      return;
    }
    const int64_t size = tensor_.shape()[dim], step = size == 0 ? 0 : count / size;
    const std::string between = dim + 1 == rank
                                    ? ", "
                                    : "," + std::string(static_cast<size_t>(rank - 1 - dim), '\n') +
                                          std::string(static_cast<size_t>(dim + 1), ' ');
    *text += '[';
    for (int64_t i = 0; i < size; ++i) {
      if (i > 0) *text += between;
      if (cut_ && i == kEdge && size > 2 * kEdge) {
        *text += "..." + between;
        i = size - kEdge;
      }
      Print(dim + 1, begin + i * step, step, text);
    }
    *text += ']';
  }

 private:
  const Tensor& tensor_;
  const bool cut_;
};

Status Misfit(const Json& value, DType dtype) {
  return InvalidArgument(JsonExcerpt(value) + " is no " + std::string(DTypeName(dtype)));
}

template <typename T>
Status SetNumber(const Json& value, DType dtype, T* out) {
  if (!value.is_number()) return Misfit(value, dtype);
  if constexpr (std::is_integral_v<T>) {
    const double number = value.get<double>();
    if (value.is_number_float() && number != std::floor(number)) return Misfit(value, dtype);
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                      : value.is_number_integer()
                          ? std::in_range<T>(value.get<int64_t>())
                          : std::fabs(number) < 9007199254740992.0 &&  // 2^53: exact
                                std::in_range<T>(static_cast<int64_t>(number));
    if (!fits) return Misfit(value, dtype);
    *out = value.is_number_float() ? static_cast<T>(number) : value.get<T>();
  } else if constexpr (std::is_same_v<T, double>) {
    *out = value.get<double>();
  } else {
    *out = T(static_cast<float>(std::clamp(value.get<double>(), -kMostFloat, kMostFloat)));
    if (!std::isfinite(static_cast<float>(*out)) || std::fabs(value.get<double>()) > kMostFloat)
      return Misfit(value, dtype);
  }
  return Status();
}

Status SetElement(const Json& value, int64_t i, Tensor* tensor) {
  const DType dtype = tensor->dtype();
  switch (dtype) {
    case DT_STRING:
      if (!value.is_string()) return Misfit(value, dtype);
      tensor->strings()[i] = value.get<std::string>();
      return Status();
    case DT_BOOL:
      if (!value.is_boolean()) return Misfit(value, dtype);
      tensor->data<bool>()[i] = value.get<bool>();
      return Status();
    default:
      return WithNumberType(
          dtype,
          [&](auto zero) { return SetNumber(value, dtype, tensor->data<decltype(zero)>() + i); },
          InvalidArgument("no value of type " + std::string(DTypeName(dtype)) + " can be typed"));
  }
}

Status Fill(const Json& value, int dim, int64_t* next, Tensor* tensor) {
  if (dim == tensor->shape().rank()) return SetElement(value, (*next)++, tensor);
  const auto size = static_cast<size_t>(tensor->shape()[dim]);
  if (!value.is_array() || value.size() != size) {
    return InvalidArgument(JsonExcerpt(value) + " should be a list of " + std::to_string(size) +
                           ", as the first one beside it is");
  }
  for (const Json& part : value) MG_RETURN_IF_ERROR(Fill(part, dim + 1, next, tensor));
  return Status();
}

}  // namespace

std::string FormatValues(const Tensor& tensor, int64_t limit) {
  std::string text;
  Printer(tensor, limit).Print(0, 0, tensor.elements(), &text);
  return text;
}

Result<Tensor> ParseValues(const std::string& text, DType dtype) {
  const Result<Json> parsed = ParseJson(text, "'" + text + "' is no value");
  if (!parsed.ok())
    return InvalidArgument(parsed.status().message() +
                           "; 3.5, true, \"text\" and [[1, 2], [3, 4]] are values");
  const Json& json = *parsed;
  std::vector<int64_t> dims;
  for (const Json* at = &json; at->is_array(); at = &at->front()) {
    dims.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  // The first lists promise the size: no more than was written, or some list is shorter.
  if (shape.elements() > static_cast<int64_t>(text.size()))
    return InvalidArgument(JsonExcerpt(json) + " has lists that differ in their lengths");
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape));
  int64_t next = 0;
  MG_RETURN_IF_ERROR(Fill(json, 0, &next, &tensor));
  return tensor;
}

}  // namespace monograph
