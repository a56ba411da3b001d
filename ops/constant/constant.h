// Ops that make values: Const, Placeholder, PlaceholderWithDefault, Fill, ZerosLike, OnesLike,
// Range.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// A value fixed in the graph.
Output Const(const Scope& scope, Tensor value);
template <typename T>
requires std::is_arithmetic_v<T> Output Const(const Scope& scope, T value) {  // a scalar
  return Const(scope, Tensor::Scalar<T>(value));
}
template <typename T>
Output Const(const Scope& scope, std::initializer_list<T> values) {  // a vector
  return Const(scope, Tensor::Vector<T>(values));
}
template <typename T>
Output Const(const Scope& scope, const Shape& shape, std::initializer_list<T> values) {
  return Const(scope, Tensor::FromValues<T>(shape, values));
}
Output Const(const Scope& scope, std::string_view text);
inline Output Const(const Scope& scope, const char* text) {
  return Const(scope, std::string_view(text));
}
// A scalar of type `dtype`, rounded to it.
Output ScalarConst(const Scope& scope, double value, DType dtype);
// Integers as an int32 vector: axes, sizes, shapes.
Output IntsConst(const Scope& scope, std::span<const int64_t> values);
inline Output IntsConst(const Scope& scope, std::initializer_list<int64_t> values) {
  return IntsConst(scope, std::span<const int64_t>(values.begin(), values.size()));
}

// What a constant holds (also through Identity); nullptr for anything else. Lives as long as the
// graph.
const Tensor* ConstValue(const Output& output);
// The same as integers: of an int32 or int64 scalar or vector.
std::optional<std::vector<int64_t>> ConstInts(const Output& output);

// A value that each step must be fed. Without a shape, or with PartialShape(), its rank is unknown;
// {} is a scalar's shape, as TensorFlow's [] is.
Output Placeholder(const Scope& scope, DType dtype, const PartialShape& shape = PartialShape());
inline Output Placeholder(const Scope& scope, DType dtype, std::initializer_list<int64_t> dims) {
  return Placeholder(scope, dtype, PartialShape(std::span<const int64_t>(dims)));
}
// A value that a step may be fed; else `input`.
Output PlaceholderWithDefault(const Scope& scope, const Output& input, const PartialShape& shape);
inline Output PlaceholderWithDefault(const Scope& scope, const Output& input,
                                     std::initializer_list<int64_t> dims) {
  return PlaceholderWithDefault(scope, input, PartialShape(std::span<const int64_t>(dims)));
}

// A tensor of shape `dims` (int32 or int64 vector) filled with the scalar `value`.
Output Fill(const Scope& scope, const Output& dims, const Output& value);
Output ZerosLike(const Scope& scope, const Output& x);
Output OnesLike(const Scope& scope, const Output& x);
// Fills without an input of their own.
Output Zeros(const Scope& scope, const Shape& shape, DType dtype = DT_FLOAT);
Output Ones(const Scope& scope, const Shape& shape, DType dtype = DT_FLOAT);
// start, start + delta, ... below limit (above, if delta is negative).
Output Range(const Scope& scope, const Output& start, const Output& limit, const Output& delta);

}  // namespace monograph
