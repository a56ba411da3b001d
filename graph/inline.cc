// The Inliner copies a graph in topological order; in place of a call it adds the needed nodes of
// the function's body (Expand). A Frame tells for the nodes of one graph (the outer one, or one
// body per call) which new nodes stand for them. What waited for a call waits for all its effects
// and results; a body's nodes with effects wait for what their call waited for. If the call is in a
// loop or a branch, so is its body: nodes without inputs wait for the call's inputs (Anchor).
//
// A function that calls itself, from a branch, is unrolled: it stands within itself as often as the
// bounds below allow (LevelsOf), and the call that would go deeper is a node that fails the step
// if it is reached.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "graph/control_flow.h"
#include "graph/function.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

// Bounds of what calls become: how deeply they may be nested, for each recurses here, and how many
// nodes their functions may have together.
constexpr int kMostNested = 100;
constexpr int64_t kMostNodes = 1'000'000;

// Of a call of a function that calls itself: how often it may stand within itself, and how many
// nodes, about, its calls may have together. Two calls per level double the nodes of each level.
constexpr int kMostLevels = 40;
constexpr int64_t kMostUnrolledNodes = 100'000;

// From so many nodes on that a call waits for, one node stands for them.
constexpr size_t kMostAwaited = 64;

// What a copy of the value takes, in nodes.
int64_t WeightOf(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> int64_t {
        using T = std::decay_t<decltype(v)>;
        size_t weight = 0;
        if constexpr (std::is_same_v<T, std::string>) {
          weight = v.size() / 1024;
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          weight = v.size() / 4;
          for (const std::string& text : v) weight += text.size() / 1024;
        } else if constexpr (requires { v.begin(), v.size(); }) {
          weight = v.size() / 16;
        }
        return static_cast<int64_t>(weight);
      },
      value);
}

// What a copy of the node takes, in nodes: 1, and more for one that is large.
int64_t WeightOf(const Graph& graph, NodeId id) {
  const size_t ends = graph.inputs(id).size() + graph.control_inputs(id).size() +
                      static_cast<size_t>(graph.num_outputs(id));
  int64_t weight = 1 + static_cast<int64_t>(ends / 16 + graph.name(id).size() / 1024);
  // Attributes are shared, unless a name in them changes (RenameColocation, RenameLoop).
  if (graph.op(id).flow() == FlowOp::kEnter || graph.attrs(id).Find("_class") != nullptr) {
    for (const auto& [name, value] : graph.attrs(id).values()) weight += WeightOf(value);
  }
  return weight;
}

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
      const bool calls = IsCall(graph_, id) || IsFunctional(graph_, id);
      if (calls && (!should_inline || should_inline(id))) {
        MG_RETURN_IF_ERROR(Expand(graph_, id, std::string(graph_.name(id)), graph_.device(id), &top,
                                  awaited[static_cast<size_t>(id)], nullptr, nullptr));
      } else {
        const NodeId copy = out_->CopyNode(graph_, id, graph_.name(id), top.Inputs(graph_, id),
                                           top.Controls(graph_, id));
        top.SetNode(graph_, id, copy);
      }
    }
    CloseLoops(graph_, top);
    if (!expanded_.empty()) ReplaceColocationWithCalls();
    if (map_ != nullptr) *map_ = {std::move(top.outputs), std::move(top.done)};
    return Status();
  }

  // ExpandCalls, for a graph that is its own copy.
  Status RunInPlace(std::span<const NodeId> calls) {
    Frame top(graph_);
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) top.SetNode(graph_, id, id);
    for (const NodeId call : calls) {
      const std::string name(graph_.name(call));
      const DeviceName device = graph_.device(call);
      std::vector<NodeId> done;
      MG_RETURN_IF_ERROR(Expand(graph_, call, name, device, &top, false, nullptr, &done));
      MG_RETURN_IF_ERROR(HandOn(call, top.outputs[static_cast<size_t>(call)], std::move(done)));
      top.SetNode(graph_, call, call);
      expanded_.erase(name);
    }
    if (!expanded_.empty()) ReplaceColocationWithCalls();
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
        const auto& made = outputs[static_cast<size_t>(input.node)];
        // What a loop's back edge comes from is made later.
        inputs.push_back(made.empty() ? Endpoint() : made[static_cast<size_t>(input.index)]);
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
      outputs[static_cast<size_t>(id)].clear();
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
    const std::vector<NodeId>& anchor;  // what those without inputs wait for, too
    int depth;                          // calls around it
    bool is_branch;                     // of an If, Case or While: may not run
    int levels;                         // LevelsOf the recursion that it is in; 0: in none
  };

  // Loops and branches of a graph; nullptr if it has none.
  Result<const ControlFlow*> FlowOf(const Graph& graph) {
    if (!graph.has_flow_ops()) return nullptr;
    const auto [found, added] = flows_.try_emplace(&graph);
    if (added) {
      MG_ASSIGN_OR_RETURN(found->second, FindControlFlow(graph));
    }
    return &found->second;
  }
  // Whether the node may run never, or several times.
  static bool IsConditional(const ControlFlow* flow, NodeId node) {
    return flow != nullptr && flow->region[static_cast<size_t>(node)] != 0;
  }

  // Nodes that run when the call would, from its inputs: waiting for a Switch is not waiting for
  // one of its outputs.
  Result<std::vector<NodeId>> Anchor(const std::string& name, const std::vector<Endpoint>& inputs,
                                     std::vector<NodeId> anchor) {
    std::unordered_set<NodeId> seen(anchor.begin(), anchor.end());
    for (const Endpoint input : inputs) {
      NodeId node = input.node;
      if (out_->op(node).flow() == FlowOp::kSwitch) {
        MG_ASSIGN_OR_RETURN(node, out_->AddNode({.name = FreeName(name + "/begins"),
                                                 .op = "Identity",
                                                 .inputs = std::span(&input, 1)}));
        out_->SetDevice(node, out_->InternDevice(out_->device(input.node)));
      }
      if (seen.insert(node).second) anchor.push_back(node);
    }
    return anchor;
  }

  // One node in place of many that others wait for: each of those would have an edge from each of
  // these.
  Status Gather(const std::string& name, const DeviceName& device, std::vector<NodeId>* nodes) {
    if (nodes->size() <= kMostAwaited || out_->registry().Find("NoOp") == nullptr) return Status();
    MG_ASSIGN_OR_RETURN(const NodeId all, out_->AddNode({.name = FreeName(name),
                                                         .op = "NoOp",
                                                         .control_inputs = *nodes,
                                                         .device = device.ToString()}));
    *nodes = {all};
    return Status();
  }

  // Makes the call a node that hands on `results`, behind its effects and what it waited for.
  Status HandOn(NodeId call, const std::vector<Endpoint>& results, std::vector<NodeId> behind) {
    const auto before = out_->control_inputs(call);
    behind.insert(behind.end(), before.begin(), before.end());
    auto attrs = std::make_shared<Attrs>();
    if (const AttrValue* groups = out_->attrs(call).Find("_class")) attrs->Set("_class", *groups);
    const std::vector<DType> types = TypesOf(*out_, call);
    if (types.size() == 1) {
      attrs->Set("T", types[0]);
    } else {
      attrs->Set("T", types);
    }
    MG_ASSIGN_OR_RETURN(const OpDef* const op,
                        out_->registry().Require(types.size() == 1 ? "Identity" : "IdentityN"));
    out_->ReplaceOp(call, *op, std::move(attrs), results, behind);
    return Status();
  }

  // In place of effects of which some are on branches, so that they may be dead: a node that runs
  // when the call does, behind all of them.
  Status Outlive(const std::string& name, const DeviceName& device,
                 const std::vector<Endpoint>& inputs, const std::vector<NodeId>& before,
                 std::vector<NodeId>* effects) {
    MG_ASSIGN_OR_RETURN(const NodeId behind, out_->AddNode({.name = FreeName(name + "/ends"),
                                                            .op = "ControlTrigger",
                                                            .control_inputs = *effects,
                                                            .device = device.ToString()}));
    MG_ASSIGN_OR_RETURN(std::vector<NodeId> runs, Anchor(name, inputs, before));
    runs.push_back(behind);
    MG_ASSIGN_OR_RETURN(const NodeId ended, out_->AddNode({.name = FreeName(name + "/ended"),
                                                           .op = "NoOp",
                                                           .control_inputs = runs,
                                                           .device = device.ToString()}));
    *effects = {ended};
    return Status();
  }

  // Connects the copies of Merges with what comes from the iteration before.
  void CloseLoops(const Graph& graph, const Frame& frame) {
    for (NodeId id = 0; graph.has_flow_ops() && id < graph.num_nodes(); ++id) {
      const auto& copies = frame.outputs[static_cast<size_t>(id)];
      if (graph.op(id).flow() != FlowOp::kMerge || copies.empty()) continue;
      const std::vector<Endpoint> inputs = frame.Inputs(graph, id);
      for (size_t i = 0; i < inputs.size(); ++i)
        out_->ReplaceInput(copies[0].node, static_cast<int>(i), inputs[i]);
    }
  }

  // Two calls of one body must not share a loop.
  void RenameLoop(const std::string& prefix, NodeId copy) {
    if (out_->op(copy).flow() != FlowOp::kEnter) return;
    auto attrs = std::make_shared<Attrs>(out_->attrs(copy));
    attrs->Set("frame_name", prefix + "/" + attrs->GetOr<std::string>("frame_name", ""));
    out_->SetAttrs(copy, std::move(attrs));
  }

  std::string FreeName(const std::string& name) {
    const auto taken = [this](const std::string& text) {
      return out_->Find(text) >= 0 || graph_.Find(text) >= 0;
    };
    if (!taken(name)) return name;
    // Where the last search for this name ended: a loop has a Switch for each of its variables.
    int& suffix = next_suffix_[name];
    for (suffix = std::max(suffix, 1);; ++suffix) {
      std::string free = name + "_" + std::to_string(suffix);
      if (!taken(free)) return free;
    }
  }

  // "'f' -> 'g' -> 'f'": how the function that `expansion` calls comes to call itself.
  static std::string Circle(const std::string& function, const Expansion* expansion) {
    std::string text = "'" + function + "'";
    for (; expansion != nullptr; expansion = expansion->outer) {
      text = "'" + expansion->function + "' -> " + text;
      if (expansion->function == function) break;
    }
    return text;
  }

  // How many nodes a call of the function makes, about, if no function stands within itself more
  // than `levels` times. What is above `most`, or nested too deeply, is more than `most`.
  int64_t Weigh(const Function& function, int levels, int64_t most, int depth) {
    int& within = within_[&function];
    if (within > levels) return 1;
    if (depth > kMostNested) return most + 1;
    const Body& body = BodyOf(function);
    int64_t weight = body.weight + body.switches;
    ++within;
    for (size_t i = 0; i < body.callees.size() && weight <= most; ++i)
      weight += Weigh(*body.callees[i], levels, most - weight, depth + 1);
    --within_[&function];
    return weight;
  }

  // How often functions may stand within themselves in a call of this one; 0 if it does not call
  // itself. At least 1, whatever that takes.
  int LevelsOf(const Function& function, int depth) {
    if (!IsRecursive(function)) return 0;
    // Where calls have made many nodes already less is left for each.
    int64_t most = kMostUnrolledNodes;
    while (most > 1 && most > (kMostNodes - nodes_) / 4) most /= 2;
    int& levels = levels_[{&function, most, depth}];
    if (levels > 0) return levels;
    levels = 1;
    while (levels < kMostLevels && Weigh(function, levels + 1, most, depth) <= most) ++levels;
    return levels;
  }

  // Whether it calls itself, perhaps by way of others.
  bool IsRecursive(const Function& function) {
    const auto [found, added] = recursive_.try_emplace(&function, false);
    if (!added) return found->second;
    std::set<const Function*> seen;
    std::vector<const Function*> open{&function};
    while (!open.empty() && !found->second) {
      const Function* const next = open.back();
      open.pop_back();
      for (const Function* callee : BodyOf(*next).callees) {
        found->second |= callee == &function;
        if (seen.insert(callee).second) open.push_back(callee);
      }
    }
    return found->second;
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
      bool effects = body.op(id).stateful();
      for (const Function* callee : FunctionsOf(body, id, graph_.functions()))
        effects = effects || callee->stateful;
      if (effects) need(id);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const Endpoint input : body.inputs(id)) need(input.node);
      for (NodeId control : body.control_inputs(id)) need(control);
    }
    return needed;
  }

  // What is the same in all calls of a function.
  struct Body {
    std::vector<bool> needed;
    int64_t weight = 1;
    int64_t switches = 0;  // what surrounds the branches and loops that it has, about
    std::vector<const Function*> callees;  // one for each call, branch, condition and loop's body
  };
  const Body& BodyOf(const Function& function) {
    const auto [found, added] = bodies_.try_emplace(&function);
    if (added) {
      const Graph& body = *function.body;
      found->second.needed = Needed(function);
      found->second.weight = std::max(1, body.num_nodes());
      for (NodeId id = 0; id < body.num_nodes(); ++id) {
        found->second.weight += WeightOf(body, id) - 1;
        if (!found->second.needed[static_cast<size_t>(id)]) continue;
        if (IsFunctional(body, id)) {
          found->second.switches +=
              6 + static_cast<int64_t>(body.inputs(id).size()) + body.num_outputs(id);
        } else if (!IsCall(body, id)) {
          continue;
        }
        const auto callees = FunctionsOf(body, id, graph_.functions());
        found->second.callees.insert(found->second.callees.end(), callees.begin(), callees.end());
      }
    }
    return found->second;
  }

  // Before a call makes so many nodes more.
  Status Count(int64_t nodes, const std::string& function, int depth) {
    nodes_ += nodes;
    if (nodes_ <= kMostNodes) return Status();
    return InvalidArgument(
        fmt::format("the graph's calls of functions make more than {} nodes; "
                    "the last one is of function '{}', within {} other calls",
                    kMostNodes, function, depth));
  }

  // A body is copied as it is: what the call gives and takes must be of the types that it was made
  // for. Where the graph's shape functions saw the function they have compared some of them.
  Status CheckTypes(const std::string& name, const std::string& function_name,
                    const Function& function, const std::vector<Endpoint>& inputs,
                    const std::vector<DType>& results) const {
    const Graph& body = *function.body;
    const auto wrong = [&](const char* what, size_t i, DType is, DType wanted) {
      return InvalidArgument(
          fmt::format("node '{}' calls function '{}', whose {} {} is of type {}, not {}", name,
                      function_name, what, i, DTypeName(is), DTypeName(wanted)));
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const DType is = body.dtype({function.args[i], 0});
      if (DiffersFrom(inputs[i], is)) return wrong("argument", i, is, out_->dtype(inputs[i]));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const DType is = body.dtype(body.inputs(function.results[i])[0]);
      if (is != results[i] && is != DT_INVALID && results[i] != DT_INVALID)
        return wrong("result", i, is, results[i]);
    }
    return Status();
  }

  // Where the nodes of a call go, and what they wait for (as in Expansion).
  struct Site {
    std::string name;
    DeviceName device;  // completes what nodes of bodies request
    std::vector<NodeId> before, anchor;
    const Expansion* outer;
    bool is_branch = false;  // as in Expansion

    // Of a function whose nodes all run behind `pivot`.
    Site Behind(const char* part, NodeId pivot) const {
      return {name + "/" + part, device, {pivot}, {pivot}, outer, true};
    }
  };
  // What a call became: its results, and the nodes that stand for its effects.
  struct Expanded {
    std::vector<Endpoint> outputs;
    std::vector<NodeId> effects;
  };

  // The nodes of one function's body.
  Result<Expanded> ExpandBody(const Site& site, const std::string& function_name,
                              const std::vector<Endpoint>& inputs,
                              const std::vector<DType>& results) {
    const auto& [name, device, before, anchor, outer, is_branch] = site;
    const Function* function = graph_.functions().Find(function_name);
    if (function == nullptr) {
      return InvalidArgument(fmt::format(
          "node '{}' calls function '{}', which the graph's library lacks", name, function_name));
    }
    int within = 0;
    bool has_end = is_branch;  // whether it may be that it does not call itself
    for (const Expansion* e = outer; e != nullptr; e = e->outer) {
      if (e->function == function_name && !has_end) {
        return InvalidArgument(
            fmt::format("function '{}' calls itself: {}; a recursion ends where an If, a Case or a "
                        "While decides whether to call",
                        function_name, Circle(function_name, outer)));
      }
      within += e->function == function_name ? 1 : 0;
      has_end |= e->is_branch;
    }
    const Graph& body = *function->body;
    const int depth = outer == nullptr ? 0 : outer->depth + 1;
    const int levels =
        outer != nullptr && outer->levels > 0 ? outer->levels : LevelsOf(*function, depth);
    if (depth > kMostNested) {
      return InvalidArgument(
          fmt::format("function '{}' is called within {} other calls; at most {} "
                      "may be nested",
                      function_name, depth, kMostNested));
    }
    if (inputs.size() != function->args.size() || results.size() != function->results.size()) {
      return InvalidArgument(fmt::format(
          "node '{}' calls function '{}' with {} arguments and {} results; it has {} and {}", name,
          function_name, inputs.size(), results.size(), function->args.size(),
          function->results.size()));
    }
    MG_RETURN_IF_ERROR(CheckTypes(name, function_name, *function, inputs, results));
    if (levels > 0 && within > levels) return EndRecursion(site, *function, inputs, levels);
    // A long name, which all nodes of the body will begin with, counts as several nodes.
    const Body& known = BodyOf(*function);
    MG_RETURN_IF_ERROR(
        Count(known.weight * static_cast<int64_t>(1 + name.size() / 1024), function_name, depth));
    const Expansion here{function_name, outer, before, anchor, depth, is_branch, levels};
    Frame inner(body);
    std::vector<NodeId> effects;
    bool maybe_dead = false;  // some of the effects
    MG_ASSIGN_OR_RETURN(const ControlFlow* const flow, FlowOf(body));
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, body.TopologicalOrder());
    for (NodeId id : order) {
      if (!known.needed[static_cast<size_t>(id)]) continue;
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
      if (IsCall(body, id) || IsFunctional(body, id)) {
        // `awaited`, since the effects of the inner call are among those of the outer one.
        const bool looped_call = flow != nullptr && flow->frame[static_cast<size_t>(id)] != 0;
        const size_t before_it = effects.size();
        MG_RETURN_IF_ERROR(Expand(body, id, node_name, requested, &inner, true, &here,
                                  looped_call ? nullptr : &effects));
        maybe_dead |= effects.size() > before_it && IsConditional(flow, id);
        continue;
      }
      std::vector<NodeId> controls = inner.Controls(body, id);
      // Of a loop its entries and exits stand for what is in it.
      const FlowOp kind = body.op(id).flow();
      const bool in_loop = flow != nullptr && flow->frame[static_cast<size_t>(id)] != 0;
      const bool has_effects =
          flow != nullptr && flow->FrameOfOutputs(body, id) == 0 && kind == FlowOp::kExit
              ? function->stateful
              : body.op(id).stateful() && !in_loop;
      const bool begins = !in_loop && (body.op(id).stateful() || kind == FlowOp::kEnter);
      if (begins) controls.insert(controls.end(), before.begin(), before.end());
      if (begins || (body.inputs(id).empty() && !in_loop))
        controls.insert(controls.end(), anchor.begin(), anchor.end());
      const NodeId copy = out_->CopyNode(body, id, node_name, inner.Inputs(body, id), controls);
      out_->SetDevice(copy, out_->InternDevice(requested));
      if (inherited_ != nullptr && body.device(id).type.empty()) inherited_->push_back(copy);
      RenameColocation(body, name, copy);
      RenameLoop(name, copy);
      inner.SetNode(body, id, copy);
      if (!has_effects) continue;
      effects.push_back(copy);
      maybe_dead |= IsConditional(flow, id);
    }
    CloseLoops(body, inner);
    if (maybe_dead) MG_RETURN_IF_ERROR(Outlive(name, device, inputs, before, &effects));
    MG_RETURN_IF_ERROR(Gather(name + "/effects", device, &effects));
    Expanded made{.outputs = {}, .effects = std::move(effects)};
    for (NodeId result : function->results) {
      const Endpoint input = body.inputs(result)[0];
      made.outputs.push_back(
          inner.outputs[static_cast<size_t>(input.node)][static_cast<size_t>(input.index)]);
    }
    return made;
  }

  // In place of a call that would go too deep: a node that fails when it runs.
  Result<Expanded> EndRecursion(const Site& site, const Function& function,
                                const std::vector<Endpoint>& inputs, int levels) {
    MG_RETURN_IF_ERROR(Count(1, function.name, site.outer->depth + 1));
    std::vector<DType> takes, gives;
    for (const NodeId arg : function.args) takes.push_back(function.body->dtype({arg, 0}));
    for (const NodeId result : function.results)
      gives.push_back(function.body->dtype(function.body->inputs(result)[0]));
    std::vector<NodeId> controls = site.before;
    controls.insert(controls.end(), site.anchor.begin(), site.anchor.end());
    const std::string text = fmt::format(
        "function '{}' calls itself ({}) more than {} times within itself; a recursion is unrolled "
        "{} times at most, and as far as {} nodes go",
        function.name, Circle(function.name, site.outer), levels, kMostLevels, kMostUnrolledNodes);
    const size_t results = gives.size();
    MG_ASSIGN_OR_RETURN(
        const NodeId node,
        AddNode(site, "too_deep", kRecursionEndOp, inputs, controls,
                {{"Tin", std::move(takes)}, {"Tout", std::move(gives)}, {"text", text}}));
    Expanded made;
    for (size_t i = 0; i < results; ++i) made.outputs.push_back({node, static_cast<int>(i)});
    if (results == 0) made.effects = {node};
    return made;
  }

  // ---- If, Case, While, For

  Result<NodeId> AddNode(const Site& site, std::string_view name, std::string_view op,
                         const std::vector<Endpoint>& inputs,
                         const std::vector<NodeId>& controls = {}, Attrs attrs = {}) {
    MG_ASSIGN_OR_RETURN(const NodeId node,
                        out_->AddNode({.name = FreeName(fmt::format("{}/{}", site.name, name)),
                                       .op = op,
                                       .inputs = inputs,
                                       .control_inputs = controls,
                                       .attrs = std::make_shared<const Attrs>(std::move(attrs)),
                                       .device = site.device.ToString()}));
    if (inherited_ != nullptr) inherited_->push_back(node);
    return node;
  }

  // Whether the scalar is true: a number, if it is not zero.
  Result<Endpoint> Truth(const Site& site, Endpoint scalar) {
    const DType dtype = out_->dtype(scalar);
    if (dtype == DT_BOOL || dtype == DT_INVALID) return scalar;
    if (!IsPlainData(dtype)) {
      return Unimplemented(fmt::format("node '{}' asks whether a {} is true; a bool or a number is",
                                       site.name, DTypeName(dtype)));
    }
    MG_ASSIGN_OR_RETURN(const NodeId cast,
                        AddNode(site, "Cast", "Cast", {scalar}, {}, {{"DstT", DT_BOOL}}));
    return Endpoint{cast, 0};
  }

  // The type of a value. What a node of an unknown op gives has none: the call says what it is.
  static Attrs TypeIs(DType dtype) { return {{"T", dtype}}; }

  // The inputs, of these types, alive on one side of `pred`, which waits for what the site waits
  // for; and for each side a node that runs only there.
  struct Split {
    std::array<std::vector<Endpoint>, 2> inputs;  // false, true
    std::array<NodeId, 2> pivot;
  };
  Result<Split> SplitBy(const Site& site, Endpoint pred, const std::vector<Endpoint>& inputs,
                        const std::vector<DType>& types) {
    const std::vector<NodeId> controls = Awaited(site);
    Split split;
    MG_ASSIGN_OR_RETURN(const NodeId by,
                        AddNode(site, "Switch", "Switch", {pred, pred}, controls, TypeIs(DT_BOOL)));
    for (const int side : {0, 1}) {
      MG_ASSIGN_OR_RETURN(split.pivot[static_cast<size_t>(side)],
                          AddNode(site, "pivot", "Identity", {Endpoint{by, side}}));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      MG_ASSIGN_OR_RETURN(const NodeId node, AddNode(site, "Switch", "Switch", {inputs[i], pred},
                                                     controls, TypeIs(types[i])));
      for (const int side : {0, 1}) split.inputs[static_cast<size_t>(side)].push_back({node, side});
    }
    return split;
  }

  bool DiffersFrom(Endpoint value, DType dtype) const {
    return out_->dtype(value) != dtype && out_->dtype(value) != DT_INVALID && dtype != DT_INVALID;
  }

  // The results of the side that was taken.
  Result<Expanded> Join(const Site& site, const Graph& where, NodeId call, const Split& split,
                        const std::array<Expanded, 2>& sides) {
    Expanded made;
    for (size_t i = 0; i < sides[0].outputs.size(); ++i) {
      const Endpoint no = sides[0].outputs[i], yes = sides[1].outputs[i];
      const Endpoint result{call, static_cast<int>(i)};
      if (DiffersFrom(no, out_->dtype(yes))) {
        return InvalidArgument(
            fmt::format("node '{}': result {} is {} on one branch and {} on another", site.name, i,
                        DTypeName(out_->dtype(yes)), DTypeName(out_->dtype(no))));
      }
      MG_ASSIGN_OR_RETURN(const NodeId merge, AddNode(site, "Merge", "Merge", {no, yes}, {},
                                                      TypeIs(where.dtype(result))));
      out_->SetShape({merge, 0}, where.shape(result));
      made.outputs.push_back({merge, 0});
    }
    if (sides[0].effects.empty() && sides[1].effects.empty()) return made;
    std::vector<Endpoint> ended;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      MG_ASSIGN_OR_RETURN(const NodeId node,
                          AddNode(site, "ended", "Identity", {Endpoint{split.pivot[side], 0}},
                                  sides[side].effects));
      ended.push_back({node, 0});
    }
    MG_ASSIGN_OR_RETURN(const NodeId merge, AddNode(site, "ended", "Merge", ended));
    made.effects = {merge};
    return made;
  }

  Result<Expanded> ExpandIf(const Site& site, const Graph& where, NodeId call,
                            const std::vector<Endpoint>& inputs) {
    MG_ASSIGN_OR_RETURN(const Endpoint pred, Truth(site, inputs[0]));
    MG_ASSIGN_OR_RETURN(const Split split,
                        SplitBy(site, pred, {inputs.begin() + 1, inputs.end()},
                                where.attrs(call).Get<std::vector<DType>>("Tin")));
    std::array<Expanded, 2> sides;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const char* const part = side == 0 ? "else" : "then";
      const auto& name =
          where.attrs(call).Get<FunctionName>(side == 0 ? "else_branch" : "then_branch").name;
      MG_ASSIGN_OR_RETURN(sides[side], ExpandBody(site.Behind(part, split.pivot[side]), name,
                                                  split.inputs[side], TypesOf(where, call)));
    }
    return Join(site, where, call, split, sides);
  }

  // The types of a call's results.
  static std::vector<DType> TypesOf(const Graph& where, NodeId call) {
    std::vector<DType> types;
    for (int i = 0; i < where.num_outputs(call); ++i) types.push_back(where.dtype({call, i}));
    return types;
  }

  // One branch after the other is split off, if it is the index; the last one stands for all
  // others. Then, from there on back, each is joined with those behind it.
  Result<Expanded> ExpandCase(const Site& site, const Graph& where, NodeId call,
                              std::vector<Endpoint> inputs) {
    const auto& branches = where.attrs(call).Get<std::vector<FunctionName>>("branches");
    const std::vector<DType> results = TypesOf(where, call);
    const auto part = [](size_t i) { return "branch" + std::to_string(i); };
    const int depth = site.outer == nullptr ? 0 : site.outer->depth + 1;
    auto types = where.attrs(call).Get<std::vector<DType>>("Tin");
    types.insert(types.begin(), DT_INT32);
    std::vector<Split> splits;
    std::vector<Site> sites{site};
    while (splits.size() + 1 < branches.size()) {
      const size_t i = splits.size();
      const Site& here = sites.back();
      MG_RETURN_IF_ERROR(Count(static_cast<int64_t>(4 + inputs.size()), branches[i].name, depth));
      const Attrs value{{"dtype", DT_INT32}, {"value", Tensor::Scalar(static_cast<int32_t>(i))}};
      MG_ASSIGN_OR_RETURN(const NodeId number,
                          AddNode(here, part(i), "Const", {}, Awaited(here), value));
      MG_ASSIGN_OR_RETURN(const NodeId is_it,
                          AddNode(here, part(i), "Equal", {inputs[0], Endpoint{number, 0}}));
      MG_ASSIGN_OR_RETURN(Split split, SplitBy(here, {is_it, 0}, inputs, types));
      inputs = split.inputs[0];
      Site others = site;
      others.before = others.anchor = {split.pivot[0]};
      sites.push_back(std::move(others));
      splits.push_back(std::move(split));
    }
    Site last = sites.back();
    last.name += "/" + part(splits.size());
    last.is_branch = branches.size() > 1;
    MG_ASSIGN_OR_RETURN(Expanded made, ExpandBody(last, branches.back().name,
                                                  {inputs.begin() + 1, inputs.end()}, results));
    for (size_t i = splits.size(); i-- > 0;) {
      const std::vector<Endpoint>& taken = splits[i].inputs[1];
      std::array<Expanded, 2> sides{std::move(made), {}};
      MG_ASSIGN_OR_RETURN(sides[1],
                          ExpandBody(sites[i].Behind(part(i).c_str(), splits[i].pivot[1]),
                                     branches[i].name, {taken.begin() + 1, taken.end()}, results));
      MG_ASSIGN_OR_RETURN(made, Join(sites[i], where, call, splits[i], sides));
    }
    return made;
  }

  //   input ─► Enter ─► Merge ─► cond ─► LoopCond
  //                      ▲ │               │
  //                      │ └──► Switch ◄───┘
  //                      │       │   └─► Exit ─► result
  //      NextIteration ──┘       ▼
  //            └──────────────  body
  //
  // What is constant enters all iterations, and is its own result. `own` variables before those of
  // the call, which has `types`, are the expansion's.
  struct LoopVariables {
    std::vector<Endpoint> start;
    std::vector<DType> types;
    std::vector<PartialShape> shapes;
    std::vector<bool> constant;
    size_t own = 0;
  };
  // From the variables' values: whether the loop goes on (one output), and the next values.
  using Ask = std::function<Result<Expanded>(const std::vector<Endpoint>& values)>;
  using Next = std::function<Result<Expanded>(NodeId pivot, const std::vector<Endpoint>& values)>;
  Result<Expanded> ExpandLoop(const Site& site, const LoopVariables& variables, int64_t parallel,
                              const Ask& ask, const Next& next_of) {
    const auto& [inputs, types, shapes, constant, own] = variables;
    const size_t count = inputs.size();
    const auto first = static_cast<size_t>(std::ranges::find(constant, false) - constant.begin());
    if (first == count)
      return InvalidArgument(fmt::format("node '{}': no variable of the loop changes", site.name));
    const std::vector<NodeId> controls = Awaited(site);
    std::vector<Endpoint> values;
    for (size_t i = 0; i < count; ++i) {
      const Attrs enters{{"T", types[i]},
                         {"frame_name", site.name},
                         {"is_constant", bool{constant[i]}},
                         {"parallel_iterations", parallel}};
      MG_ASSIGN_OR_RETURN(NodeId node,
                          AddNode(site, "Enter", "Enter", {inputs[i]}, controls, enters));
      if (!constant[i]) {
        MG_ASSIGN_OR_RETURN(
            node, AddNode(site, "Merge", "Merge", {Endpoint{node, 0}, Endpoint{node, 0}}));
        out_->SetShape({node, 0}, shapes[i]);
      }
      values.push_back({node, 0});
    }
    MG_ASSIGN_OR_RETURN(const Expanded asked, ask(values));
    MG_ASSIGN_OR_RETURN(const Endpoint truth, Truth(site, asked.outputs[0]));
    MG_ASSIGN_OR_RETURN(const NodeId goes_on,
                        AddNode(site, "LoopCond", "LoopCond", {truth}, asked.effects));
    std::vector<Endpoint> stay;
    Expanded made{.outputs = inputs, .effects = {}};
    for (size_t i = 0; i < count; ++i) {
      MG_ASSIGN_OR_RETURN(const NodeId node,
                          AddNode(site, "Switch", "Switch", {values[i], Endpoint{goes_on, 0}}));
      stay.push_back({node, 1});
      if (constant[i]) continue;
      MG_ASSIGN_OR_RETURN(const NodeId exit, AddNode(site, "Exit", "Exit", {Endpoint{node, 0}}));
      made.outputs[i] = {exit, 0};
    }
    MG_ASSIGN_OR_RETURN(const NodeId pivot, AddNode(site, "pivot", "Identity", {stay[first]}));
    MG_ASSIGN_OR_RETURN(const Expanded next, next_of(pivot, stay));
    for (size_t i = 0; i < count; ++i) {
      if (constant[i]) continue;
      if (DiffersFrom(next.outputs[i], types[i])) {
        return InvalidArgument(fmt::format(
            "node '{}': variable {} of the loop is {}, but its body gives {}", site.name, i - own,
            DTypeName(types[i]), DTypeName(out_->dtype(next.outputs[i]))));
      }
      MG_ASSIGN_OR_RETURN(const NodeId node,
                          AddNode(site, "NextIteration", "NextIteration", {next.outputs[i]},
                                  next.effects, TypeIs(types[i])));
      out_->ReplaceInput(values[i].node, 1, {node, 0});
      if (!next.effects.empty() || !asked.effects.empty())
        made.effects.push_back(made.outputs[i].node);
    }
    made.outputs.erase(made.outputs.begin(),
                       made.outputs.begin() + static_cast<std::ptrdiff_t>(own));
    return made;
  }

  // What a node without inputs waits for that stands beside the call.
  static std::vector<NodeId> Awaited(const Site& site) {
    std::vector<NodeId> controls = site.before;
    controls.insert(controls.end(), site.anchor.begin(), site.anchor.end());
    return controls;
  }

  // The shapes of a call's results.
  static std::vector<PartialShape> ShapesOf(const Graph& where, NodeId call) {
    std::vector<PartialShape> shapes;
    for (int i = 0; i < where.num_outputs(call); ++i) shapes.push_back(where.shape({call, i}));
    return shapes;
  }

  Result<Expanded> ExpandWhile(const Site& site, const Graph& where, NodeId call,
                               const std::vector<Endpoint>& inputs) {
    const Attrs& attrs = where.attrs(call);
    const std::string &cond = attrs.Get<FunctionName>("cond").name,
                      &body = attrs.Get<FunctionName>("body").name;
    const auto& types = attrs.Get<std::vector<DType>>("T");
    const LoopVariables variables{inputs, types, ShapesOf(where, call),
                                  HandedOn(body, inputs.size(), 0), 0};
    return ExpandLoop(
        site, variables, attrs.Get<int64_t>("parallel_iterations"),
        [&](const std::vector<Endpoint>& values) {
          const auto changes = std::ranges::find(variables.constant, false);
          const auto first = static_cast<size_t>(changes - variables.constant.begin());
          return ExpandBody(site.Behind("cond", values[first].node), cond, values, {DT_INVALID});
        },
        [&](NodeId pivot, const std::vector<Endpoint>& values) {
          return ExpandBody(site.Behind("body", pivot), body, values, types);
        });
  }

  // A loop over a number, which comes first, then the limit, the step and whether it goes up; these
  // are constant. As TensorFlow does, it refuses a step that leads away from the limit.
  Result<Expanded> ExpandFor(const Site& site, const Graph& where, NodeId call,
                             const std::vector<Endpoint>& inputs) {
    const Attrs& attrs = where.attrs(call);
    const std::string& body = attrs.Get<FunctionName>("body").name;
    const auto& types = attrs.Get<std::vector<DType>>("T");
    constexpr size_t kOwn = 4;
    const Endpoint start = inputs[0], limit = inputs[1], delta = inputs[2];
    const auto make = [&](const char* op, const std::vector<Endpoint>& of) -> Result<Endpoint> {
      MG_ASSIGN_OR_RETURN(const NodeId node, AddNode(site, op, op, of));
      return Endpoint{node, 0};
    };
    const auto goes_on = [&](Endpoint at, Endpoint end, Endpoint up) -> Result<Endpoint> {
      MG_ASSIGN_OR_RETURN(const Endpoint below, make("Less", {at, end}));
      MG_ASSIGN_OR_RETURN(const Endpoint above, make("Greater", {at, end}));
      return make("SelectV2", {up, below, above});
    };
    const auto constant = [&](DType dtype, Tensor value) {
      return AddNode(site, "Const", "Const", {}, Awaited(site),
                     {{"dtype", dtype}, {"value", std::move(value)}});
    };
    MG_ASSIGN_OR_RETURN(const NodeId zero, constant(DT_INT32, Tensor::Scalar(0)));
    MG_ASSIGN_OR_RETURN(const Endpoint up, make("Greater", {delta, Endpoint{zero, 0}}));
    MG_ASSIGN_OR_RETURN(const Endpoint down, make("Less", {delta, Endpoint{zero, 0}}));
    MG_ASSIGN_OR_RETURN(const Endpoint moves, make("LogicalOr", {up, down}));
    MG_ASSIGN_OR_RETURN(const Endpoint begins, goes_on(start, limit, up));
    MG_ASSIGN_OR_RETURN(const Endpoint nears, make("LogicalAnd", {moves, begins}));
    MG_ASSIGN_OR_RETURN(const Endpoint is_there, make("Equal", {start, limit}));
    MG_ASSIGN_OR_RETURN(const Endpoint fine, make("LogicalOr", {nears, is_there}));
    MG_ASSIGN_OR_RETURN(const NodeId text,
                        constant(DT_STRING, Tensor::String("Invalid start/limit/delta:")));
    const std::vector<DType> said{DT_STRING, DT_INT32, DT_INT32, DT_INT32};
    MG_ASSIGN_OR_RETURN(const NodeId check, AddNode(site, "Assert", "Assert",
                                                    {fine, Endpoint{text, 0}, start, limit, delta},
                                                    Awaited(site), {{"T", said}}));
    Site checked = site;
    checked.before.push_back(check);

    LoopVariables variables{{start, limit, delta, up},
                            {DT_INT32, DT_INT32, DT_INT32, DT_BOOL},
                            std::vector<PartialShape>(kOwn, PartialShape::Scalar()),
                            {false, true, true, true},
                            kOwn};
    const std::vector<bool> handed = HandedOn(body, types.size(), 1);
    for (size_t i = 0; i < types.size(); ++i) {
      variables.start.push_back(inputs[i + 3]);
      variables.types.push_back(types[i]);
      variables.shapes.push_back(where.shape({call, static_cast<int>(i)}));
      variables.constant.push_back(handed[i]);
    }
    constexpr int64_t kParallelIterations = 10;
    return ExpandLoop(
        checked, variables, kParallelIterations,
        [&](const std::vector<Endpoint>& values) -> Result<Expanded> {
          MG_ASSIGN_OR_RETURN(const Endpoint truth, goes_on(values[0], values[1], values[3]));
          return Expanded{.outputs = {truth}, .effects = {}};
        },
        [&](NodeId pivot, const std::vector<Endpoint>& values) -> Result<Expanded> {
          std::vector<Endpoint> args{values[0]};
          args.insert(args.end(), values.begin() + kOwn, values.end());
          MG_ASSIGN_OR_RETURN(Expanded next,
                              ExpandBody(site.Behind("body", pivot), body, args, types));
          MG_ASSIGN_OR_RETURN(const Endpoint number, make("AddV2", {values[0], values[2]}));
          next.outputs.insert(next.outputs.begin(), {number, values[1], values[2], values[3]});
          return next;
        });
  }

  // Which of `count` arguments behind the first `skip` are the function's results, in their order.
  std::vector<bool> HandedOn(const std::string& name, size_t count, size_t skip) const {
    std::vector<bool> handed(count);
    const Function* function = graph_.functions().Find(name);
    if (function == nullptr || function->args.size() != count + skip ||
        function->results.size() != count)
      return handed;  // ExpandBody says so
    for (size_t i = 0; i < count; ++i) {
      handed[i] = function->body->inputs(function->results[i])[0].node == function->args[i + skip];
    }
    return handed;
  }

  // `where` and `frame`: the graph that holds the call, and its frame. `outer_effects` (null: there
  // is no outer call) gets the nodes that stand for this call's effects.
  Status Expand(const Graph& where, NodeId call, const std::string& name, const DeviceName& device,
                Frame* frame, bool awaited, const Expansion* outer,
                std::vector<NodeId>* outer_effects) {
    const auto inputs = frame->Inputs(where, call);
    Site site{name, device, frame->Controls(where, call), {}, outer, false};
    std::vector<NodeId>& before = site.before;
    MG_ASSIGN_OR_RETURN(const ControlFlow* const around, FlowOf(where));
    const bool looped = around != nullptr && around->frame[static_cast<size_t>(call)] != 0;
    // The outer call's effects, which this call's are among, wait for what it waits for; those of a
    // loop by what enters it.
    if (outer != nullptr && !looped)
      before.insert(before.end(), outer->before.begin(), outer->before.end());
    MG_RETURN_IF_ERROR(Gather(name + "/before", device, &before));
    if (IsConditional(around, call)) {
      MG_ASSIGN_OR_RETURN(site.anchor, Anchor(name, inputs, before));
    } else if (outer != nullptr) {
      site.anchor = outer->anchor;
    }
    MG_RETURN_IF_ERROR(Gather(name + "/anchor", device, &site.anchor));
    Result<Expanded> made =
        IsCall(where, call) ? ExpandBody(site, where.attrs(call).Get<FunctionName>("f").name,
                                         inputs, TypesOf(where, call))
        : where.attrs(call).Find("then_branch") != nullptr ? ExpandIf(site, where, call, inputs)
        : where.attrs(call).Find("branches") != nullptr    ? ExpandCase(site, where, call, inputs)
        : where.is(call, "For")                            ? ExpandFor(site, where, call, inputs)
                                                           : ExpandWhile(site, where, call, inputs);
    if (!made.ok()) return made.status();
    auto& outputs = frame->outputs[static_cast<size_t>(call)];
    outputs = std::move(made->outputs);
    const std::vector<NodeId>& effects = made->effects;
    std::vector<NodeId> done = effects;
    std::unordered_set<NodeId> seen(done.begin(), done.end());
    for (const Endpoint output : outputs) {
      if (seen.insert(output.node).second) done.push_back(output.node);
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
  std::map<const Graph*, ControlFlow> flows_;  // of graphs that have any
  std::map<const Function*, Body> bodies_;
  std::map<const Function*, bool> recursive_;
  std::map<const Function*, int> within_;  // Weigh: how often it stands within itself
  std::map<std::tuple<const Function*, int64_t, int>, int> levels_;
  std::unordered_map<std::string, int> next_suffix_;
  // A node that stands for each expanded call, by the call's full name.
  std::map<std::string, NodeId> expanded_;
  int64_t nodes_ = 0;  // that all calls so far have made, more or less (WeightOf)
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

Status ExpandCalls(Graph* graph, std::span<const NodeId> calls) {
  return Inliner(*graph, graph, nullptr, nullptr).RunInPlace(calls);
}

}  // namespace monograph
