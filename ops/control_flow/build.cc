// Cond, Case and While build branches and bodies in place, as TensorFlow 1.x's Python does. What a
// branch or a body has built are the nodes with new numbers; then each of their inputs that comes
// from before them is led in (LeadIn), by a Switch or by an Enter that is the same in every
// iteration. Nodes without inputs wait for a pivot, a node that runs where the branch or the
// iteration does. Conds and loops in each other need nothing more: what leads into an inner one is
// led into the outer one as any other node.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/select/select.h"

namespace monograph {
namespace {

// Replaces inputs of the nodes from `first` on that come from before it by lead_in(input).
void LeadIn(Graph* graph, NodeId first, const std::function<Output(const Output&)>& lead_in) {
  const NodeId end = graph->num_nodes();
  std::map<Endpoint, Endpoint> led;
  const auto inside = [&](const Endpoint& outside) {
    const auto [found, added] = led.try_emplace(outside);
    if (added) found->second = lead_in({graph, outside}).endpoint;
    return found->second;
  };
  for (NodeId id = first; id < end; ++id) {
    for (size_t i = 0; i < graph->inputs(id).size(); ++i) {
      const Endpoint input = graph->inputs(id)[i];
      if (input.node >= first) continue;
      if (const Endpoint led_in = inside(input); led_in.valid())
        graph->ReplaceInput(id, static_cast<int>(i), led_in);
    }
  }
}

// What the nodes from `first` on wait for and is before it, they wait for no more; `entry` does.
void WaitAtEntry(Graph* graph, NodeId first, NodeId entry) {
  for (NodeId id = first; id < graph->num_nodes(); ++id) {
    std::vector<NodeId> inside;
    for (const NodeId control : graph->control_inputs(id)) {
      if (control >= first) {
        inside.push_back(control);
      } else if (control != entry) {
        graph->AddControlInput(entry, control);
      }
    }
    if (inside.size() < graph->control_inputs(id).size()) graph->SetControlInputs(id, inside);
  }
}

Status TypesDiffer(const char* what, size_t i, const Output& a, const Output& b) {
  return InvalidArgument(std::string(what) + std::to_string(i) + " is " +
                         std::string(DTypeName(a.dtype())) + " ('" + a.name() + "') and " +
                         std::string(DTypeName(b.dtype())) + " ('" + b.name() + "')");
}

// One of the branches [first, end), by halves.
Outputs OneOf(const Scope& scope, const Output& index, const std::vector<BuildBranch>& branches,
              size_t first, size_t end) {
  if (end - first == 1) return branches[first](scope);
  const size_t middle = first + (end - first) / 2;
  const Output number = Const(scope.WithOpName("number"), static_cast<int32_t>(middle));
  return Cond(
      scope, Less(scope, index, number),
      [&](const Scope& s) { return OneOf(s, index, branches, first, middle); },
      [&](const Scope& s) { return OneOf(s, index, branches, middle, end); });
}

}  // namespace

Outputs Case(const Scope& scope, const Output& index, const std::vector<BuildBranch>& branches) {
  const Scope sub = scope.SubScope("case");
  if (branches.empty()) sub.Fail(InvalidArgument("Case: there is no branch"));
  if (!sub.ok()) return {};
  const Output last = Const(sub.WithOpName("last"), static_cast<int32_t>(branches.size()) - 1);
  const Output zero = Const(sub.WithOpName("zero"), 0);
  const Output known = Select(sub, Less(sub, index, zero), last, index);
  return OneOf(sub, known, branches, 0, branches.size());
}

Outputs Cond(const Scope& scope, const Output& pred, const BuildBranch& then_branch,
             const BuildBranch& else_branch) {
  const Scope sub = scope.SubScope("cond");
  const SwitchOutputs by = Switch(sub, pred, pred);
  if (!sub.ok()) return {};
  Graph* const graph = sub.graph();
  Outputs sides[2];
  for (const bool taken : {false, true}) {
    const Output pivot =
        Identity(sub.WithOpName("pivot"), taken ? by.output_true : by.output_false);
    const Scope branch = sub.SubScope(taken ? "then" : "else").WithControlDependencies({pivot});
    const NodeId first = graph->num_nodes();
    for (const Output& result : (taken ? then_branch : else_branch)(branch))
      sides[taken].push_back(Identity(branch, result));
    if (!sub.ok()) return {};
    LeadIn(graph, first, [&](const Output& outside) {
      const SwitchOutputs split = Switch(sub, outside, pred);
      return taken ? split.output_true : split.output_false;
    });
  }
  if (sides[0].size() != sides[1].size()) {
    sub.Fail(InvalidArgument("Cond: one branch has " + std::to_string(sides[1].size()) +
                             " results and the other " + std::to_string(sides[0].size())));
    return {};
  }
  Outputs results;
  for (size_t i = 0; i < sides[0].size(); ++i) {
    if (sides[0][i].dtype() != sides[1][i].dtype()) {
      sub.Fail(TypesDiffer("Cond: result ", i, sides[1][i], sides[0][i]));
      return {};
    }
    results.push_back(Merge(sub, {sides[0][i], sides[1][i]}).output);
  }
  return results;
}

Outputs While(const Scope& scope, const Outputs& start, const BuildCondition& condition,
              const BuildBody& body, const WhileOptions& options) {
  const Scope sub = scope.SubScope("while");
  if (!sub.ok()) return {};
  if (start.empty()) {
    sub.Fail(InvalidArgument("While: a loop has at least one variable"));
    return {};
  }
  Graph* const graph = sub.graph();
  const std::string frame = sub.prefix();
  Outputs enters;
  for (const Output& value : start)
    enters.push_back(EnterLoop(sub, value, frame, false, options.parallel_iterations));
  if (!sub.ok()) return {};
  // From here on nodes are in the loop.
  const NodeId first = graph->num_nodes();
  Outputs variables;
  for (size_t i = 0; i < start.size(); ++i) {
    variables.push_back(Merge(sub, {enters[i], enters[i]}).output);
    if (i < options.shapes.size() && sub.ok())
      graph->SetShape(variables[i].endpoint, options.shapes[i]);
  }
  const Scope asks = sub.SubScope("cond").WithControlDependencies({variables[0]});
  const Output goes_on = LoopCond(sub, Identity(asks, condition(asks, variables)));
  Outputs stay, results;
  for (const Output& variable : variables) {
    const SwitchOutputs split = Switch(sub, variable, goes_on);
    stay.push_back(Identity(sub, split.output_true));
    results.push_back(ExitLoop(sub, split.output_false));
  }
  if (!sub.ok()) return {};
  const Scope inside = sub.SubScope("body").WithControlDependencies({stay[0]});
  const Outputs next = body(inside, stay);
  if (!sub.ok()) return {};
  if (next.size() != start.size()) {
    sub.Fail(InvalidArgument("While: the loop has " + std::to_string(start.size()) +
                             " variables, and its body gives " + std::to_string(next.size())));
    return {};
  }
  for (size_t i = 0; i < next.size(); ++i) {
    if (next[i].dtype() != variables[i].dtype()) {
      sub.Fail(TypesDiffer("While: variable ", i, variables[i], next[i]));
      return {};
    }
    const auto merged = PartialShape::Merge(variables[i].shape(), next[i].shape());
    if (!merged.ok() || *merged != next[i].shape()) {
      sub.Fail(InvalidArgument(
          "While: variable " + std::to_string(i) + " enters the loop with shape " +
          variables[i].shape().ToString() + ", but has shape " + next[i].shape().ToString() +
          " after one iteration; WhileOptions::shapes gives a shape that both have"));
      return {};
    }
    const Output back = NextIteration(inside, next[i]);
    if (back.valid()) graph->ReplaceInput(variables[i].node(), 1, back.endpoint);
  }
  if (!sub.ok()) return {};
  WaitAtEntry(graph, first, enters[0].node());
  std::map<Endpoint, bool> entries;
  for (const Output& enter : enters) entries[enter.endpoint] = true;
  LeadIn(graph, first, [&](const Output& outside) {
    if (entries.contains(outside.endpoint)) return Output();
    return EnterLoop(sub, outside, frame, /*is_constant=*/true, options.parallel_iterations);
  });
  return results;
}

}  // namespace monograph
