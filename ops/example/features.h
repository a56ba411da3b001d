// The features of serialized tf.Example messages, of which ops/example makes tensors.
//
//   Example   { 1: Features }            Features { 1: entry { 1: key  2: Feature } ... }
//   Feature   { 1: BytesList | 2: FloatList | 3: Int64List }
//   BytesList { 1: bytes ... }   FloatList { 1: fixed32 ..., packed or not }
//   Int64List { 1: varint ..., packed or not }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor.h"
#include "ops/cpu/looks_cpu.h"

namespace monograph::ops::example {

// A feature of one example: its list, in the example's bytes, and what it is a list of.
// DT_INVALID: it has none.
struct Found {
  DType dtype = DT_INVALID;
  std::string_view list;
};

// The values of one feature, example by example.
struct Column {
  std::string key;
  DType dtype = DT_INVALID;
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
  std::vector<std::string> texts = {};
  std::vector<int64_t> ends = {};  // behind each example's values

  int64_t size() const;
  // Values [first, first + n) to elements [at, at + n).
  void Put(Looks* looks, int64_t first, int64_t n, Tensor* to, int64_t at) const;
  int64_t begin(size_t example) const { return example == 0 ? 0 : ends[example - 1]; }
};

using FeatureNumbers = std::unordered_map<std::string_view, size_t>;  // by key

// The features of an example that `wanted` names, by number; of two of one key the last. False: it
// is no example, or the step is aborted. REQUIRES: `found` is as long as `wanted`.
bool FindFeatures(Looks* looks, std::string_view example, const FeatureNumbers& wanted,
                  std::vector<Found>* found);

// Appends the values of a list of the column's type. False: it is no such list, or the step is
// aborted.
bool AppendList(Looks* looks, std::string_view list, Column* column);

}  // namespace monograph::ops::example
