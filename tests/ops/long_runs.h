// What the tests of long kernels share: runs of an op with inputs that keep it busy for a while.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "graph/attr.h"

namespace monograph::testing {

inline constexpr int64_t kMillion = 1'000'000, kRow = 10 * kMillion;

// Runs an op before the one that is measured, with the same resources.
using RunFirst =
    std::function<std::vector<Tensor>(const char* op, std::vector<Tensor> inputs, Attrs attrs)>;

struct LongRun {
  const char* op;
  std::function<std::vector<Tensor>()> inputs;
  Attrs attrs = {};
  const char* note = "";
  // Instead of `inputs`, where these are handles of resources.
  std::function<std::vector<Tensor>(const RunFirst&)> with_resources = {};
  friend std::ostream& operator<<(std::ostream& out, const LongRun& run) {
    return out << run.op << run.note;
  }
};

inline Tensor Zeros(DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::Allocate(dtype, shape).value();
  std::memset(tensor.raw(), 0, tensor.bytes());
  return tensor;
}
inline Tensor Floats(const Shape& shape) { return Zeros(DT_FLOAT, shape); }
// 0, 1, 2, ...
template <typename T = int32_t>
Tensor Numbers(int64_t n) {
  Tensor tensor = Tensor::Allocate(kDTypeOf<T>, Shape{n}).value();
  for (int64_t i = 0; i < n; ++i) tensor.data<T>()[i] = static_cast<T>(i);
  return tensor;
}
inline Tensor Ints(std::initializer_list<int32_t> values) {
  Tensor tensor = Tensor::Allocate(DT_INT32, Shape{static_cast<int64_t>(values.size())}).value();
  std::copy(values.begin(), values.end(), tensor.data<int32_t>());
  return tensor;
}
inline Tensor Longs(std::initializer_list<int64_t> values) {
  Tensor tensor = Tensor::Allocate(DT_INT64, Shape{static_cast<int64_t>(values.size())}).value();
  std::copy(values.begin(), values.end(), tensor.data<int64_t>());
  return tensor;
}
// A vector of n equal texts; a scalar.
inline Tensor Texts(int64_t n, const std::string& text) {
  Tensor tensor = Tensor::Allocate(DT_STRING, Shape{n}).value();
  std::fill_n(tensor.strings(), n, text);
  return tensor;
}
inline Tensor Text(const std::string& text) { return Texts(1, text).Reshaped(Shape()); }

std::vector<LongRun> ElementwiseRuns();  // long_elementwise_runs.cc
std::vector<LongRun> NumberRuns();       // long_number_runs.cc
std::vector<LongRun> TextRuns();         // long_text_runs.cc
std::vector<LongRun> ResourceRuns();     // long_resource_runs.cc

// Ops that take what another one takes: its runs without a note are theirs, too.
std::vector<std::pair<const char*, std::vector<const char*>>> SameInputs();  // long_exceptions.cc

// The CPU kernels without a run: for each op, why (long_exceptions.cc).
struct Exception {
  std::string why;
  std::string like;  // if not empty, an op that has a run, and the same kernel
};
std::vector<std::pair<std::string, Exception>> Exceptions();

}  // namespace monograph::testing
