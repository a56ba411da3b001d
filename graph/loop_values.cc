// In three phases, per loop: variables are added to the forward loop when a gradient first asks
// for a value (CountIterations, ListOf), branches around the value decide what is appended
// (Branches), and the loop of gradients is led the lists and reads its element of each (LeadIn,
// ValueIn).
#include "graph/loop_values.h"

#include <fmt/core.h>

#include <algorithm>

#include "graph/graph.h"

namespace monograph {
namespace {

size_t At(NodeId node) { return static_cast<size_t>(node); }

Output Enter(const Scope& scope, const Output& data, const std::string& frame, bool constant,
             int64_t parallel_iterations) {
  return OpBuilder(scope, "Enter")
      .Input(data)
      .Attr("frame_name", frame)
      .Attr("is_constant", bool{constant})
      .Attr("parallel_iterations", int64_t{parallel_iterations})
      .BuildOutput();
}

}  // namespace

Output MakeConst(const Scope& scope, Tensor value) {
  const DType dtype = value.dtype();
  return OpBuilder(scope, "Const")
      .Attr("value", std::move(value))
      .Attr("dtype", dtype)
      .BuildOutput();
}

LoopValues::LoopValues(Graph* graph, ControlFlow flow, std::function<Scope(NodeId)> beside)
    : graph_(graph),
      flow_(std::move(flow)),
      base_(graph->num_nodes()),
      beside_(std::move(beside)),
      consumers_(*graph) {}

Result<LoopValues::Loop*> LoopValues::FindLoop(int32_t frame) {
  std::unique_ptr<Loop>& found = loops_[frame];
  if (found != nullptr) return found.get();
  auto loop = std::make_unique<Loop>();
  const LoopFrame& of = flow_.frames[static_cast<size_t>(frame)];
  loop->frame = frame;
  loop->name = of.name;
  loop->parallel_iterations = of.parallel_iterations;
  const auto refuse = [&](const std::string& why) {
    return Unimplemented("gradients of " + flow_.FrameText(frame) + ": " + why);
  };
  const auto consumer = [&](NodeId node, int output, auto&& accepts) {
    for (const OutEdge& edge : consumers_.of(node)) {
      if (edge.input >= 0 && edge.output == output && accepts(edge.target)) return edge.target;
    }
    return NodeId{-1};
  };
  const auto is = [this](NodeId node, FlowOp flow_op) {
    return graph_->op(node).flow() == flow_op;
  };
  for (NodeId id = 0; id < base_; ++id) {
    if (flow_.entered[At(id)] == frame) {
      const auto merges = [&](NodeId target) { return is(target, FlowOp::kMerge); };
      if (consumer(id, 0, merges) < 0) loop->constants.push_back(id);
    }
    if (flow_.frame[At(id)] != frame) continue;
    if (is(id, FlowOp::kLoopCond)) {
      if (loop->goes_on.valid()) return refuse("it has two LoopConds");
      loop->goes_on = {graph_, {id, 0}};
    }
    const auto inputs = graph_->inputs(id);
    if (!is(id, FlowOp::kMerge) || inputs.size() != 2 ||
        !is(inputs[1].node, FlowOp::kNextIteration))
      continue;
    if (!is(inputs[0].node, FlowOp::kEnter))
      return refuse(graph_->NodeText(id) + " does not begin with an Enter");
    Variable variable{inputs[0].node, id, -1, inputs[1].node};
    variable.switch_node = consumer(id, 0, [&](NodeId target) {
      return is(target, FlowOp::kSwitch) && is(graph_->inputs(target)[1].node, FlowOp::kLoopCond);
    });
    if (variable.switch_node < 0)
      return refuse(graph_->NodeText(id) + " has no Switch by the loop's LoopCond");
    variable.exit =
        consumer(variable.switch_node, 0, [&](NodeId target) { return is(target, FlowOp::kExit); });
    loop->variables.push_back(variable);
  }
  if (!loop->goes_on.valid() || loop->variables.empty())
    return refuse("it has no LoopCond, or no variables");
  found = std::move(loop);
  return found.get();
}

int32_t LoopValues::FrameOf(Endpoint e) const {
  if (e.node < base_) return flow_.FrameOfOutputs(*graph_, e.node);
  const auto found = claimed_.find(e.node);
  return found == claimed_.end() ? -1 : found->second;
}

void LoopValues::Claim(NodeId first, int32_t frame) {
  const int32_t parent = flow_.frames[static_cast<size_t>(frame)].parent;
  for (NodeId id = first; id < graph_->num_nodes(); ++id) {
    if (claimed_.contains(id)) continue;
    claimed_[id] = graph_->op(id).flow() == FlowOp::kExit ? parent : frame;
    // What the user's scope waits for may be anywhere.
    std::vector<NodeId> controls;
    for (const NodeId control : graph_->control_inputs(id)) {
      if (claimed_.contains(control)) controls.push_back(control);
    }
    if (controls.size() < graph_->control_inputs(id).size()) graph_->SetControlInputs(id, controls);
  }
}

Result<Output> LoopValues::AddVariable(Loop* loop, const Scope& scope, const Output& start,
                                       const Next& next) {
  const NodeId first = graph_->num_nodes();
  const Output enter = Enter(scope, start, loop->name, false, loop->parallel_iterations);
  const Output merged = OpBuilder(scope, "Merge").Inputs(Outputs{enter, enter}).BuildOutput();
  const Operation split = OpBuilder(scope, "Switch").Input(merged).Input(loop->goes_on).Build();
  const Output stays = OpBuilder(scope, "Identity").Input(split.output(1)).BuildOutput();
  MG_RETURN_IF_ERROR(scope.status());
  MG_ASSIGN_OR_RETURN(const Output value, next(scope, stays));
  const Output back = OpBuilder(scope, "NextIteration").Input(value).BuildOutput();
  const Output exit = OpBuilder(scope, "Exit").Input(split.output(0)).BuildOutput();
  MG_RETURN_IF_ERROR(scope.status());
  graph_->ReplaceInput(merged.node(), 1, back.endpoint);
  Claim(first, loop->frame);
  like_[exit.node()] = loop->variables[0].enter;
  return exit;
}

Status LoopValues::CountIterations(Loop* loop) {
  if (loop->count.valid()) return Status();
  const Scope scope = beside_(loop->goes_on.node()).SubScope("count");
  const NodeId first = graph_->num_nodes();
  const Output before{graph_, graph_->inputs(loop->variables[0].enter)[0]};
  const Output pivot = OpBuilder(scope, "Identity").Input(before).BuildOutput();
  const Output zero = MakeConst(scope.WithControlDependencies({pivot}), Tensor::Scalar<int32_t>(0));
  MG_RETURN_IF_ERROR(scope.status());
  Claim(first, flow_.frames[static_cast<size_t>(loop->frame)].parent);
  MG_ASSIGN_OR_RETURN(
      loop->count,
      AddVariable(loop, scope, zero, [&](const Scope& s, const Output& stays) -> Result<Output> {
        const NodeId begin = graph_->num_nodes();
        const Output one =
            MakeConst(s.WithControlDependencies({stays}), Tensor::Scalar<int32_t>(1));
        const Output sum = OpBuilder(s, "AddV2").Input(stays).Input(one).BuildOutput();
        MG_RETURN_IF_ERROR(s.status());
        claimed_[stays.node()] = loop->frame;
        Claim(begin, loop->frame);
        return sum;
      }));
  return Status();
}

Status LoopValues::AddExit(Loop* loop, Variable* of) {
  const Scope scope = beside_(of->switch_node);
  const NodeId first = graph_->num_nodes();
  const Output exit =
      OpBuilder(scope, "Exit").Input(Output{graph_, {of->switch_node, 0}}).BuildOutput();
  MG_RETURN_IF_ERROR(scope.status());
  Claim(first, loop->frame);
  like_[exit.node()] = loop->variables[0].enter;
  of->exit = exit.node();
  return Status();
}

// The branches that a tensor is on within an iteration, the outermost first.
Result<std::vector<Guard>> LoopValues::Branches(const Loop& loop, Endpoint e) const {
  if (e.node >= base_) {  // a new Exit has the conditions of the loop's Enter
    const auto found = like_.find(e.node);
    if (found == like_.end()) return std::vector<Guard>();
    e = {found->second, 0};
  }
  const auto guards_of = [this](Endpoint of) {
    Guards guards = flow_.GuardsOf(of.node);
    if (graph_->op(of.node).flow() == FlowOp::kSwitch)
      guards.push_back({PredicateOf(*graph_, of.node), of.index});
    std::ranges::sort(guards);
    return guards;
  };
  // The loop is in all branches that anything enters it from. One of gradients, in a branch, has
  // more than one: the predicates of the branch and of its gradient are not the same.
  Guards of_iteration = guards_of({loop.variables[0].switch_node, 1});
  const auto include = [&](NodeId enter) {
    Guards both;
    std::ranges::set_union(of_iteration, flow_.GuardsOf(enter), std::back_inserter(both));
    of_iteration = std::move(both);
  };
  for (const Variable& variable : loop.variables) include(variable.enter);
  for (const NodeId enter : loop.constants) include(enter);
  const auto within = [&](Endpoint of) {
    Guards left;
    std::ranges::set_difference(guards_of(of), of_iteration, std::back_inserter(left));
    return left;
  };
  Guards branches = within(e);
  for (const Guard& branch : branches) {
    if (branch.value != Guard::kAlone && PredicateIn(loop, branch).valid()) continue;
    return Unimplemented(
        fmt::format("gradients of {}: '{}' is on a branch that is none of Cond's or tf.cond's",
                    flow_.FrameText(loop.frame), graph_->TensorName(e)));
  }
  std::ranges::stable_sort(
      branches, {}, [&](const Guard& branch) { return within(PredicateIn(loop, branch)).size(); });
  return branches;
}

// A predicate as the loop's Switches read it.
Endpoint LoopValues::PredicateIn(const Loop& loop, const Guard& guard) const {
  for (NodeId id = 0; id < base_; ++id) {
    if (flow_.frame[At(id)] == loop.frame && graph_->op(id).flow() == FlowOp::kSwitch &&
        PredicateOf(*graph_, id) == guard.of)
      return graph_->inputs(id)[1];
  }
  return {};
}

Result<Output> LoopValues::ListOf(Loop* loop, Endpoint e) {
  const auto found = loop->lists.find(e);
  if (found != loop->lists.end()) return found->second;
  const Output value{graph_, e};
  MG_ASSIGN_OR_RETURN(const std::vector<Guard> branches, Branches(*loop, e));
  const Scope scope = beside_(e.node).SubScope("saved");
  const DType dtype = branches.empty() ? value.dtype() : DT_VARIANT;
  const NodeId first = graph_->num_nodes();
  const Output before{graph_, graph_->inputs(loop->variables[0].enter)[0]};
  const Output pivot = OpBuilder(scope, "Identity").Input(before).BuildOutput();
  const Scope outside = scope.WithControlDependencies({pivot});
  const Output any = MakeConst(outside, Tensor::Scalar<int32_t>(-1));
  const Output empty = OpBuilder(outside, "EmptyTensorList")
                           .Input(any)
                           .Input(any)
                           .Attr("element_dtype", dtype)
                           .BuildOutput();
  MG_RETURN_IF_ERROR(scope.status());
  Claim(first, flow_.frames[static_cast<size_t>(loop->frame)].parent);
  const auto append = [&](const Scope& s, const Output& stays) -> Result<Output> {
    Output element = value;
    if (!branches.empty())
      element = OpBuilder(s, "OptionalFromValue").Inputs(Outputs{value}).BuildOutput();
    for (auto branch = branches.rbegin(); branch != branches.rend(); ++branch) {
      const NodeId begin = graph_->num_nodes();
      const Output predicate{graph_, PredicateIn(*loop, *branch)};
      const Operation by = OpBuilder(s, "Switch").Input(predicate).Input(predicate).Build();
      const Output other =
          OpBuilder(s, "Identity").Input(by.output(1 - branch->value)).BuildOutput();
      MG_RETURN_IF_ERROR(s.status());
      Claim(begin, loop->frame);
      const NodeId none_at = graph_->num_nodes();
      const Output none =
          OpBuilder(s.WithControlDependencies({other}), "OptionalNone").BuildOutput();
      element = OpBuilder(s, "Merge").Inputs(Outputs{element, none}).BuildOutput();
      MG_RETURN_IF_ERROR(s.status());
      Claim(none_at, loop->frame);
    }
    return OpBuilder(s, "TensorListPushBack").Input(stays).Input(element).BuildOutput();
  };
  MG_ASSIGN_OR_RETURN(const Output list, AddVariable(loop, scope, empty, append));
  loop->lists[e] = list;
  return list;
}

Output LoopValues::EnterBackward(const Backward& backward, const Scope& scope, Endpoint e) const {
  return Enter(scope, {graph_, e}, backward.name, true, backward.loop->parallel_iterations);
}

// The Enter of a constant that a tensor of the loop is, behind what only passes it on; -1 if it is
// none.
NodeId LoopValues::ConstantOf(const Loop& loop, Endpoint e) const {
  while (e.node < base_ &&
         (graph_->op(e.node).flow() == FlowOp::kSwitch || graph_->is(e.node, "Identity")))
    e = graph_->inputs(e.node)[0];
  return std::ranges::find(loop.constants, e.node) != loop.constants.end() ? e.node : -1;
}

// In the loop of gradients: the value where these branches were taken, and dead elsewhere.
Result<Output> LoopValues::OnBranches(Backward* backward, const Scope& scope, Output value,
                                      std::span<const Guard> branches) {
  for (const Guard& branch : branches) {
    MG_ASSIGN_OR_RETURN(const Endpoint predicate,
                        ValueIn(backward, PredicateIn(*backward->loop, branch)));
    const Operation by =
        OpBuilder(scope, "Switch").Input(value).Input(Output{graph_, predicate}).Build();
    value = by.output(branch.value);
  }
  return value;
}

Result<Endpoint> LoopValues::ValueIn(Backward* backward, Endpoint e) {
  if (const auto found = backward->led.find(e); found != backward->led.end()) return found->second;
  Loop* const loop = backward->loop;
  const Scope scope = beside_(e.node);
  Output value;
  if (FrameOf(e) != loop->frame) {
    value = EnterBackward(*backward, scope, e);
  } else if (const NodeId enter = ConstantOf(*loop, e); enter >= 0) {
    MG_ASSIGN_OR_RETURN(const Endpoint constant, ValueIn(backward, graph_->inputs(enter)[0]));
    MG_ASSIGN_OR_RETURN(const std::vector<Guard> branches, Branches(*loop, e));
    MG_ASSIGN_OR_RETURN(value, OnBranches(backward, scope, {graph_, constant}, branches));
  } else if (graph_->is(e.node, "Const")) {
    value = OpBuilder(scope.WithControlDependencies({backward->index}), "Const")
                .Attr("value", graph_->attrs(e.node).Get<Tensor>("value"))
                .Attr("dtype", graph_->dtype(e))
                .BuildOutput();
  } else {
    MG_ASSIGN_OR_RETURN(const Output list, ListOf(loop, e));
    MG_ASSIGN_OR_RETURN(const std::vector<Guard> branches, Branches(*loop, e));
    const Output entered = EnterBackward(*backward, scope, list.endpoint);
    const Output any =
        MakeConst(scope.WithControlDependencies({backward->index}), Tensor::Scalar<int32_t>(-1));
    value = OpBuilder(scope, "TensorListGetItem")
                .Input(entered)
                .Input(backward->index)
                .Input(any)
                .Attr("element_dtype", branches.empty() ? graph_->dtype(e) : DT_VARIANT)
                .BuildOutput();
    MG_ASSIGN_OR_RETURN(value, OnBranches(backward, scope, value, branches));
    if (!branches.empty()) {
      value = OpBuilder(scope, "OptionalGetValue")
                  .Input(value)
                  .Attr("output_types", std::vector<DType>{graph_->dtype(e)})
                  .Attr("output_shapes", std::vector<PartialShape>{graph_->shape(e)})
                  .BuildOutput();
    }
    MG_RETURN_IF_ERROR(scope.status());
    graph_->SetShape(value.endpoint, graph_->shape(e));
  }
  MG_RETURN_IF_ERROR(scope.status());
  backward->led[e] = value.endpoint;
  return value.endpoint;
}

Status LoopValues::LeadIn(Backward* backward) {
  const NodeId end = graph_->num_nodes();
  const auto is_inside = [&](NodeId node) {
    return node >= backward->first && !claimed_.contains(node);
  };
  const auto enters = [&](NodeId node) {
    return graph_->op(node).flow() == FlowOp::kEnter &&
           graph_->attrs(node).Get<std::string>("frame_name") == backward->name;
  };
  for (NodeId id = backward->first; id < end; ++id) {
    if (claimed_.contains(id)) continue;
    for (size_t i = 0; i < graph_->inputs(id).size(); ++i) {
      const Endpoint input = graph_->inputs(id)[i];
      if (is_inside(input.node) || enters(input.node)) continue;
      MG_ASSIGN_OR_RETURN(const Endpoint value, ValueIn(backward, input));
      graph_->ReplaceInput(id, static_cast<int>(i), value);
    }
  }
  // Control inputs from outside the loop move to the Enter: the loop waits for them once.
  for (NodeId id = backward->first; id < graph_->num_nodes(); ++id) {
    if (claimed_.contains(id)) continue;
    std::vector<NodeId> inside;
    for (const NodeId control : graph_->control_inputs(id)) {
      if (is_inside(control)) {
        inside.push_back(control);
      } else {
        graph_->AddControlInput(backward->entry, control);
      }
    }
    if (inside.size() < graph_->control_inputs(id).size()) graph_->SetControlInputs(id, inside);
  }
  return Status();
}

}  // namespace monograph
