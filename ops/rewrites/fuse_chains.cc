#include "ops/rewrites/fuse_chains.h"

#include <algorithm>
#include <string>

#include "ops/elementwise/chain_ops.h"
#include "ops/rewrites/rewrite.h"

namespace monograph {
namespace {

using ops::elementwise::FindChainOp;
using ops::elementwise::kMostInputs;
using ops::elementwise::kMostSteps;

class ChainFuser {
 public:
  explicit ChainFuser(const Graph& graph)
      : graph_(graph),
        consumers_(graph),
        absorbed_(static_cast<size_t>(graph.num_nodes())),
        chains_(absorbed_.size()) {}

  // True if there is anything to do.
  Result<bool> Find() {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    bool found = false;
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      if (absorbed_[static_cast<size_t>(*id)] || !Fits(*id)) continue;
      std::vector<NodeId> chain = ChainThatEndsWith(*id);
      if (chain.size() < 2) continue;
      found = true;
      for (NodeId member : chain) absorbed_[static_cast<size_t>(member)] = member != *id;
      chains_[static_cast<size_t>(*id)] = std::move(chain);
    }
    return found;
  }

  Result<Graph> Run() {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    Rewrite out(graph_);
    for (NodeId id : order) {
      if (absorbed_[static_cast<size_t>(id)]) continue;
      if (chains_[static_cast<size_t>(id)].empty()) {
        out.Copy(id);
      } else {
        MG_RETURN_IF_ERROR(Add(id, &out));
      }
    }
    return out.Finish();
  }

 private:
  bool Fits(NodeId id) const {
    int operands = 0;
    if (graph_.device(id).type != kGpu || FindChainOp(graph_.op(id).name(), &operands) < 0)
      return false;
    return IsFloating(graph_.dtype({id, 0}));
  }

  // The node that takes all that `id` gives, if both can be steps of one chain; -1 otherwise.
  NodeId NextOf(NodeId id) const {
    const auto edges = consumers_.of(id);
    if (edges.size() != 1 || edges[0].input < 0) return -1;
    const NodeId next = edges[0].target;
    const bool alike = Fits(next) && graph_.device_index(id) == graph_.device_index(next) &&
                       graph_.dtype({id, 0}) == graph_.dtype({next, 0}) &&
                       graph_.shape({id, 0}).known_rank() &&
                       graph_.shape({id, 0}) == graph_.shape({next, 0});
    return alike ? next : -1;
  }

  // From the first step on; as long as it may be.
  std::vector<NodeId> ChainThatEndsWith(NodeId last) const {
    std::vector<NodeId> chain{last};
    size_t inputs = graph_.inputs(last).size();
    while (chain.size() < static_cast<size_t>(kMostSteps)) {
      NodeId before = -1;
      for (const Endpoint& input : graph_.inputs(chain.back())) {
        if (before < 0 && Fits(input.node) && NextOf(input.node) == chain.back())
          before = input.node;
      }
      if (before < 0) break;
      inputs += graph_.inputs(before).size() - 1;
      if (inputs > static_cast<size_t>(kMostInputs)) break;
      chain.push_back(before);
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  Status Add(NodeId last, Rewrite* out) {
    const std::vector<NodeId>& chain = chains_[static_cast<size_t>(last)];
    std::vector<Endpoint> inputs{out->Map(graph_.inputs(chain[0])[0])};
    std::vector<std::string> ops;
    std::vector<int64_t> operand, operand_first;
    for (size_t i = 0; i < chain.size(); ++i) {
      const auto sources = graph_.inputs(chain[i]);
      ops.push_back(graph_.op(chain[i]).name());
      // Which input is the value: the first of the first step, else the step before.
      const bool second = i > 0 && sources.size() == 2 && sources[0].node != chain[i - 1];
      operand_first.push_back(second ? 1 : 0);
      operand.push_back(sources.size() == 2 ? static_cast<int64_t>(inputs.size()) : -1);
      if (sources.size() == 2) inputs.push_back(out->Map(sources[second ? 0 : 1]));
    }
    const DType dtype = graph_.dtype({last, 0});
    auto attrs = std::make_shared<const Attrs>(Attrs{{"T", dtype},
                                                     {"N", static_cast<int64_t>(inputs.size())},
                                                     {"ops", std::move(ops)},
                                                     {"operand", std::move(operand)},
                                                     {"operand_first", std::move(operand_first)}});
    MG_ASSIGN_OR_RETURN(const NodeId id,
                        out->Add(last, "_FusedElementwise", inputs, std::move(attrs), chain));
    out->Replace(last, id);
    return Status();
  }

  const Graph& graph_;
  const OutEdges consumers_;
  std::vector<bool> absorbed_;
  std::vector<std::vector<NodeId>> chains_;  // by last node
};

}  // namespace

Result<Graph> FuseChains(Graph graph) {
  if (MentionsGpu(graph)) {
    ChainFuser fuser(graph);
    MG_ASSIGN_OR_RETURN(const bool found, fuser.Find());
    if (found) return fuser.Run();
  }
  return graph;
}

}  // namespace monograph
