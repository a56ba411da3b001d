// FindControlFlow walks the graph once in topological order. The frame of a node is that of its
// inputs. Its region is the frame and a set of conditions (Guards): a Switch's output adds that the
// predicate is true, or false; a node has the conditions of all its inputs. A Merge of the two
// sides of one predicate drops it again; of any other Merge only what its inputs have in common is
// known, so that it gets a condition of its own. An Exit drops the conditions of its loop: it is
// reached once, whatever the iterations did.
#include "graph/control_flow.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "graph/names.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

// The sets of conditions of a graph together may have so many: each branch within a branch has
// those of all around it.
constexpr size_t kMostGuards = size_t{1} << 24;

// Whether a node has one input, which it hands on as its only output.
bool HandsOn(const Graph& graph, NodeId node) {
  return graph.op(node).reads_only() && graph.inputs(node).size() == 1 &&
         graph.num_outputs(node) == 1;
}

class Finder {
 public:
  explicit Finder(const Graph& graph)
      : graph_(graph), behind_(static_cast<size_t>(graph.num_nodes())) {
    flow_.frames.emplace_back();
    const auto count = static_cast<size_t>(graph.num_nodes());
    flow_.frame.assign(count, 0);
    flow_.region.assign(count, 0);
    flow_.entered.assign(count, -1);
    flow_.guards.assign(count, 0);
    sets_.emplace(Guards(), 0);
    set_of_.push_back(&sets_.begin()->first);
    regions_.emplace(std::pair(0, 0), 0);
  }

  Result<ControlFlow> Run() {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    for (const NodeId id : order) {
      MG_RETURN_IF_ERROR(FindFrame(id));
      FindGuards(id);
      if (guards_ > kMostGuards) {
        return InvalidArgument(
            Node(id) + ": so many branches lie in each other that the nodes up " +
            "to this one have more than " + std::to_string(kMostGuards) + " conditions");
      }
      flow_.region[At(id)] =
          regions_.try_emplace({flow_.frame[At(id)], flow_.guards[At(id)]}, regions_.size())
              .first->second;
    }
    for (const NodeId id : order) MG_RETURN_IF_ERROR(CheckBackEdges(id));
    for (const Guards* set : set_of_) flow_.guard_sets.push_back(*set);
    return std::move(flow_);
  }

 private:
  static size_t At(NodeId id) { return static_cast<size_t>(id); }
  // A node that is fed has lost its inputs (Prune), and is as any other one.
  FlowOp Kind(NodeId id) const {
    const FlowOp kind = graph_.op(id).flow();
    return graph_.inputs(id).empty() && kind != FlowOp::kTrigger ? FlowOp::kNone : kind;
  }
  std::string Node(NodeId id) const { return "node " + graph_.NodeText(id); }

  // ---- frames

  Status FindFrame(NodeId id) {
    NodeId first = -1;
    const auto join = [&](NodeId source) {
      const int32_t frame = flow_.FrameOfOutputs(graph_, source);
      if (first < 0) {
        first = source;
        flow_.frame[At(id)] = frame;
      }
      if (frame == flow_.frame[At(id)]) return Status();
      return InvalidArgument(fmt::format(
          "{} has inputs from different frames: {} comes from {}, {} from {}; what a loop uses "
          "enters it by an Enter, and leaves it by an Exit",
          Node(id), Quoted(graph_.name(first)), flow_.FrameText(flow_.frame[At(id)]),
          Quoted(graph_.name(source)), flow_.FrameText(frame)));
    };
    for (const Endpoint& input : graph_.inputs(id)) {
      if (!graph_.IsBackEdge(input.node, id)) MG_RETURN_IF_ERROR(join(input.node));
    }
    for (const NodeId control : graph_.control_inputs(id)) MG_RETURN_IF_ERROR(join(control));
    const FlowOp kind = Kind(id);
    if (kind == FlowOp::kEnter) return EnterFrame(id);
    if ((kind == FlowOp::kExit || kind == FlowOp::kNextIteration) && flow_.frame[At(id)] == 0) {
      return InvalidArgument(Node(id) + " is in no loop: nothing that it comes from is an Enter");
    }
    return Status();
  }

  Status EnterFrame(NodeId id) {
    const Attrs& attrs = graph_.attrs(id);
    const auto name = attrs.GetOr<std::string>("frame_name", "");
    const int32_t parent = flow_.frame[At(id)];
    const auto [found, added] =
        by_name_.try_emplace(name, static_cast<int32_t>(flow_.frames.size()));
    if (added) {
      flow_.frames.push_back({name, parent, attrs.GetOr<int64_t>("parallel_iterations", 10)});
      first_.push_back(id);
    } else if (flow_.frames[At(found->second)].parent != parent) {
      return InvalidArgument(fmt::format(
          "{} enters {} from {}, but {} enters it from {}; loops of one name are one loop",
          Node(id), flow_.FrameText(found->second), flow_.FrameText(parent),
          Node(first_[At(found->second) - 1]),
          flow_.FrameText(flow_.frames[At(found->second)].parent)));
    }
    flow_.entered[At(id)] = found->second;
    return Status();
  }

  Status CheckBackEdges(NodeId id) const {
    for (const Endpoint& input : graph_.inputs(id)) {
      if (Kind(input.node) != FlowOp::kNextIteration) continue;
      if (Kind(id) != FlowOp::kMerge) {
        return InvalidArgument(
            fmt::format("{} reads {}, which only a Merge may", Node(id), Node(input.node)));
      }
      if (flow_.frame[At(id)] == flow_.frame[At(input.node)]) continue;
      return InvalidArgument(fmt::format("{} is in {}, but its next value, {}, in {}", Node(id),
                                         flow_.FrameText(flow_.frame[At(id)]), Node(input.node),
                                         flow_.FrameText(flow_.frame[At(input.node)])));
    }
    for (const NodeId control : graph_.control_inputs(id)) {
      if (Kind(control) != FlowOp::kNextIteration) continue;
      return InvalidArgument(fmt::format(
          "{} waits for {}, whose output belongs to the next iteration", Node(id), Node(control)));
    }
    return Status();
  }

  // ---- guards

  int32_t Intern(Guards guards) {
    if (guards_ > kMostGuards) return 0;  // Run fails
    const auto [found, added] =
        sets_.try_emplace(std::move(guards), static_cast<int32_t>(set_of_.size()));
    if (added) {
      set_of_.push_back(&found->first);
      guards_ += found->first.size();
    }
    return found->second;
  }
  const Guards& Set(int32_t set) const { return *set_of_[static_cast<size_t>(set)]; }

  int32_t Union(int32_t a, int32_t b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    Guards both;
    std::ranges::set_union(Set(a), Set(b), std::back_inserter(both));
    return Intern(std::move(both));
  }

  // As PredicateOf; many Switches may have one long way back to their predicate.
  Endpoint Predicate(NodeId switch_node) {
    std::vector<NodeId> passed;
    Endpoint e = graph_.inputs(switch_node)[1];
    for (; HandsOn(graph_, e.node); e = graph_.inputs(e.node)[0]) {
      if (const Endpoint known = behind_[At(e.node)]; known.valid()) {
        e = known;
        break;
      }
      passed.push_back(e.node);
    }
    for (const NodeId node : passed) behind_[At(node)] = e;
    return e;
  }

  // The conditions under which an output is not dead.
  int32_t OfOutput(Endpoint e) {
    if (Kind(e.node) != FlowOp::kSwitch) return flow_.guards[At(e.node)];
    return Union(flow_.guards[At(e.node)], Intern({{Predicate(e.node), e.index}}));
  }
  void FindGuards(NodeId id) {
    const auto inputs = graph_.inputs(id);
    int32_t set = 0;
    if (Kind(id) == FlowOp::kMerge) {
      set = OfMerge(id);
    } else if (IsRecv(graph_, id)) {
      if (graph_.attrs(id).GetOr<bool>(kMayBeDead, false)) set = Intern({{{id, 0}, Guard::kAlone}});
    } else {
      for (const Endpoint& input : inputs) set = Union(set, OfOutput(input));
    }
    // Who waits for a Switch waits for no side of it, and a Merge waits for the dead, too.
    if (Kind(id) != FlowOp::kMerge && Kind(id) != FlowOp::kTrigger) {
      for (const NodeId control : graph_.control_inputs(id))
        set = Union(set, flow_.guards[At(control)]);
    }
    if (Kind(id) == FlowOp::kExit) set = WithoutLoop(set, flow_.frame[At(id)]);
    flow_.guards[At(id)] = set;
  }

  int32_t WithoutLoop(int32_t set, int32_t frame) {
    Guards left;
    for (const Guard& guard : Set(set)) {
      if (flow_.frame[At(guard.of.node)] != frame) left.push_back(guard);
    }
    return Intern(std::move(left));
  }

  int32_t OfMerge(NodeId id) {
    std::vector<int32_t> sets;
    for (const Endpoint& input : graph_.inputs(id)) {
      if (!graph_.IsBackEdge(input.node, id)) sets.push_back(OfOutput(input));
    }
    if (sets.empty()) return Intern({{{id, 0}, Guard::kAlone}});
    if (sets.size() == 1) return sets[0];
    Guards common = Set(sets[0]);
    for (const int32_t set : sets) {
      Guards both;
      std::ranges::set_intersection(common, Set(set), std::back_inserter(both));
      common = std::move(both);
    }
    if (sets.size() == 2) {
      Guards a, b;
      std::ranges::set_difference(Set(sets[0]), common, std::back_inserter(a));
      std::ranges::set_difference(Set(sets[1]), common, std::back_inserter(b));
      const bool opposite =
          a.size() == 1 && b.size() == 1 && a[0].of == b[0].of && a[0].value + b[0].value == 1;
      if (opposite) return Intern(std::move(common));
    }
    const Guard own{{id, 0}, Guard::kAlone};
    common.insert(std::ranges::upper_bound(common, own), own);
    return Intern(std::move(common));
  }

  const Graph& graph_;
  std::vector<Endpoint> behind_;  // by node that hands on: what its value comes from
  ControlFlow flow_;
  std::map<std::string, int32_t> by_name_;
  std::vector<NodeId> first_;  // by frame - 1: its first Enter
  std::map<Guards, int32_t> sets_;
  size_t guards_ = 0;                                       // in all of them together
  std::vector<const Guards*> set_of_;                       // by number; 0: the empty one
  std::map<std::pair<int32_t, int32_t>, int32_t> regions_;  // by frame and set
};

}  // namespace

Endpoint PredicateOf(const Graph& graph, NodeId switch_node) {
  Endpoint e = graph.inputs(switch_node)[1];
  while (HandsOn(graph, e.node)) e = graph.inputs(e.node)[0];
  return e;
}

int32_t ControlFlow::FrameOfOutputs(const Graph& graph, NodeId node) const {
  const auto id = static_cast<size_t>(node);
  if (graph.inputs(node).empty()) return frame[id];  // fed
  switch (graph.op(node).flow()) {
    case FlowOp::kEnter:
      return entered[id];
    case FlowOp::kExit:
      return frames[static_cast<size_t>(frame[id])].parent;
    default:
      return frame[id];
  }
}

std::string ControlFlow::FrameText(int32_t frame_index) const {
  if (frame_index == 0) return "no loop";
  return "loop " + Quoted(frames[static_cast<size_t>(frame_index)].name);
}

bool HasControlFlow(const Graph& graph) {
  if (graph.has_flow_ops()) return true;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (IsRecv(graph, id) && graph.attrs(id).GetOr<bool>(kMayBeDead, false)) return true;
  }
  return false;
}

Result<ControlFlow> FindControlFlow(const Graph& graph) { return Finder(graph).Run(); }

}  // namespace monograph
