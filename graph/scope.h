// Scope: where the next node goes: its name prefix, device, control inputs and colocation. Output,
// Operation: what building returns.
//
//   Scope root(&graph);
//   Scope tower = root.SubScope("tower_0").WithDevice("/job:worker/task:0");
//   Output y = MatMul(tower.WithOpName("logits"), x, w);
//   if (!root.ok()) return root.status();
//
// Errors. The first mistake is kept in the scope (all scopes derived from one root share it); from
// then on building functions do nothing and return invalid Outputs. Session refuses a graph whose
// scope failed only if the caller asks root.status(), so ask it. Not thread-safe.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// One output of a node of `graph`.
struct Output {
  Graph* graph = nullptr;
  Endpoint endpoint;

  bool valid() const { return graph != nullptr && endpoint.valid(); }
  NodeId node() const { return endpoint.node; }
  DType dtype() const { return graph->dtype(endpoint); }
  const PartialShape& shape() const { return graph->shape(endpoint); }
  std::string name() const { return graph->TensorName(endpoint); }
  friend bool operator==(const Output&, const Output&) = default;
};

// A node of `graph`.
struct Operation {
  Graph* graph = nullptr;
  NodeId id = -1;

  Operation() = default;
  Operation(Graph* g, NodeId i) : graph(g), id(i) {}
  Operation(const Output& output)
      : graph(output.graph), id(output.node()) {}  // NOLINT(runtime/explicit)

  bool valid() const { return graph != nullptr && id >= 0; }
  Output output(int index) const { return valid() ? Output{graph, {id, index}} : Output{}; }
  int num_outputs() const { return graph->num_outputs(id); }
  Output input(int index) const { return {graph, graph->inputs(id)[static_cast<size_t>(index)]}; }
  std::string_view name() const { return graph->name(id); }
  const Attrs& attrs() const { return graph->attrs(id); }
};

using Outputs = std::vector<Output>;

class Scope {
 public:
  // Called for each new node with its spec and the device requested so far (`requested`); returns
  // the device to use (a partial name, "" for none).
  using DeviceFunction =
      std::function<std::string(const NodeSpec& node, const DeviceName& requested)>;

  explicit Scope(Graph* graph);

  Scope SubScope(std::string_view name) const;    // "conv1", made unique: "conv1_1"
  Scope ReuseScope(std::string_view name) const;  // exactly that prefix, also if it was used before
  Scope WithOpName(std::string_view name) const;  // for the next op only: its name in this scope
  Scope WithDevice(std::string_view device) const;  // inner parts win over outer ones
  Scope WithDeviceFunction(DeviceFunction function) const;
  Scope WithControlDependencies(std::span<const Operation> operations) const;
  Scope WithControlDependencies(std::initializer_list<Operation> operations) const {
    return WithControlDependencies(
        std::span<const Operation>(operations.begin(), operations.size()));
  }
  Scope ColocateWith(Operation operation) const;  // attr _class = ["loc:@name"]
  Scope ClearColocation() const;
  // Added to every node that is built in it ("_replica", ...).
  Scope WithAttr(std::string_view name, AttrValue value) const;
  // Seed for random ops below (tf.set_random_seed). 0: none was set.
  Scope WithSeed(int64_t seed) const;
  int64_t seed() const;
  // For nodes that an op function builds beside its main node, which takes the next name: under
  // "loss", if that is what the main node will be called (`fallback` as in MakeName):
  // Const(scope.HelperScope("Mean").WithOpName("axis"), 0) is "loss/axis".
  Scope HelperScope(std::string_view fallback) const;

  Graph* graph() const;
  const std::string& prefix() const;
  bool ok() const;
  const Status& status() const;
  void Fail(const Status& status) const;  // keeps the first

  // The name that an op would get here, made unique: prefix/name, prefix/name_1.
  std::string MakeName(std::string_view fallback) const;
  // Adds a node under this scope's rules. Prefer OpBuilder.
  Operation Add(std::string_view op, std::span<const Output> inputs, Attrs attrs) const;

 private:
  struct Shared;
  struct State;
  explicit Scope(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

// Builds one node:
//
//   OpBuilder(scope, "Conv2D").Input(x).Input(filter).Attr("strides", {1, 1, 1, 1}).Build()
class OpBuilder {
 public:
  OpBuilder(const Scope& scope, std::string_view op) : scope_(scope), op_(op) {}
  OpBuilder& Input(const Output& input);
  OpBuilder& Inputs(std::span<const Output> inputs);
  OpBuilder& Attr(std::string_view name, AttrValue value);
  OpBuilder& Attr(std::string_view name, const char* value) {
    return Attr(name, AttrValue(std::string(value)));
  }
  // Exactly an int: a bool, a float or a DType keeps its type.
  template <std::same_as<int> T>
  OpBuilder& Attr(std::string_view name, T value) {
    return Attr(name, AttrValue(static_cast<int64_t>(value)));
  }
  OpBuilder& Attr(std::string_view name, std::initializer_list<int64_t> values) {
    return Attr(name, AttrValue(std::vector<int64_t>(values)));
  }
  Operation Build();
  Output BuildOutput() { return Build().output(0); }

 private:
  Scope scope_;
  std::string op_;
  Outputs inputs_;
  Attrs attrs_;
};

}  // namespace monograph
