// Two passes in topological order. Trace finds which tensors are references, to which variable,
// what writes them and what runs behind a write; the Replacer then copies the graph. Nodes that
// hand a reference on (RefSwitch, RefMerge, ...) hand on the handle; a RefNextIteration whose
// reference nobody takes up as one hands on the value.
#include "graph/references.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "graph/control_flow.h"
#include "graph/names.h"

namespace monograph {
namespace {

constexpr NodeId kAnyVariable = -1;

// By input of the node: whether its op wants a reference there.
std::vector<bool> WantsReference(const Graph& graph, NodeId id) {
  std::vector<bool> wants;
  for (const ArgDef& arg : graph.op(id).inputs()) {
    int64_t count = 1;
    if (!arg.number_attr.empty()) count = graph.attrs(id).Get<int64_t>(arg.number_attr);
    if (!arg.type_list_attr.empty()) {
      count =
          static_cast<int64_t>(graph.attrs(id).Get<std::vector<DType>>(arg.type_list_attr).size());
    }
    wants.insert(wants.end(), static_cast<size_t>(count), arg.is_ref);
  }
  return wants;
}

const OpDef* FormOf(const Graph& graph, NodeId id) {
  const HandleForm* form = graph.op(id).handle_form();
  return form == nullptr ? nullptr : graph.registry().Find(form->op);
}

// Whether the op hands references on, as well as it does values.
bool HandsOn(const OpDef& form) {
  return !form.inputs().empty() && form.inputs()[0].dtype != DT_RESOURCE;
}

bool GivesReference(const Graph& graph, NodeId id) {
  const auto& outputs = graph.op(id).outputs();
  return !outputs.empty() && outputs[0].is_ref;
}

// What is known before anything is replaced.
struct Trace {
  Trace(const Graph& graph, const std::vector<NodeId>& order, std::span<const Endpoint> feeds)
      : behind_(static_cast<size_t>(graph.num_nodes()), false) {
    const std::set<Endpoint> fed(feeds.begin(), feeds.end());
    const OutEdges out(graph);
    for (NodeId id : order) {
      const OpDef* form = FormOf(graph, id);
      if (form == nullptr) continue;
      if (graph.op(id).inputs().empty()) {
        if (fed.contains({id, 0})) continue;
        variable[{id, 0}] = id;
        if (graph.op(id).outputs()[0].is_string_handle()) strings_.insert({id, 0});
        continue;
      }
      if (graph.inputs(id).empty()) continue;  // it only stands for what is fed
      const std::vector<bool> wants = WantsReference(graph, id);
      std::vector<NodeId> taken;  // the variables of the references that it gets
      bool strings = false;
      size_t values = 0;
      for (size_t i = 0; i < wants.size(); ++i) {
        const Endpoint input = graph.inputs(id)[i];
        if (!wants[i] || graph.IsBackEdge(input.node, id)) continue;
        const auto found = variable.find(input);
        if (found == variable.end()) {
          ++values;
        } else {
          taken.push_back(found->second);
          strings = strings || IsStrings(input);
        }
      }
      const bool mixed = values > 0 || taken.empty();
      if (HandsOn(*form) && (mixed || !IsTakenUp(graph, out, id))) continue;
      if (!HandsOn(*form) && !form->reads_only()) Write(id, taken);
      if (mixed || !GivesReference(graph, id) || fed.contains({id, 0})) continue;
      const bool one = std::count(taken.begin(), taken.end(), taken[0]) ==
                       static_cast<std::ptrdiff_t>(taken.size());
      // An update of several variables gives out the first.
      const NodeId root = one || !HandsOn(*form) ? taken[0] : kAnyVariable;
      for (size_t i = 0; i < graph.op(id).outputs().size(); ++i) {
        if (!graph.op(id).outputs()[i].is_ref) continue;
        const Endpoint output{id, static_cast<int32_t>(i)};
        variable[output] = root;
        if (strings) strings_.insert(output);
      }
    }
    FindBehind(graph, order);
  }

  bool IsReference(Endpoint e) const { return variable.contains(e); }
  // Whether a reference is the handle of a queue or such, which reads as two strings.
  bool IsStrings(Endpoint e) const { return strings_.contains(e); }
  // Whether the node runs behind one that writes a variable.
  bool IsBehindWrite(NodeId id) const { return behind_[static_cast<size_t>(id)]; }
  // What writes the variable of a reference.
  std::vector<NodeId> Writers(Endpoint e) const {
    const auto found = writers_.find(variable.at(e));
    return found == writers_.end() ? std::vector<NodeId>() : found->second;
  }

  std::map<Endpoint, NodeId> variable;  // of each tensor that is a reference

 private:
  // A reference leaves a loop's iteration only to a RefMerge that handles one.
  bool IsTakenUp(const Graph& graph, const OutEdges& out, NodeId id) const {
    if (graph.op(id).flow() != FlowOp::kNextIteration) return true;
    const auto edges = out.of(id);
    return std::any_of(edges.begin(), edges.end(), [&](const OutEdge& edge) {
      return edge.input >= 0 && IsReference({edge.target, 0});
    });
  }

  void Write(NodeId id, const std::vector<NodeId>& variables) {
    for (NodeId root : variables) writers_[root].push_back(id);
  }

  // Once more for each loop that is left again with a write in it.
  void FindBehind(const Graph& graph, const std::vector<NodeId>& order) {
    std::set<NodeId> writes;
    for (const auto& [root, nodes] : writers_) writes.insert(nodes.begin(), nodes.end());
    const auto behind = [&](NodeId source) {
      return behind_[static_cast<size_t>(source)] || writes.contains(source);
    };
    for (bool changed = !writes.empty(); changed;) {
      changed = false;
      for (NodeId id : order) {
        if (behind_[static_cast<size_t>(id)]) continue;
        const auto inputs = graph.inputs(id);
        const auto controls = graph.control_inputs(id);
        if (std::any_of(inputs.begin(), inputs.end(),
                        [&](const Endpoint& input) { return behind(input.node); }) ||
            std::any_of(controls.begin(), controls.end(), behind)) {
          behind_[static_cast<size_t>(id)] = true;
          changed = true;
        }
      }
    }
  }

  std::set<Endpoint> strings_;
  std::map<NodeId, std::vector<NodeId>> writers_;  // by variable
  std::vector<bool> behind_;                       // by node
};

class Replacer {
 public:
  Replacer(const Graph& graph, const Trace& trace, std::span<const Endpoint> feeds)
      : graph_(graph), trace_(trace), fed_(feeds.begin(), feeds.end()), out_(&graph.registry()) {}

  Status Run(const std::vector<NodeId>& order) {
    out_.Reserve(graph_.num_nodes());
    out_.ShareFunctions(graph_.shared_functions());
    moved_.assign(static_cast<size_t>(graph_.num_nodes()), -1);
    if (graph_.has_flow_ops()) {
      MG_ASSIGN_OR_RETURN(const ControlFlow flow, FindControlFlow(graph_));
      regions_ = flow.region;
    }
    for (NodeId id : order) MG_RETURN_IF_ERROR(Move(id));
    for (const BackEdge& edge : back_edges_) {
      const NodeId target = moved_[Index(edge.target)];
      Endpoint source{moved_[Index(edge.source.node)], edge.source.index};
      if (out_.dtype(source) != out_.dtype({target, 0})) {
        return InvalidArgument(graph_.NodeText(edge.target) + ": input " +
                               std::to_string(edge.input) +
                               " must be a reference, as those that enter the loop are");
      }
      out_.ReplaceInput(target, edge.input, source);
    }
    return Status();
  }

  Result<WithoutReferences> Finish(std::span<const Endpoint> feeds,
                                   std::span<const Endpoint> fetches) {
    WithoutReferences result{Graph(&graph_.registry()), {}, {}, {}};
    for (const Endpoint feed : feeds) result.feeds.push_back(feed.valid() ? Plain(feed) : feed);
    for (const Endpoint fetch : fetches) {
      MG_ASSIGN_OR_RETURN(const Endpoint value, Fetched(fetch));
      result.fetches.push_back(value);
    }
    result.graph = std::move(out_);
    result.nodes = std::move(moved_);
    return result;
  }

 private:
  // The handle of a reference, and the node whose effect a read of this one comes after; -1: none.
  struct Handle {
    Endpoint tensor;
    NodeId after = -1;
  };
  struct BackEdge {
    NodeId target;
    int input;
    Endpoint source;
  };

  static size_t Index(NodeId id) { return static_cast<size_t>(id); }

  Endpoint Plain(Endpoint e) const {
    if (const auto found = stands_for_.find(e); found != stands_for_.end()) return found->second;
    return {moved_[Index(e.node)], e.index};
  }

  std::vector<NodeId> MovedControls(NodeId id) const {
    std::vector<NodeId> controls;
    for (NodeId control : graph_.control_inputs(id)) controls.push_back(moved_[Index(control)]);
    return controls;
  }

  std::string FreshName(NodeId id, const char* what) const {
    return FreeName(std::string(graph_.name(id)) + what, [this](const std::string& name) {
      return graph_.Find(name) >= 0 || out_.Find(name) >= 0;
    });
  }

  Result<NodeId> Add(const std::string& name, std::string_view op, std::span<const Endpoint> inputs,
                     std::vector<NodeId> controls, Attrs attrs, NodeId where) {
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    MG_ASSIGN_OR_RETURN(const NodeId id,
                        out_.AddNode({.name = name,
                                      .op = op,
                                      .inputs = inputs,
                                      .control_inputs = controls,
                                      .attrs = std::make_shared<const Attrs>(std::move(attrs))}));
    out_.SetDevice(id, out_.InternDevice(graph_.device(where)));
    return id;
  }

  // A node that reads the reference: the variable's value, or the container and name of a queue.
  Result<NodeId> AddRead(const std::string& name, Endpoint e, std::vector<NodeId> controls,
                         NodeId where) {
    const Handle& handle = handles_.at(e);
    if (handle.after >= 0) controls.push_back(handle.after);
    const bool strings = trace_.IsStrings(e);
    Attrs attrs;
    if (!strings) attrs.Set("dtype", graph_.dtype(e));
    MG_ASSIGN_OR_RETURN(const NodeId id,
                        Add(name, strings ? "_HandleStrings" : "ReadVariableOp", {{handle.tensor}},
                            std::move(controls), std::move(attrs), where));
    out_.SetShape({id, 0}, graph_.shape(e));
    return id;
  }

  // The value of a reference behind the nodes `controls` of out_.
  Result<Endpoint> ReadBehind(Endpoint e, std::vector<NodeId> controls) {
    MG_ASSIGN_OR_RETURN(const NodeId id,
                        AddRead(FreshName(e.node, "/_read"), e, std::move(controls), e.node));
    return Endpoint{id, 0};
  }

  // What node `reader` gets for its input: of a reference the value.
  Result<Endpoint> ValueFor(NodeId reader, Endpoint input) {
    if (const auto alias = aliases_.find(input); alias != aliases_.end()) {
      if (!trace_.IsBehindWrite(reader) || graph_.op(reader).flow() != FlowOp::kNone ||
          graph_.device_index(reader) != graph_.device_index(input.node))
        return Plain(input);
      std::vector<NodeId> controls = Waits(reader);
      controls.push_back(moved_[Index(input.node)]);
      return ReadBehind(alias->second, std::move(controls));
    }
    const auto handle = handles_.find(input);
    if (handle == handles_.end()) return Plain(input);
    if (trace_.IsBehindWrite(reader)) return ReadBehind(input, Waits(reader));
    const auto [read, added] = reads_.try_emplace(input);
    if (added) {
      MG_ASSIGN_OR_RETURN(read->second, ReadBehind(input, {}));
    }
    return read->second;
  }

  // TensorFlow gives out what is in the variable's memory when the step has ended.
  Result<Endpoint> Fetched(Endpoint fetch) {
    const auto alias = aliases_.find(fetch);
    const Endpoint e = alias == aliases_.end() ? fetch : alias->second;
    if (!handles_.contains(e)) return Plain(fetch);
    std::vector<NodeId> controls;
    for (NodeId writer : trace_.Writers(e)) {
      // One that may not run would keep the read from running, too.
      if (regions_.empty() || regions_[Index(writer)] == 0)
        controls.push_back(moved_[Index(writer)]);
    }
    if (alias != aliases_.end()) {
      if (controls.empty()) return Plain(fetch);
      controls.push_back(moved_[Index(fetch.node)]);
    }
    return ReadBehind(e, std::move(controls));
  }

  // What a read for `reader` waits for.
  std::vector<NodeId> Waits(NodeId reader) const {
    std::vector<NodeId> controls = MovedControls(reader);
    // What passes a value on takes it as soon as it is there.
    if (graph_.op(reader).flow() != FlowOp::kNone) return controls;
    for (const Endpoint input : graph_.inputs(reader)) {
      if (const auto other = handles_.find(input); other == handles_.end()) {
        controls.push_back(Plain(input).node);
      } else if (other->second.after >= 0) {
        controls.push_back(other->second.after);
      }
    }
    return controls;
  }

  Status Move(NodeId id) {
    const OpDef* form = FormOf(graph_, id);
    if (form == nullptr || (HandsOn(*form) && !trace_.IsReference({id, 0}))) return Copy(id);
    if (IsFedReference(id)) MG_RETURN_IF_ERROR(StandIn(id));
    // A node without the inputs of its op is here for nothing but what is fed.
    const bool stands = graph_.inputs(id).empty() && !graph_.op(id).inputs().empty();
    if (IsFedReference(id) && (stands || graph_.op(id).inputs().empty())) return Status();
    return stands ? Copy(id) : Replace(id, *form);
  }

  bool IsFedReference(NodeId id) const {
    return fed_.contains({id, 0}) && GivesReference(graph_, id);
  }

  // A node for an output that is fed: from here on it is a value.
  Status StandIn(NodeId id) {
    const Attrs attrs{{"dtype", graph_.dtype({id, 0})}, {"shape", graph_.shape({id, 0})}};
    MG_ASSIGN_OR_RETURN(const NodeId fed,
                        Add(FreshName(id, "/_fed"), "Placeholder", {}, {}, attrs, id));
    stands_for_[{id, 0}] = {fed, 0};
    moved_[Index(id)] = fed;
    return Status();
  }

  Status Copy(NodeId id) {
    if (IsRead(id)) return CopyAsRead(id);
    std::vector<Endpoint> inputs;
    for (const Endpoint input : graph_.inputs(id)) {
      if (graph_.IsBackEdge(input.node, id)) {
        back_edges_.push_back({id, static_cast<int>(inputs.size()), input});
        inputs.emplace_back();
        continue;
      }
      MG_ASSIGN_OR_RETURN(const Endpoint value, ValueFor(id, input));
      inputs.push_back(value);
    }
    moved_[Index(id)] = out_.CopyNode(graph_, id, graph_.name(id), inputs, MovedControls(id));
    return Status();
  }

  bool IsRead(NodeId id) const {
    if (!graph_.is(id, "Identity") || graph_.inputs(id).empty() || fed_.contains({id, 0}))
      return false;
    const Endpoint input = graph_.inputs(id)[0];
    return handles_.contains(input) && graph_.device_index(id) == graph_.device_index(input.node);
  }

  Status CopyAsRead(NodeId id) {
    const Endpoint input = graph_.inputs(id)[0];
    MG_ASSIGN_OR_RETURN(const NodeId read,
                        AddRead(std::string(graph_.name(id)), input, MovedControls(id), id));
    out_.SetShape({read, 0}, graph_.shape({id, 0}));
    moved_[Index(id)] = read;
    aliases_[{id, 0}] = input;
    return Status();
  }

  Status Replace(NodeId id, const OpDef& form) {
    const std::vector<bool> wants = WantsReference(graph_, id);
    std::vector<NodeId> controls = MovedControls(id);
    std::vector<Endpoint> inputs;
    std::vector<size_t> open;
    for (size_t i = 0; i < wants.size(); ++i) {
      const Endpoint input = graph_.inputs(id)[i];
      if (graph_.IsBackEdge(input.node, id)) {
        back_edges_.push_back({id, static_cast<int>(i), input});
        open.push_back(i);
        inputs.emplace_back();
        continue;
      }
      const auto handle = handles_.find(input);
      if (wants[i] && handle == handles_.end()) {
        const std::string dtype(DTypeName(graph_.dtype(input)));
        return InvalidArgument(fmt::format(
            "{}: Input {} was passed {} from {}:{} incompatible "
            "with expected {}_ref.",
            graph_.NodeText(id), i, dtype, graph_.name(input.node), input.index, dtype));
      }
      if (wants[i]) {
        inputs.push_back(handle->second.tensor);
        if (handle->second.after >= 0) controls.push_back(handle->second.after);
      } else {
        MG_ASSIGN_OR_RETURN(const Endpoint value, ValueFor(id, input));
        inputs.push_back(value);
      }
    }
    // Until the loop is closed, what enters it stands for what its next iterations bring.
    for (size_t i : open) {
      inputs[i] = *std::find_if(inputs.begin(), inputs.end(),
                                [](const Endpoint& input) { return input.valid(); });
    }
    Attrs attrs = HandleFormAttrs(graph_, id);
    // As its definition reads it: an old Variable's scalar may stand for any shape.
    if (wants.empty() && !graph_.op(id).outputs()[0].is_string_handle())
      attrs.Set("shape", graph_.shape({id, 0}));
    MG_ASSIGN_OR_RETURN(const NodeId node, Add(std::string(graph_.name(id)), form.name(), inputs,
                                               std::move(controls), std::move(attrs), id));
    if (!IsFedReference(id)) moved_[Index(id)] = node;
    const bool gives_handles = !form.outputs().empty();
    for (int32_t i = 0; i < graph_.num_outputs(id); ++i) {
      if (!trace_.IsReference({id, i})) continue;
      handles_[{id, i}] = gives_handles ? Handle{{node, i}, -1} : Handle{inputs[0], node};
    }
    return Status();
  }

  const Graph& graph_;
  const Trace& trace_;
  const std::set<Endpoint> fed_;
  Graph out_;
  std::vector<NodeId> moved_;                // by node of graph_
  std::map<Endpoint, Handle> handles_;       // by reference in graph_; its nodes are out_'s
  std::map<Endpoint, Endpoint> aliases_;     // Identities of references, by what they read
  std::map<Endpoint, Endpoint> reads_;       // of variables that nothing in the step writes
  std::map<Endpoint, Endpoint> stands_for_;  // for references that are fed
  std::vector<BackEdge> back_edges_;
  std::vector<int32_t> regions_;  // as in ControlFlow; empty: there is one
};

}  // namespace

bool TakesReference(const Graph& graph, NodeId node, size_t input) {
  if (graph.op(node).handle_form() == nullptr) return false;
  const Endpoint source = graph.inputs(node)[input];
  if (graph.op(source.node).handle_form() == nullptr) return false;
  // What gives out references has one tensor for each output.
  const auto& outputs = graph.op(source.node).outputs();
  const auto index = static_cast<size_t>(source.index);
  return index < outputs.size() && outputs[index].is_ref && WantsReference(graph, node)[input];
}

Attrs HandleFormAttrs(const Graph& graph, NodeId node) {
  Attrs result{{std::string(kByReference), true}};
  const auto& renamed = graph.op(node).handle_form()->renamed;
  const OpDef* form = FormOf(graph, node);
  for (const auto& [name, value] : graph.attrs(node).values()) {
    std::string there = name;
    for (const auto& [before, after] : renamed) {
      if (before == name) there = after;
    }
    if (there.starts_with('_') || (form != nullptr && form->FindAttr(there) != nullptr))
      result.Set(there, value);
  }
  return result;
}

Result<WithoutReferences> ReplaceReferences(const Graph& graph, std::span<const Endpoint> feeds,
                                            std::span<const Endpoint> fetches) {
  MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  const Trace trace(graph, order, feeds);
  Replacer replacer(graph, trace, feeds);
  MG_RETURN_IF_ERROR(replacer.Run(order));
  return replacer.Finish(feeds, fetches);
}

}  // namespace monograph
