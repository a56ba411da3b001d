// Graph: nodes and edges of a dataflow graph, as plain data with dense ids.
//
// Nodes are numbered in the order in which they were added. A node's data inputs come from outputs
// of other nodes; control inputs only order. Adding a node checks op, attributes, input types and
// count, and infers its output shapes, so that a Graph never holds a node whose types do not fit.
// Passes read one graph and write another. Not thread-safe, but several threads may read one that
// nobody changes (UniqueName counts as a change).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_name.h"
#include "graph/attr.h"
#include "graph/op_def.h"

namespace monograph {

using NodeId = int32_t;
using DeviceIndex = int32_t;  // into Graph::devices(); 0: no requested device

// Output `index` of node `node`.
struct Endpoint {
  NodeId node = -1;
  int32_t index = 0;
  bool valid() const { return node >= 0; }
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

class FunctionLibrary;  // graph/function.h

// What AddNode takes. `attrs` may leave out attributes with defaults and type attributes that
// follow from the inputs.
struct NodeSpec {
  std::string_view name;
  std::string_view op;
  std::span<const Endpoint> inputs = {};
  std::span<const NodeId> control_inputs = {};
  std::shared_ptr<const Attrs> attrs = nullptr;  // nullptr: none given
  std::string_view device = {};
};

class Graph {
 public:
  explicit Graph(const OpRegistry* registry);  // the registry outlives the graph
  void Reserve(int nodes);                     // room for so many nodes in all
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // InvalidArgument and so on name the node, its op and its input shapes: "node 'a/MatMul' (MatMul)
  // with inputs float[2,3], float[4,5]: ...".
  Result<NodeId> AddNode(const NodeSpec& spec);
  // As AddNode, for an op that the registry may lack: the node is kept with `output_count` untyped
  // outputs, and only a step that needs it fails.
  Result<NodeId> AddUnknownNode(const NodeSpec& spec, int output_count);
  // Copies a node of another graph with the same registry, without checking or inferring again;
  // types and shapes come along. `inputs` and `control_inputs` are ids of this graph; an input that
  // is a back edge may be invalid, until ReplaceInput closes the loop.
  NodeId CopyNode(const Graph& from, NodeId node, std::string_view name,
                  std::span<const Endpoint> inputs, std::span<const NodeId> control_inputs);

  const OpRegistry& registry() const { return *registry_; }
  // Whether any op of the graph changes the flow of control (OpDef::flow).
  bool has_flow_ops() const { return has_flow_ops_; }
  // Whether any op makes or changes variables by reference (graph/references.h).
  bool has_references() const { return has_references_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  NodeId Find(std::string_view name) const;  // -1 if there is none
  // "name" or "name:1"; NotFound lists near names.
  Result<Endpoint> FindOutput(std::string_view tensor_name) const;
  // `prefix`, or `prefix_1`, `prefix_2`, ... : a name that no node has.
  std::string UniqueName(std::string_view prefix) const;
  // As UniqueName, and no later unique name is the same: for the prefix of a scope.
  std::string ReserveName(std::string_view prefix);

  std::string_view name(NodeId id) const { return at(id).name; }
  const OpDef& op(NodeId id) const { return *at(id).op; }
  bool is(NodeId id, std::string_view op_name) const { return at(id).op->name() == op_name; }
  const Attrs& attrs(NodeId id) const { return *at(id).attrs; }
  const std::shared_ptr<const Attrs>& shared_attrs(NodeId id) const { return at(id).attrs; }
  std::span<const Endpoint> inputs(NodeId id) const {
    return {input_pool_.data() + at(id).first_input, at(id).num_inputs};
  }
  std::span<const NodeId> control_inputs(NodeId id) const {
    return {control_pool_.data() + at(id).first_control, at(id).num_controls};
  }
  int num_outputs(NodeId id) const { return static_cast<int>(at(id).num_outputs); }
  DType dtype(Endpoint e) const {
    return output_pool_[at(e.node).first_output + static_cast<uint32_t>(e.index)].dtype;
  }
  const PartialShape& shape(Endpoint e) const {
    return *output_pool_[at(e.node).first_output + static_cast<uint32_t>(e.index)].shape;
  }
  // "'name' (Op)", for messages.
  std::string NodeText(NodeId id) const;
  // "name" for output 0, "name:k" for others.
  std::string TensorName(Endpoint e) const;

  // The device that was asked for (a partial name) or, after placement, assigned (a full one).
  DeviceIndex device_index(NodeId id) const { return at(id).device; }
  const DeviceName& device(NodeId id) const { return devices_[static_cast<size_t>(at(id).device)]; }
  const std::vector<DeviceName>& devices() const { return devices_; }
  Result<DeviceIndex> InternDevice(std::string_view text);
  DeviceIndex InternDevice(const DeviceName& name);
  void SetDevice(NodeId id, DeviceIndex device) { at(id).device = device; }

  void SetShape(Endpoint e, const PartialShape& shape);
  void SetAttrs(NodeId id, std::shared_ptr<const Attrs> attrs) { at(id).attrs = std::move(attrs); }
  // REQUIRES: same type; the caller makes no cycle but that of a loop (IsBackEdge).
  void ReplaceInput(NodeId id, int input, Endpoint source);
  // Makes a node one of another op; its name, its device and its outputs stay. REQUIRES: `op` is
  // the registry's and, with these attributes and inputs, gives outputs of the same types.
  void ReplaceOp(NodeId id, const OpDef& op, std::shared_ptr<const Attrs> attrs,
                 std::span<const Endpoint> inputs, std::span<const NodeId> control_inputs);
  void AddControlInput(NodeId id, NodeId source);  // no duplicates
  void SetControlInputs(NodeId id, std::span<const NodeId> sources);

  // Whether the edge leads from a loop's iteration to the next one: from a NextIteration to a
  // Merge. Only such edges may close a cycle.
  bool IsBackEdge(NodeId source, NodeId target) const {
    return op(target).flow() == FlowOp::kMerge && op(source).flow() == FlowOp::kNextIteration;
  }
  // Every edge's source before its target, but for back edges of loops. InvalidArgument names the
  // nodes of any other cycle.
  Result<std::vector<NodeId>> TopologicalOrder() const;

  FunctionLibrary& functions() { return *functions_; }
  const FunctionLibrary& functions() const { return *functions_; }
  void ShareFunctions(std::shared_ptr<FunctionLibrary> functions) {
    functions_ = std::move(functions);
  }
  const std::shared_ptr<FunctionLibrary>& shared_functions() const { return functions_; }

 private:
  struct Node {
    std::string_view name;
    const OpDef* op;
    std::shared_ptr<const Attrs> attrs;
    uint32_t first_input, num_inputs, first_control, num_controls, first_output, num_outputs;
    DeviceIndex device;
  };
  struct OutputInfo {
    DType dtype;
    const PartialShape* shape;  // interned
  };

  struct Interner;  // names, shapes, devices, completed attributes, stand-in ops

  NodeId Commit(std::string_view name, const OpDef* op, std::shared_ptr<const Attrs> attrs,
                std::span<const Endpoint> inputs, std::span<const NodeId> control_inputs,
                DeviceIndex device);
  Status CheckNew(const NodeSpec& spec, std::string_view op) const;

  Node& at(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& at(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }

  const OpRegistry* registry_;
  bool has_flow_ops_ = false, has_references_ = false;
  std::vector<Node> nodes_;
  std::vector<Endpoint> input_pool_;
  std::vector<NodeId> control_pool_;
  std::vector<OutputInfo> output_pool_;
  std::vector<DeviceName> devices_;
  std::shared_ptr<FunctionLibrary> functions_;
  std::unique_ptr<Interner> interner_;
};

// Consumers of every node in compressed rows: data edges (target node, its input, the source's
// output) and control edges (input == -1).
struct OutEdge {
  NodeId target;
  int32_t input;   // -1: control edge
  int32_t output;  // of the source; -1: control edge
};
class OutEdges {
 public:
  explicit OutEdges(const Graph& graph);
  std::span<const OutEdge> of(NodeId id) const {
    const auto i = static_cast<size_t>(id);
    return {edges_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }

 private:
  std::vector<uint32_t> offsets_;
  std::vector<OutEdge> edges_;
};

}  // namespace monograph
