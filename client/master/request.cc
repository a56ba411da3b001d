#include "client/master/request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client/master/placed_graph.h"
#include "graph/prune.h"
#include "graph/references.h"

namespace monograph {
namespace {

Result<NodeId> FindTarget(const Graph& graph, const std::string& name) {
  if (const NodeId node = graph.Find(name); node >= 0) return node;
  // The error of FindOutput lists similar names.
  const Result<Endpoint> tensor = graph.FindOutput(name);
  if (!tensor.ok()) return tensor.status().WithContext("operation to run");
  return InvalidArgument("operation to run: '" + name +
                         "' is a tensor; an operation is named by its node, '" +
                         std::string(graph.name(tensor->node)) + "'");
}

// The request in a graph whose nodes are the `ids` of those before; -1: the node is gone.
StepRequest Follow(const StepRequest& request, const std::vector<NodeId>& ids) {
  const auto endpoint = [&ids](const Endpoint& before) {
    const NodeId node = before.valid() ? ids[static_cast<size_t>(before.node)] : -1;
    return node >= 0 ? Endpoint{node, before.index} : Endpoint();
  };
  StepRequest moved;
  for (const Endpoint& feed : request.feeds) moved.feeds.push_back(endpoint(feed));
  for (const Endpoint& fetch : request.fetches) moved.fetches.push_back(endpoint(fetch));
  for (const NodeId target : request.targets)
    moved.targets.push_back(ids[static_cast<size_t>(target)]);
  return moved;
}

// The nodes whose names and outputs the step needs.
std::vector<NodeId> NodesOf(const StepRequest& request) {
  std::vector<NodeId> nodes = request.targets;
  for (const Endpoint& feed : request.feeds) {
    if (feed.valid()) nodes.push_back(feed.node);
  }
  for (const Endpoint& fetch : request.fetches) nodes.push_back(fetch.node);
  return nodes;
}

}  // namespace

Result<ResolvedSignature> Resolve(const Graph& graph, const Signature& signature) {
  ResolvedSignature resolved;
  for (const std::string& name : signature.feeds) {
    MG_ASSIGN_OR_RETURN(const Endpoint feed, graph.FindOutput(name));
    if (std::find(resolved.feeds.begin(), resolved.feeds.end(), feed) != resolved.feeds.end())
      return InvalidArgument("tensor '" + name + "' is fed twice");
    if (const OpDef& op = graph.op(feed.node); !op.known()) {  // its type is unknown, too
      return graph.registry().Require(op.name()).status().WithContext("tensor '" + name +
                                                                      "', which this step feeds");
    }
    resolved.feeds.push_back(feed);
  }
  for (const std::string& name : signature.fetches) {
    MG_ASSIGN_OR_RETURN(const Endpoint fetch, graph.FindOutput(name));
    resolved.fetches.push_back(fetch);
  }
  for (const std::string& name : signature.targets) {
    MG_ASSIGN_OR_RETURN(const NodeId target, FindTarget(graph, name));
    resolved.targets.push_back(target);
  }
  return resolved;
}

PlacedRequest FindIn(const PlacedGraph& placed, const Graph& user,
                     const ResolvedSignature& resolved) {
  PlacedRequest request;
  StepRequest& step = request.step;
  for (const Endpoint feed : resolved.feeds) step.feeds.push_back(placed.Find(user, feed));
  for (const Endpoint asked : resolved.fetches) {
    const Endpoint fetch = placed.Find(user, asked);
    if (const auto feed = std::find(step.feeds.begin(), step.feeds.end(), fetch);
        feed != step.feeds.end()) {
      request.values.push_back({.feed = static_cast<int>(feed - step.feeds.begin())});
      continue;
    }
    const auto known = std::find(step.fetches.begin(), step.fetches.end(), fetch);
    request.values.push_back({.fetch = static_cast<int>(known - step.fetches.begin())});
    if (known == step.fetches.end()) step.fetches.push_back(fetch);
  }
  for (const NodeId asked : resolved.targets) {
    const std::vector<NodeId> nodes = placed.Find(user, asked);
    step.targets.insert(step.targets.end(), nodes.begin(), nodes.end());
  }
  return request;
}

Result<StepGraph> PruneTo(const StepRequest& request, const Graph& graph) {
  std::vector<NodeId> ids;
  MG_ASSIGN_OR_RETURN(Graph pruned,
                      Prune(graph, request.feeds, request.fetches, request.targets, &ids));
  return StepGraph{std::move(pruned), Follow(request, ids)};
}

Result<StepGraph> WithHandles(StepGraph step) {
  if (!step.graph.has_references()) return step;
  MG_ASSIGN_OR_RETURN(WithoutReferences replaced,
                      ReplaceReferences(step.graph, step.request.feeds, step.request.fetches));
  StepRequest request = Follow(step.request, replaced.nodes);
  request.feeds = std::move(replaced.feeds);
  request.fetches = std::move(replaced.fetches);
  return StepGraph{std::move(replaced.graph), std::move(request)};
}

Result<StepGraph> Optimised(StepGraph step, const OptimizeOptions& options,
                            const Evaluator& evaluate) {
  if (options.level <= 0) return step;
  std::vector<NodeId> ids;
  MG_ASSIGN_OR_RETURN(Graph optimised,
                      Optimize(step.graph, options, NodesOf(step.request), evaluate, &ids));
  return StepGraph{std::move(optimised), Follow(step.request, ids)};
}

}  // namespace monograph
