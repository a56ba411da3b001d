#include "tests/conformance/ops/evaluator.h"

#include <cmath>
#include <sstream>

#include "executor/resource_manager.h"
#include "ops/register.h"

namespace monograph::optest {

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    DefineOps(registry);
    return registry;
  }();
  return *ops;
}

const KernelRegistry& Kernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterCpuKernels(registry);
    return registry;
  }();
  return *kernels;
}

Result<std::vector<Tensor>> Evaluate(const Graph& graph, const Feeds& feeds,
                                     std::span<const Output> wanted) {
  MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<bool> needed(static_cast<size_t>(graph.num_nodes()));
  for (const Output& output : wanted) needed[static_cast<size_t>(output.node())] = true;
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    if (!needed[static_cast<size_t>(*node)]) continue;
    for (const Endpoint& input : graph.inputs(*node)) {
      if (!feeds.contains(input)) needed[static_cast<size_t>(input.node)] = true;
    }
    for (NodeId control : graph.control_inputs(*node)) needed[static_cast<size_t>(control)] = true;
  }
  ResourceManager resources;
  KernelRunner runner(&Kernels(), {.resources = &resources});
  Feeds values = feeds;
  for (NodeId node : order) {
    if (!needed[static_cast<size_t>(node)] || feeds.contains({node, 0})) continue;
    std::vector<Tensor> inputs;
    for (const Endpoint& input : graph.inputs(node)) inputs.push_back(values.at(input));
    MG_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, runner.Run(graph, node, std::move(inputs)));
    for (size_t i = 0; i < outputs.size(); ++i)
      values[{node, static_cast<int32_t>(i)}] = std::move(outputs[i]);
  }
  std::vector<Tensor> results;
  for (const Output& output : wanted) results.push_back(values.at(output.endpoint));
  return results;
}

double ElementAsDouble(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DT_FLOAT:
      return static_cast<double>(tensor.data<float>()[i]);
    case DT_DOUBLE:
      return tensor.data<double>()[i];
    case DT_HALF:
      return static_cast<double>(static_cast<float>(tensor.data<half>()[i]));
    case DT_BFLOAT16:
      return static_cast<double>(static_cast<float>(tensor.data<bfloat16>()[i]));
    case DT_INT32:
      return tensor.data<int32_t>()[i];
    case DT_INT64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    default:
      return std::nan("");
  }
}

std::string Difference(const Tensor& got, const Tensor& expected, double rtol, double atol) {
  std::ostringstream text;
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape()) {
    text << "is " << DTypeName(got.dtype()) << got.shape().ToString() << ", expected "
         << DTypeName(expected.dtype()) << expected.shape().ToString();
    return text.str();
  }
  if (!IsFloating(expected.dtype())) {
    if (BitEqual(got, expected)) return "";
    text << "is " << got.ToString(24) << ", expected " << expected.ToString(24);
    return text.str();
  }
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double a = ElementAsDouble(got, i), b = ElementAsDouble(expected, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::isinf(b) ? a == b : std::abs(a - b) <= atol + rtol * std::abs(b)) continue;
    text << "element " << i << " is " << a << ", expected " << b << " (rtol " << rtol << ", atol "
         << atol << ")";
    return text.str();
  }
  return "";
}

}  // namespace monograph::optest
