// For tests of kernels: one op by itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/step/kernel_runner.h"
#include "graph/graph.h"
#include "graph/partial_eval.h"
#include "graph/structural_ops.h"

namespace monograph::testing {

// Runs `op` once by `runner`. `inputs` become constants of a graph made here, so that shapes are
// inferred from their values, and checks are those of a real graph. An input that the caller has
// moved in may be written in place.
inline Result<std::vector<Tensor>> RunOp(KernelRunner& runner, const OpRegistry& ops,
                                         std::string_view op, std::vector<Tensor> inputs,
                                         Attrs attrs = {}) {
  Graph graph(&ops);
  std::vector<Endpoint> sources;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "input_" + std::to_string(i);
    const DType dtype = inputs[i].dtype();
    const bool constant =
        ops.Find(kConstOp) != nullptr && dtype != DT_RESOURCE && dtype != DT_VARIANT;
    // A deep copy: the constant must not keep the input from being written in place.
    Attrs source;
    if (constant) {
      MG_ASSIGN_OR_RETURN(Tensor copy, inputs[i].Clone());
      source = Attrs{{"value", std::move(copy)}, {"dtype", dtype}};
    } else {
      source = Attrs{{"T", dtype}, {"index", static_cast<int64_t>(i)}};
    }
    auto shared = std::make_shared<const Attrs>(std::move(source));
    MG_ASSIGN_OR_RETURN(
        const NodeId node,
        graph.AddNode({.name = name, .op = constant ? kConstOp : kArgOp, .attrs = shared}));
    if (!constant) graph.SetShape({node, 0}, inputs[i].shape());
    sources.push_back({node, 0});
  }
  auto shared = std::make_shared<const Attrs>(std::move(attrs));
  MG_ASSIGN_OR_RETURN(const NodeId node,
                      graph.AddNode({.name = op, .op = op, .inputs = sources, .attrs = shared}));
  return runner.Run(graph, node, std::move(inputs));
}

}  // namespace monograph::testing
