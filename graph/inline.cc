// The Inliner copies a graph in topological order. In place of a call it adds the needed nodes of
// the function's body, and so for calls within it (Expand). A Frame tells for the nodes of one
// graph (the outer one, or one body per call) which new nodes stand for them. What waited for a
// call waits for all its effects and results, through one NoOp if these are many; a body's nodes
// with effects wait for what their call waited for, while others may begin earlier. Names in
// colocation groups are adapted to the copies.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "graph/function.h"
#include "graph/names.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

// Bounds of what calls become: how deeply they may be nested, for each recurses here, and how many
// nodes their functions may have together.
constexpr int kMostNested = 100;
constexpr int64_t kMostNodes = 1'000'000;

class Inliner {
 public:
  Inliner(const Graph& graph, Graph* out, InlineMap* map, std::vector<NodeId>* inherited)
      : graph_(graph), out_(out), map_(map), inherited_(inherited) {}

  Status Run(const std::function<bool(NodeId)>& should_inline) {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    std::vector<bool> awaited(static_cast<size_t>(graph_.num_nodes()), map_ != nullptr);
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      for (NodeId control : graph_.control_inputs(id)) awaited[static_cast<size_t>(control)] = true;
    }
    Frame top(graph_);
    for (NodeId id : order) {
      if (IsCall(graph_, id) && (!should_inline || should_inline(id))) {
        MG_RETURN_IF_ERROR(Expand(graph_, id, std::string(graph_.name(id)), graph_.device(id), &top,
                                  awaited[static_cast<size_t>(id)], nullptr, nullptr));
      } else {
        const NodeId copy = out_->CopyNode(graph_, id, graph_.name(id), top.Inputs(graph_, id),
                                           top.Controls(graph_, id));
        top.SetNode(graph_, id, copy);
      }
    }
    if (!expanded_.empty()) ReplaceColocationWithCalls();
    if (map_ != nullptr) *map_ = {std::move(top.outputs), std::move(top.done)};
    return Status();
  }

 private:
  // The new nodes of the nodes of one graph.
  struct Frame : InlineMap {
    explicit Frame(const Graph& graph) {
      outputs.resize(static_cast<size_t>(graph.num_nodes()));
      done.resize(static_cast<size_t>(graph.num_nodes()));
    }
    std::vector<Endpoint> Inputs(const Graph& graph, NodeId id) const {
      std::vector<Endpoint> inputs;
      for (const Endpoint input : graph.inputs(id)) {
        inputs.push_back(
            outputs[static_cast<size_t>(input.node)][static_cast<size_t>(input.index)]);
      }
      return inputs;
    }
    std::vector<NodeId> Controls(const Graph& graph, NodeId id) const {
      std::vector<NodeId> controls;
      for (NodeId control : graph.control_inputs(id)) {
        const auto& nodes = done[static_cast<size_t>(control)];
        controls.insert(controls.end(), nodes.begin(), nodes.end());
      }
      return controls;
    }
    void SetNode(const Graph& graph, NodeId id, NodeId copy) {
      for (int i = 0; i < graph.num_outputs(id); ++i)
        outputs[static_cast<size_t>(id)].push_back({copy, i});
      done[static_cast<size_t>(id)] = {copy};
    }
  };

  // The calls that are being expanded, innermost first.
  struct Expansion {
    const std::string& function;
    const Expansion* outer;
    const std::vector<NodeId>& before;  // what its nodes with effects wait for
    int depth;                          // calls around it
  };

  std::string FreeName(std::string_view name) const {
    return monograph::FreeName(name, [this](const std::string& text) {
      return out_->Find(text) >= 0 || graph_.Find(text) >= 0;
    });
  }

  static Status Recursion(const std::string& function, const Expansion* expansion) {
    std::string text = "'" + function + "'";
    for (; expansion != nullptr; expansion = expansion->outer) {
      text = "'" + expansion->function + "' -> " + text;
      if (expansion->function == function) break;
    }
    return InvalidArgument(
        fmt::format("function '{}' calls itself: {}; recursion is not supported", function, text));
  }

  // The nodes that a call of the function runs: those with effects, its results, and what these
  // need.
  std::vector<bool> Needed(const Function& function) const {
    const Graph& body = *function.body;
    std::vector<bool> needed(static_cast<size_t>(body.num_nodes()));
    std::vector<NodeId> open;
    auto need = [&](NodeId id) {
      if (needed[static_cast<size_t>(id)]) return;
      needed[static_cast<size_t>(id)] = true;
      open.push_back(id);
    };
    for (NodeId result : function.results) need(result);
    for (NodeId id = 0; id < body.num_nodes(); ++id) {
      const Function* callee = Callee(body, id, graph_.functions());
      if (body.op(id).stateful() || (callee != nullptr && callee->stateful)) need(id);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const Endpoint input : body.inputs(id)) need(input.node);
      for (NodeId control : body.control_inputs(id)) need(control);
    }
    return needed;
  }

  // `where` and `frame`: the graph that holds the call, and its frame. `device` completes the
  // body's requested devices. `outer_effects` (null: there is no outer call) gets the nodes that
  // stand for this call's effects.
  Status Expand(const Graph& where, NodeId call, const std::string& name, const DeviceName& device,
                Frame* frame, bool awaited, const Expansion* outer,
                std::vector<NodeId>* outer_effects) {
    const std::string& function_name = where.attrs(call).Get<FunctionName>("f").name;
    const Function* function = graph_.functions().Find(function_name);
    if (function == nullptr) {
      return InvalidArgument(fmt::format(
          "node '{}' calls function '{}', which the graph's library lacks", name, function_name));
    }
    for (const Expansion* e = outer; e != nullptr; e = e->outer) {
      if (e->function == function_name) return Recursion(function_name, outer);
    }
    const Graph& body = *function->body;
    const int depth = outer == nullptr ? 0 : outer->depth + 1;
    if (depth > kMostNested) {
      return InvalidArgument(
          fmt::format("function '{}' is called within {} other calls; at most {} "
                      "may be nested",
                      function_name, depth, kMostNested));
    }
    // A long name, which all nodes of the body will begin with, counts as several nodes.
    nodes_ += std::max(1, body.num_nodes()) * static_cast<int64_t>(1 + name.size() / 1024);
    if (nodes_ > kMostNodes) {
      return InvalidArgument(
          fmt::format("the graph's calls of functions make more than {} nodes; "
                      "the last one is of function '{}', within {} other calls",
                      kMostNodes, function_name, depth));
    }
    const auto inputs = frame->Inputs(where, call);
    if (inputs.size() != function->args.size() ||
        where.num_outputs(call) != static_cast<int>(function->results.size())) {
      return InvalidArgument(fmt::format(
          "node '{}' calls function '{}' with {} arguments and {} results; it has {} and {}", name,
          function_name, inputs.size(), where.num_outputs(call), function->args.size(),
          function->results.size()));
    }
    std::vector<NodeId> before = frame->Controls(where, call);
    // The outer call's effects, which this call's are among, wait for what it waits for.
    if (outer != nullptr) before.insert(before.end(), outer->before.begin(), outer->before.end());
    const Expansion here{function_name, outer, before, depth};
    Frame inner(body);
    std::vector<NodeId> effects;
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, body.TopologicalOrder());
    const std::vector<bool> needed = Needed(*function);
    for (NodeId id : order) {
      if (!needed[static_cast<size_t>(id)]) continue;
      if (body.is(id, "_Arg")) {
        const Endpoint input = inputs[static_cast<size_t>(body.attrs(id).Get<int64_t>("index"))];
        inner.outputs[static_cast<size_t>(id)] = {input};
        inner.done[static_cast<size_t>(id)] = {input.node};
        continue;
      }
      if (body.is(id, "_Retval")) {
        inner.done[static_cast<size_t>(id)] = {inner.Inputs(body, id)[0].node};
        continue;
      }
      const std::string node_name = FreeName(name + "/" + std::string(body.name(id)));
      const DeviceName requested = MergeScope(body.device(id), device);
      if (IsCall(body, id)) {
        // `awaited`, since the effects of the inner call are among those of the outer one.
        MG_RETURN_IF_ERROR(Expand(body, id, node_name, requested, &inner, true, &here, &effects));
        continue;
      }
      std::vector<NodeId> controls = inner.Controls(body, id);
      const bool has_effects = body.op(id).stateful();
      if (has_effects) controls.insert(controls.end(), before.begin(), before.end());
      const NodeId copy = out_->CopyNode(body, id, node_name, inner.Inputs(body, id), controls);
      out_->SetDevice(copy, out_->InternDevice(requested));
      if (inherited_ != nullptr && body.device(id).type.empty()) inherited_->push_back(copy);
      RenameColocation(body, name, copy);
      inner.SetNode(body, id, copy);
      if (has_effects) effects.push_back(copy);
    }
    auto& outputs = frame->outputs[static_cast<size_t>(call)];
    std::vector<NodeId> done = effects;
    for (NodeId result : function->results) {
      const Endpoint input = body.inputs(result)[0];
      outputs.push_back(
          inner.outputs[static_cast<size_t>(input.node)][static_cast<size_t>(input.index)]);
      if (std::find(done.begin(), done.end(), outputs.back().node) == done.end())
        done.push_back(outputs.back().node);
    }
    if (awaited && (done.size() > 1 || map_ != nullptr) &&
        out_->registry().Find("NoOp") != nullptr) {
      if (done.empty()) done = before;
      const NodeId all = out_->AddNode({.name = out_->Find(name) < 0 ? name : FreeName(name),
                                        .op = "NoOp",
                                        .control_inputs = done,
                                        .device = device.ToString()})
                             .value();
      done = {all};
    } else if (done.empty()) {
      done = before;
    }
    if (outer_effects != nullptr && !effects.empty()) {
      // The node that stands for the whole call, if there is one, stands for its effects, too.
      const auto& stand = done.size() == 1 ? done : effects;
      outer_effects->insert(outer_effects->end(), stand.begin(), stand.end());
    }
    expanded_[name] = !outputs.empty() ? outputs[0].node : done.empty() ? -1 : done[0];
    frame->done[static_cast<size_t>(call)] = std::move(done);
    return Status();
  }

  // What was colocated with a call is colocated with the node of its first result, or, without
  // results, with the node that stands for the call.
  void ReplaceColocationWithCalls() {
    for (NodeId id = 0; id < out_->num_nodes(); ++id) {
      const AttrValue* value = out_->attrs(id).Find("_class");
      const auto* groups =
          value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
      if (groups == nullptr) continue;
      std::vector<std::string> replaced;
      bool changed = false;
      for (const std::string& group : *groups) {
        const auto found =
            group.starts_with("loc:@") ? expanded_.find(group.substr(5)) : expanded_.end();
        changed |= found != expanded_.end();
        if (found == expanded_.end()) {
          replaced.push_back(group);
        } else if (found->second >= 0 && found->second != id) {
          replaced.push_back("loc:@" + std::string(out_->name(found->second)));
        }
      }
      if (!changed) continue;
      auto attrs = std::make_shared<Attrs>(out_->attrs(id));
      attrs->Set("_class", std::move(replaced));
      out_->SetAttrs(id, std::move(attrs));
    }
  }

  // In a body "loc:@node" names a node of the body: put the call's name in front.
  void RenameColocation(const Graph& body, const std::string& prefix, NodeId copy) {
    const AttrValue* value = out_->attrs(copy).Find("_class");
    const auto* groups = value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
    if (groups == nullptr) return;
    std::vector<std::string> renamed = *groups;
    for (std::string& group : renamed) {
      constexpr std::string_view kPrefix = "loc:@";
      if (!group.starts_with(kPrefix)) continue;
      const std::string other = group.substr(kPrefix.size());
      if (body.Find(other) >= 0) group = std::string(kPrefix) + prefix + "/" + other;
    }
    auto attrs = std::make_shared<Attrs>(out_->attrs(copy));
    attrs->Set("_class", std::move(renamed));
    out_->SetAttrs(copy, std::move(attrs));
  }

  const Graph& graph_;
  Graph* out_;
  InlineMap* map_;
  std::vector<NodeId>* inherited_;
  // A node that stands for each expanded call, by the call's full name.
  std::map<std::string, NodeId> expanded_;
  int64_t nodes_ = 0;  // of the bodies of all calls so far
};

}  // namespace

Result<Graph> InlineFunctions(const Graph& graph, const std::function<bool(NodeId)>& should_inline,
                              InlineMap* map, std::vector<NodeId>* inherited) {
  Graph out(&graph.registry());
  out.Reserve(graph.num_nodes());
  out.ShareFunctions(graph.shared_functions());
  MG_RETURN_IF_ERROR(Inliner(graph, &out, map, inherited).Run(should_inline));
  return out;
}

}  // namespace monograph
