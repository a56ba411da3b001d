// The Optimizer copies the graph in topological order: a node whose value is known becomes
// constants (Fold, from shapes or by evaluating it), one that equals an earlier node is mapped to
// that, any other is copied. One pass is enough, because inputs are rewritten before the node that
// reads them. At last the nodes that nobody needs any more are left out (WithoutDeadNodes).
#include "graph/optimize.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "graph/control_flow.h"
#include "graph/op_source.h"

namespace monograph {
namespace {

class Optimizer {
 public:
  Optimizer(const Graph& graph, const OptimizeOptions& options, std::vector<bool> keep,
            const Evaluator& evaluate)
      : graph_(graph),
        options_(options),
        keep_(std::move(keep)),
        evaluate_(evaluate),
        out_(&graph.registry()) {}

  // Builds the optimised graph, with nodes that nobody reads any more still in it.
  Status Run() {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    out_.Reserve(graph_.num_nodes());
    out_.ShareFunctions(graph_.shared_functions());
    moved_.resize(static_cast<size_t>(graph_.num_nodes()), -1);
    if (graph_.has_flow_ops()) {
      MG_ASSIGN_OR_RETURN(const ControlFlow flow, FindControlFlow(graph_));
      region_ = flow.region;
    }
    for (NodeId id : order) {
      if (options_.constant_folding && Fold(id)) continue;
      Copy(id);
    }
    for (const auto& [target, input, source] : back_edges_)
      out_.ReplaceInput(target, input, Moved(source));
    return Status();
  }

  Graph& out() { return out_; }
  // The new node of an old one, or -1 if it became several constants.
  const std::vector<NodeId>& moved() const { return moved_; }

 private:
  // Whether the node runs in every step, once. A constant in place of another one would come too
  // often: it waits for nothing.
  bool RunsAlways(NodeId id) const {
    return graph_.op(id).flow() == FlowOp::kNone &&
           (region_.empty() || region_[static_cast<size_t>(id)] == 0);
  }
  bool Kept(NodeId id) const { return keep_[static_cast<size_t>(id)]; }

  Endpoint Moved(Endpoint old) const {
    if (const NodeId id = moved_[static_cast<size_t>(old.node)]; id >= 0) return {id, old.index};
    return folded_.at(old.node)[static_cast<size_t>(old.index)];
  }

  // The node that control edges from `old` come from. If it became several constants, an edge from
  // the first is enough: all are ready at once.
  NodeId MovedControl(NodeId old) const {
    const NodeId id = moved_[static_cast<size_t>(old)];
    return id >= 0 ? id : folded_.at(old)[0].node;
  }

  // The value that input `source` has in every step. A kept node may be fed, so it has none.
  const Tensor* Constant(Endpoint source) const {
    if (Kept(source.node)) return nullptr;
    const Endpoint moved = Moved(source);
    if (!out_.is(moved.node, "Const") || !out_.control_inputs(moved.node).empty()) return nullptr;
    const AttrValue* value = out_.attrs(moved.node).Find("value");
    return value == nullptr ? nullptr : std::get_if<Tensor>(value);
  }

  bool Foldable(NodeId id) const {
    const OpDef& op = graph_.op(id);
    if (!op.known() || IsBorrowed(op) || op.stateful() || Kept(id) || graph_.num_outputs(id) == 0)
      return false;
    if (!RunsAlways(id)) return false;
    if (graph_.inputs(id).empty() || !graph_.control_inputs(id).empty()) return false;
    for (int i = 0; i < graph_.num_outputs(id); ++i) {
      const DType dtype = graph_.dtype({id, i});
      if (!IsPlainData(dtype)) return false;
      const int64_t elements = graph_.shape({id, i}).elements();
      if (elements > options_.max_folded_bytes / static_cast<int64_t>(DTypeSize(dtype)))
        return false;
    }
    return true;
  }

  // Shape, Size and Rank need no value where the shape is known.
  std::optional<std::vector<Tensor>> FromShapes(NodeId id) const {
    const bool rank = graph_.is(id, "Rank"), size = graph_.is(id, "Size"),
               shape = graph_.is(id, "Shape") || graph_.is(id, "ShapeN");
    if (!rank && !size && !shape) return std::nullopt;
    std::vector<Tensor> values;
    for (int i = 0; i < graph_.num_outputs(id); ++i) {
      const auto inputs = graph_.inputs(id);
      if (static_cast<size_t>(i) >= inputs.size()) return std::nullopt;
      const PartialShape& known = graph_.shape(inputs[static_cast<size_t>(i)]);
      if (rank ? !known.known_rank() : !known.fully_known()) return std::nullopt;
      std::vector<int64_t> numbers;
      if (rank) {
        numbers = {known.rank()};
      } else if (size) {
        numbers = {known.elements()};
      } else {
        numbers.assign(known.dims().begin(), known.dims().end());
      }
      const Shape dims = shape ? Shape{known.rank()} : Shape();
      if (graph_.dtype({id, i}) == DT_INT64) {
        values.push_back(Tensor::FromValues<int64_t>(dims, numbers));
        continue;
      }
      if (graph_.dtype({id, i}) != DT_INT32) return std::nullopt;
      const std::vector<int32_t> small(numbers.begin(), numbers.end());
      if (!std::equal(small.begin(), small.end(), numbers.begin())) return std::nullopt;
      values.push_back(Tensor::FromValues<int32_t>(dims, small));
    }
    return values;
  }

  std::optional<std::vector<Tensor>> Evaluated(NodeId id) const {
    if (!evaluate_) return std::nullopt;
    std::vector<Tensor> inputs;
    for (const Endpoint input : graph_.inputs(id)) {
      const Tensor* value = Constant(input);
      if (value == nullptr) return std::nullopt;
      inputs.push_back(*value);
    }
    auto values = evaluate_(graph_, id, inputs);
    // An error here is no error of Optimize: the node fails in the step, too, where the error can
    // name its device.
    if (!values.ok() || values->size() != static_cast<size_t>(graph_.num_outputs(id)))
      return std::nullopt;
    return std::move(*values);
  }

  bool Fold(NodeId id) {
    if (!Foldable(id)) return false;
    auto values = FromShapes(id);
    if (!values) values = Evaluated(id);
    if (!values) return false;
    for (int i = 0; i < graph_.num_outputs(id); ++i) {
      const Tensor& value = (*values)[static_cast<size_t>(i)];
      if (value.dtype() != graph_.dtype({id, i})) return false;
      if (static_cast<int64_t>(value.bytes()) > options_.max_folded_bytes) return false;
    }
    std::vector<Endpoint> constants;
    for (size_t i = 0; i < values->size(); ++i) {
      std::string name(graph_.name(id));
      if (values->size() > 1) {
        name += "/folded_" + std::to_string(i);
        while (out_.Find(name) >= 0 || graph_.Find(name) >= 0) name += "_";
      }
      Attrs attrs;
      attrs.Set("dtype", (*values)[i].dtype());
      attrs.Set("value", (*values)[i]);
      if (const AttrValue* group = graph_.attrs(id).Find("_class")) attrs.Set("_class", *group);
      const auto constant = out_.AddNode(
          {.name = name, .op = "Const", .attrs = std::make_shared<const Attrs>(std::move(attrs))});
      if (!constant.ok()) return false;
      out_.SetDevice(*constant, out_.InternDevice(graph_.device(id)));
      constants.push_back({*constant, 0});
    }
    if (constants.size() == 1) {
      moved_[static_cast<size_t>(id)] = constants[0].node;
    } else {
      folded_[id] = std::move(constants);
    }
    return true;
  }

  bool Mergeable(NodeId id) const {
    const OpDef& op = graph_.op(id);
    if (!options_.common_subexpression_elimination || !op.known() || op.stateful() || Kept(id) ||
        op.flow() != FlowOp::kNone)
      return false;
    // Placeholders look alike, but each may be fed another value.
    return !graph_.is(id, "Placeholder") && !graph_.is(id, "PlaceholderWithDefault");
  }

  void Copy(NodeId id) {
    std::vector<Endpoint> inputs;
    std::vector<NodeId> controls;
    for (const Endpoint input : graph_.inputs(id)) {
      if (graph_.IsBackEdge(input.node, id)) {
        back_edges_.push_back({out_.num_nodes(), static_cast<int>(inputs.size()), input});
        inputs.emplace_back();
      } else {
        inputs.push_back(Moved(input));
      }
    }
    for (NodeId control : graph_.control_inputs(id)) controls.push_back(MovedControl(control));
    if (!Mergeable(id)) {
      moved_[static_cast<size_t>(id)] =
          out_.CopyNode(graph_, id, graph_.name(id), inputs, controls);
      return;
    }
    std::vector<Endpoint> key_inputs = inputs;
    if (graph_.op(id).commutative()) std::sort(key_inputs.begin(), key_inputs.end());
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    uint64_t hash = reinterpret_cast<uintptr_t>(&graph_.op(id)) ^ graph_.attrs(id).Hash();
    const auto mix = [&hash](uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 29);
    };
    for (const Endpoint input : key_inputs)
      mix(static_cast<uint64_t>(input.node) << 16 ^ static_cast<uint64_t>(input.index));
    for (NodeId control : controls) mix(static_cast<uint64_t>(control) << 32);
    mix(static_cast<uint64_t>(graph_.device_index(id)));
    const auto [begin, end] = seen_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      const Seen& other = entry->second;
      if (&graph_.op(other.old) == &graph_.op(id) &&
          graph_.device_index(other.old) == graph_.device_index(id) && other.inputs == key_inputs &&
          other.controls == controls &&
          (graph_.shared_attrs(other.old) == graph_.shared_attrs(id) ||
           graph_.attrs(other.old) == graph_.attrs(id))) {
        moved_[static_cast<size_t>(id)] = moved_[static_cast<size_t>(other.old)];
        return;
      }
    }
    moved_[static_cast<size_t>(id)] = out_.CopyNode(graph_, id, graph_.name(id), inputs, controls);
    seen_.emplace(hash, Seen{id, std::move(key_inputs), std::move(controls)});
  }

  struct Seen {
    NodeId old;
    std::vector<Endpoint> inputs;  // sorted if the op is commutative
    std::vector<NodeId> controls;
  };

  const Graph& graph_;
  const OptimizeOptions& options_;
  const std::vector<bool> keep_;
  const Evaluator& evaluate_;
  Graph out_;
  std::vector<NodeId> moved_;
  std::unordered_map<NodeId, std::vector<Endpoint>> folded_;  // nodes of several outputs
  std::unordered_multimap<uint64_t, Seen> seen_;
  std::vector<int32_t> region_;  // by node (ControlFlow); empty: no control flow
  struct BackEdge {
    NodeId target;  // in out_
    int input;
    Endpoint source;  // in graph_
  };
  std::vector<BackEdge> back_edges_;
};

// `graph` without the nodes that neither `roots` nor stateful nodes need.
Graph WithoutDeadNodes(const Graph& graph, const std::vector<NodeId>& roots,
                       std::vector<NodeId>* mapping) {
  std::vector<bool> live(static_cast<size_t>(graph.num_nodes()), false);
  std::vector<NodeId> open;
  const auto need = [&](NodeId id) {
    if (live[static_cast<size_t>(id)]) return;
    live[static_cast<size_t>(id)] = true;
    open.push_back(id);
  };
  for (NodeId root : roots) need(root);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (graph.op(id).stateful()) need(id);
  }
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (const Endpoint input : graph.inputs(id)) need(input.node);
    for (NodeId control : graph.control_inputs(id)) need(control);
  }
  Graph out(&graph.registry());
  out.Reserve(graph.num_nodes());
  out.ShareFunctions(graph.shared_functions());
  mapping->assign(live.size(), -1);
  NodeId count = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i]) (*mapping)[i] = count++;
  }
  std::vector<Endpoint> inputs;
  std::vector<NodeId> controls;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!live[static_cast<size_t>(id)]) continue;
    inputs.clear();
    controls.clear();
    for (const Endpoint input : graph.inputs(id))
      inputs.push_back({(*mapping)[static_cast<size_t>(input.node)], input.index});
    for (NodeId control : graph.control_inputs(id))
      controls.push_back((*mapping)[static_cast<size_t>(control)]);
    out.CopyNode(graph, id, graph.name(id), inputs, controls);
  }
  return out;
}

Graph CopyOf(const Graph& graph) {
  Graph copy(&graph.registry());
  copy.Reserve(graph.num_nodes());
  copy.ShareFunctions(graph.shared_functions());
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    copy.CopyNode(graph, id, graph.name(id), graph.inputs(id), graph.control_inputs(id));
  }
  return copy;
}

}  // namespace

Result<Graph> Optimize(const Graph& graph, const OptimizeOptions& options,
                       std::span<const NodeId> keep, const Evaluator& evaluate,
                       std::vector<NodeId>* mapping) {
  const auto count = static_cast<size_t>(graph.num_nodes());
  std::vector<bool> kept(count, false);
  for (NodeId id : keep) kept[static_cast<size_t>(id)] = true;
  if (options.level <= 0) {
    if (mapping != nullptr) {
      mapping->resize(count);
      for (size_t i = 0; i < count; ++i) (*mapping)[i] = static_cast<NodeId>(i);
    }
    return CopyOf(graph);
  }
  Optimizer optimizer(graph, options, kept, evaluate);
  MG_RETURN_IF_ERROR(optimizer.Run());
  std::vector<NodeId> roots, live;
  for (NodeId id : keep) roots.push_back(optimizer.moved()[static_cast<size_t>(id)]);
  Graph out = WithoutDeadNodes(optimizer.out(), roots, &live);
  if (mapping != nullptr) {
    mapping->assign(count, -1);
    for (size_t i = 0; i < count; ++i) {
      const NodeId moved = optimizer.moved()[i];
      if (moved >= 0) (*mapping)[i] = live[static_cast<size_t>(moved)];
    }
  }
  return out;
}

}  // namespace monograph
