// Which collectives are joint. A GPU launches its own together with all that leads to them, once
// what these nodes wait for is there, and once the other members are as far; so none may wait,
// however indirectly, for a node of another member. In phases: Find the instances (the nodes of all
// members with the same keys), leave out those that the members describe differently or that are
// not unconditional; look at what each waits for (Waits); of a list of members keep those that no
// other one waits for, and of these the most that wait for the same queues: what a queue gives may
// be what another sum leads to, which would never be launched; of lists that share devices keep the
// longest. Their order is that of the
// longest way from the step's beginning, so that what is ready first comes first.
#include "graph/joint_collectives.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/control_flow.h"
#include "graph/op_def.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

using Members = std::vector<std::string>;
using Keys = std::pair<int64_t, int64_t>;  // of group and instance

bool IsAllReduce(const Graph& graph, NodeId id) { return graph.is(id, "MonographAllReduce"); }

// What meets others in the step, by its attributes.
bool IsCollective(const Graph& graph, NodeId id) {
  return IsAllReduce(graph, id) || graph.attrs(id).Find("timeout_seconds") != nullptr;
}

struct Instance {
  std::vector<NodeId> nodes;   // by rank
  std::set<NodeId> may_block;  // OpDef::MayWait, among what any of them waits for
  int64_t depth = 0;
};

// The most of them that wait for the same nodes that may block.
void KeepThoseOfOneWait(std::vector<Instance>* joint) {
  std::map<std::set<NodeId>, size_t> counts;
  for (const Instance& instance : *joint) ++counts[instance.may_block];
  const auto most = std::ranges::max_element(
      counts, {}, [](const auto& waits_and_count) { return waits_and_count.second; });
  if (most == counts.end()) return;
  std::erase_if(*joint,
                [&](const Instance& instance) { return instance.may_block != most->first; });
}

class Finding {
 public:
  Finding(Graph* graph, std::span<const Endpoint> feeds)
      : graph_(*graph), fed_(feeds.begin(), feeds.end()) {}

  Status Run(bool none) {
    MG_RETURN_IF_ERROR(Find());
    if (instances_.empty() || none) return Status();
    const std::vector<int64_t> depth = Depths();
    std::vector<std::pair<const Members*, std::vector<Instance>>> lists;
    for (auto& [members, found] : instances_) {
      std::vector<Instance> joint;
      std::set<Keys> awaited;  // by others of the list
      for (auto& [keys, instance] : found) {
        if (!IsWhole(members, instance) || !Independent(members, instance, &awaited)) continue;
        for (const NodeId node : instance.nodes)
          instance.depth = std::max(instance.depth, depth[static_cast<size_t>(node)]);
        joint.push_back(std::move(instance));
      }
      std::erase_if(joint, [&](const Instance& instance) {
        return awaited.contains(KeysOf(instance.nodes[0]));
      });
      KeepThoseOfOneWait(&joint);
      std::stable_sort(joint.begin(), joint.end(),
                       [](const Instance& a, const Instance& b) { return a.depth < b.depth; });
      if (!joint.empty()) lists.emplace_back(&members, std::move(joint));
    }
    std::stable_sort(lists.begin(), lists.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    std::set<std::string> taken;
    for (const auto& [members, joint] : lists) {
      if (std::ranges::any_of(*members, [&](const auto& name) { return taken.contains(name); }))
        continue;
      taken.insert(members->begin(), members->end());
      Mark(joint);
    }
    return Status();
  }

 private:
  Status Find() {
    ControlFlow flow;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (!IsAllReduce(graph_, id)) continue;
      if (graph_.attrs(id).Find(kJointPlace) != nullptr) {  // nobody else's to say
        Attrs without = graph_.attrs(id);
        without.Remove(kJointPlace);
        graph_.SetAttrs(id, std::make_shared<const Attrs>(std::move(without)));
      }
      const Attrs& attrs = graph_.attrs(id);
      const auto members = attrs.GetOr<Members>("members", {});
      const auto merge = attrs.GetOr<std::string>("merge_op", "Add");
      if (members.size() < 2 || merge != "Add" ||
          attrs.GetOr<std::string>("final_op", "Id") != "Id" ||
          !std::ranges::all_of(members, [](const std::string& name) {
            return name.find("/device:GPU:") != std::string::npos;
          }))
        continue;
      if (flow.frames.empty() && HasControlFlow(graph_)) {
        MG_ASSIGN_OR_RETURN(flow, FindControlFlow(graph_));
      }
      if (!flow.frames.empty() && flow.region[static_cast<size_t>(id)] != 0) continue;
      instances_[members][KeysOf(id)].nodes.push_back(id);
    }
    return Status();
  }

  // Whether there is one node of each member, and all have the same tensors, of shapes that are
  // known. Puts the nodes in the order of ranks.
  bool IsWhole(const Members& members, Instance& instance) const {
    if (instance.nodes.size() != members.size()) return false;
    std::vector<NodeId> by_rank(members.size(), -1);
    for (const NodeId node : instance.nodes) {
      const auto rank = std::ranges::find(members, graph_.device(node).ToString());
      if (rank == members.end()) return false;
      by_rank[static_cast<size_t>(rank - members.begin())] = node;
    }
    if (std::ranges::count(by_rank, -1) > 0) return false;
    instance.nodes = std::move(by_rank);
    const auto& first = graph_.inputs(instance.nodes[0]);
    return std::ranges::all_of(instance.nodes, [&](NodeId node) {
      const auto& inputs = graph_.inputs(node);
      if (inputs.size() != first.size()) return false;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const PartialShape& shape = graph_.shape(inputs[i]);
        if (!shape.fully_known() || !(shape == graph_.shape(first[i])) ||
            graph_.dtype(inputs[i]) != graph_.dtype(first[i]))
          return false;
      }
      return true;
    });
  }

  // Whether no node of the instance waits for another member's GPU, nor for a collective but those
  // of its list for which all its nodes wait alike: they are noted in `awaited`. Notes what may
  // block it.
  bool Independent(const Members& members, Instance& instance, std::set<Keys>* awaited) const {
    std::vector<std::set<Keys>> before(instance.nodes.size());
    for (size_t rank = 0; rank < instance.nodes.size(); ++rank) {
      for (const NodeId source : Waits(instance.nodes[rank])) {
        const std::string device = graph_.device(source).ToString();
        if (device != members[rank] && std::ranges::find(members, device) != members.end())
          return false;
        if (graph_.op(source).may_wait()) instance.may_block.insert(source);
        if (!IsCollective(graph_, source)) continue;
        if (!IsAllReduce(graph_, source) ||
            graph_.attrs(source).GetOr<Members>("members", {}) != members)
          return false;
        before[rank].insert(KeysOf(source));
      }
      if (before[rank] != before[0]) return false;
    }
    awaited->insert(before[0].begin(), before[0].end());
    return true;
  }

  // All that the node waits for, without itself.
  std::vector<NodeId> Waits(NodeId node) const {
    std::vector<bool> seen(static_cast<size_t>(graph_.num_nodes()), false);
    seen[static_cast<size_t>(node)] = true;
    std::vector<NodeId> found, left{node};
    const auto visit = [&](NodeId source) {
      if (seen[static_cast<size_t>(source)]) return;
      seen[static_cast<size_t>(source)] = true;
      found.push_back(source);
      left.push_back(source);
    };
    while (!left.empty()) {
      const NodeId next = left.back();
      left.pop_back();
      for (const Endpoint& e : graph_.inputs(next)) {
        if (!fed_.contains(e)) visit(e.node);
      }
      for (const NodeId source : graph_.control_inputs(next)) visit(source);
    }
    return found;
  }

  // By node, the number of nodes on the longest way to it.
  std::vector<int64_t> Depths() const {
    const auto count = static_cast<size_t>(graph_.num_nodes());
    std::vector<std::vector<int32_t>> after(count);
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      for (const Endpoint& e : graph_.inputs(id)) {
        if (!graph_.IsBackEdge(e.node, id)) after[static_cast<size_t>(e.node)].push_back(id);
      }
      for (const NodeId source : graph_.control_inputs(id))
        after[static_cast<size_t>(source)].push_back(id);
    }
    const auto targets = [&](int32_t node, const auto& visit) {
      for (const int32_t target : after[static_cast<size_t>(node)]) visit(target);
    };
    std::vector<int64_t> depth(count, 0);
    for (const int32_t node : TopologicalSort(count, NextReady::kFirstIn, targets)) {
      targets(node, [&](int32_t target) {
        int64_t& longest = depth[static_cast<size_t>(target)];
        longest = std::max(longest, depth[static_cast<size_t>(node)] + 1);
      });
    }
    return depth;
  }

  void Mark(const std::vector<Instance>& joint) {
    for (size_t place = 0; place < joint.size(); ++place) {
      for (const NodeId node : joint[place].nodes) {
        Attrs attrs = graph_.attrs(node);
        attrs.Set(kJointPlace, std::vector<int64_t>{static_cast<int64_t>(place),
                                                    static_cast<int64_t>(joint.size())});
        graph_.SetAttrs(node, std::make_shared<const Attrs>(std::move(attrs)));
      }
    }
  }

  Keys KeysOf(NodeId node) const {
    const Attrs& attrs = graph_.attrs(node);
    return {attrs.GetOr<int64_t>("group_key", 0), attrs.GetOr<int64_t>("instance_key", 0)};
  }

  Graph& graph_;
  const std::set<Endpoint> fed_;
  std::map<Members, std::map<Keys, Instance>> instances_;
};

}  // namespace

Status FindJointCollectives(Graph* graph, std::span<const Endpoint> feeds) {
  static const char* const wanted = std::getenv("MONOGRAPH_JOINT_COLLECTIVES");
  const bool none = wanted != nullptr && std::string_view(wanted) == "0";
  return Finding(graph, feeds).Run(none);
}

}  // namespace monograph
