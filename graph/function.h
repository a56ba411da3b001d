// Functions: graphs that nodes call. A tower is one function called once per replica.
//
// A function's body is a Graph of its own whose `_Arg` nodes (attrs T, index) stand for arguments
// and whose `_Retval` nodes (attrs T, index) for results. A body has no library of its own: calls
// in it mean functions of the calling graph's library. A call is a PartitionedCall or
// StatefulPartitionedCall node with attrs f, Tin, Tout.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace monograph {

struct Function {
  std::string name;
  std::shared_ptr<const Graph> body;
  std::vector<NodeId> args;     // the _Arg nodes by index
  std::vector<NodeId> results;  // the _Retval nodes by index
  bool stateful = false;

  // Finds args and results; InvalidArgument if an index is missing or given twice.
  static Result<Function> Make(std::string name, std::shared_ptr<const Graph> body);
};

class FunctionLibrary {
 public:
  Status Add(Function function);  // AlreadyExists if the name has another body
  const Function* Find(std::string_view name) const;
  const std::map<std::string, Function, std::less<>>& all() const { return functions_; }
  bool empty() const { return functions_.empty(); }

 private:
  std::map<std::string, Function, std::less<>> functions_;
};

// Every function that a node names: what it calls, or the branches, the condition and the body of
// an If, a Case or a While. Without those that the library lacks.
std::vector<const Function*> FunctionsOf(const Graph& graph, NodeId node,
                                         const FunctionLibrary& library);

// How deep calls within calls are followed; a library that calls itself ends there.
inline constexpr int kMaxCallDepth = 64;

// The function that a node calls; nullptr if it is no call, or the library lacks the function.
const Function* Callee(const Graph& graph, NodeId node, const FunctionLibrary& library);

// What became of the nodes of a graph whose calls were inlined, by old node.
struct InlineMap {
  // Where each output comes from now.
  std::vector<std::vector<Endpoint>> outputs;
  // The nodes that, once they have all run, stand for the end of the old node.
  std::vector<std::vector<NodeId>> done;
};

// `graph` with every call (of calls, too) and every If, Case, While and For (IsFunctional) replaced
// by what it would run. A call becomes the nodes of the function's body (what its results need, and
// what has effects): body nodes are named "<call>/<node>", nodes without a requested device get the
// call's device, requested devices inside the body are completed from it, and the call's control
// edges go to and from all of the body that has effects (through one NoOp with its name where nodes
// wait for it). InvalidArgument for a function that is lacking, more than 100 calls in each other,
// or more than a million nodes of calls. A function that calls itself from a branch is unrolled, up
// to 40 times within itself and as far as 100,000 nodes go; a step that needs more fails with
// ResourceExhausted. One that calls itself always is InvalidArgument. An If becomes a Switch of
// each input, both branches as calls behind them, and a Merge of each result; a Case the same for
// one branch after the other; a While the loop that its condition and body are (graph/inline.cc
// draws it). `should_inline` (empty: all) picks the calls. `map` may be null, and so may
// `inherited`: it gets the new nodes whose type of device is the call's, since the body requests
// none.
Result<Graph> InlineFunctions(const Graph& graph,
                              const std::function<bool(NodeId)>& should_inline = {},
                              InlineMap* map = nullptr, std::vector<NodeId>* inherited = nullptr);

// Puts what these calls, Ifs, Cases and Whiles of the graph would run into the graph itself, as
// InlineFunctions does. Each stays as a node of its name that hands on its results, an Identity or
// an IdentityN, and waits for its effects. REQUIRES: each has a result.
Status ExpandCalls(Graph* graph, std::span<const NodeId> calls);

}  // namespace monograph
