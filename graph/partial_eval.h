// What a graph says about values before it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// The op of constants, which ops/ defines: its attribute "value" has the tensor.
inline constexpr std::string_view kConstOp = "Const";

// The value of a constant, also through Identity; nullptr if `source` is none.
const Tensor* ConstantValue(const Graph& graph, Endpoint source);

// An integer scalar or vector of which some elements (kUnknownInt) may be unknown.
struct PartialInts {
  bool scalar = false;
  std::vector<int64_t> values;
};

// As ShapeContext::PartialInts. A constant is given whole, however long; of what is computed at
// most a fixed number of nodes and elements is looked at.
std::optional<PartialInts> EvaluatePartially(const Graph& graph, Endpoint source);
// A constant of rank 0 or 1 and type int32 or int64.
std::optional<PartialInts> IntsOfTensor(const Tensor& tensor);

}  // namespace monograph
