// What the op suites share: all ops, all CPU kernels, and a plain interpreter of small graphs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "executor/step/kernel_runner.h"
#include "graph/scope.h"

namespace monograph::optest {

const OpRegistry& Ops();
const KernelRegistry& Kernels();

// Values of some outputs, given beforehand.
using Feeds = std::map<Endpoint, Tensor>;

// Computes `wanted` node by node, on this thread; control inputs run first.
Result<std::vector<Tensor>> Evaluate(const Graph& graph, const Feeds& feeds,
                                     std::span<const Output> wanted);

// "" if `got` is what was expected within |got - expected| <= atol + rtol * |expected| (other types
// than floats: equal), else where it differs first. `got` may be of a different floating-point
// type.
std::string Difference(const Tensor& got, const Tensor& expected, double rtol, double atol);

// Element i of a floating-point or integer tensor.
double ElementAsDouble(const Tensor& tensor, int64_t i);

}  // namespace monograph::optest
