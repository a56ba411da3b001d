// LoopValues: how what a loop computed in each of its iterations is there for the loop that
// computes its gradients, which runs the other way. Private to AddGradients (graph/gradients.cc).
//
// The loop gets variables more: one that counts its iterations and, for each tensor that gradients
// need, a list to which every iteration appends its value. A tensor that is on a branch within the
// iteration is appended as an optional value, which is empty where the branch was not taken. The
// loop of gradients reads element k of the list in the iteration that belongs to the k-th, and what
// entered the loop as a constant enters it as well.
//
//   for (k = 0; ...; ++k) { ...; list.append(value) }        the loop, with what is added
//   for (k = n - 1; k >= 0; --k) { value = list[k]; ... }    the loop of gradients
//
// Where loops lie in each other, a list that an inner loop has filled is a value of the outer one,
// and is appended to a list there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/control_flow.h"
#include "graph/scope.h"

namespace monograph {

// A constant, as a node of the gradient's.
Output MakeConst(const Scope& scope, Tensor value);

class LoopValues {
 public:
  // One of a loop's variables: enter ─► merge ─► switch ─► (body) ─► next ─► merge.
  struct Variable {
    NodeId enter, merge, switch_node, next;
    NodeId exit = -1;  // -1: nobody reads the variable behind the loop
  };
  struct Loop {
    int32_t frame = 0;
    std::string name;  // its Enters' frame_name
    int64_t parallel_iterations = 10;
    Output goes_on;  // its LoopCond
    std::vector<Variable> variables;
    std::vector<NodeId> constants;  // Enters of what is the same in all iterations
    Output count;                   // how often it iterated, behind it; invalid until asked for
    std::map<Endpoint, Output> lists;
  };
  // The loop of gradients that is being built.
  struct Backward {
    Loop* loop = nullptr;
    Scope inside;  // where its body is built
    Output index;  // in its body: k
    NodeId first;  // its nodes, and those of loops within it, are from here on
    NodeId entry;  // an Enter, which waits for what its nodes must not wait for
    std::string name;
    // For each tensor from outside: the tensor of the body that stands for it.
    std::map<Endpoint, Endpoint> led;
  };

  // `flow` is the control flow of the graph's nodes so far. `beside(node)` is a scope in which
  // nodes next to an existing one are added.
  LoopValues(Graph* graph, ControlFlow flow, std::function<Scope(NodeId)> beside);

  const ControlFlow& flow() const { return flow_; }
  // Unimplemented if the loop has parts that While (and TensorFlow's while_loop) does not make.
  Result<Loop*> FindLoop(int32_t frame);
  // The frame that a tensor belongs to; -1 for one of a loop of gradients.
  int32_t FrameOf(Endpoint e) const;

  Status CountIterations(Loop* loop);        // sets `count`
  Status AddExit(Loop* loop, Variable* of);  // sets `exit`
  // Gives the gradient loop's nodes the values that they read from outside it: constants enter it,
  // values of iterations are read from lists.
  Status LeadIn(Backward* backward);

 private:
  using Next = std::function<Result<Output>(const Scope& scope, const Output& stays)>;

  Result<Output> AddVariable(Loop* loop, const Scope& scope, const Output& start, const Next& next);
  Result<Output> ListOf(Loop* loop, Endpoint e);
  Result<std::vector<Guard>> Branches(const Loop& loop, Endpoint e) const;
  Endpoint PredicateIn(const Loop& loop, const Guard& guard) const;
  NodeId ConstantOf(const Loop& loop, Endpoint e) const;
  Result<Output> OnBranches(Backward* backward, const Scope& scope, Output value,
                            std::span<const Guard> branches);
  Result<Endpoint> ValueIn(Backward* backward, Endpoint e);
  Output EnterBackward(const Backward& backward, const Scope& scope, Endpoint e) const;
  // The nodes from `first` on are part of frames that were there before.
  void Claim(NodeId first, int32_t frame);

  Graph* const graph_;
  const ControlFlow flow_;
  const NodeId base_;  // nodes from here on are new
  const std::function<Scope(NodeId)> beside_;
  const OutEdges consumers_;
  std::map<int32_t, std::unique_ptr<Loop>> loops_;
  std::map<NodeId, int32_t> claimed_;  // new nodes of old frames: that of their outputs
  std::map<NodeId, NodeId> like_;      // new Exits: a node that runs under the same conditions
};

}  // namespace monograph
