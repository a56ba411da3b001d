// Cond and While, and what they are made of: TensorFlow 1.x's ops for branches and loops: Switch,
// Merge, Enter, Exit, NextIteration, LoopCond, ControlTrigger, and the Ref forms that old graphs
// have. The executor runs them itself, without kernels (graph/control_flow.h).
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// What `then_branch` builds if `pred` (a bool scalar) holds, else what `else_branch` does: as many
// results, of the same types. Each builds with the scope that it is given, and may use any tensor
// of the graph; what it uses is computed in any case, what it builds only if the branch is taken.
//
//   Outputs y = Cond(scope, Less(scope, x, limit),
//                    [&](const Scope& s) { return Outputs{Square(s, x)}; },
//                    [&](const Scope& s) { return Outputs{x}; });
using BuildBranch = std::function<Outputs(const Scope& scope)>;
Outputs Cond(const Scope& scope, const Output& pred, const BuildBranch& then_branch,
             const BuildBranch& else_branch);

// The loop's variables, which begin as `start`, after the last of the iterations that `condition`
// (a bool scalar) asks for: `body` gives their next values, of the same types. Each of the two is
// called once, and may use any tensor of the graph, which then is the same in all iterations.
//
//   Outputs end = While(scope, {i, sum},
//       [&](const Scope& s, const Outputs& v) { return Less(s, v[0], n); },
//       [&](const Scope& s, const Outputs& v) {
//         return Outputs{Add(s, v[0], Const(s, 1)), Add(s, v[1], x)};
//       });
struct WhileOptions {
  int parallel_iterations = 10;  // that may run at the same time, where nothing orders them
  // Of the variables, where an iteration changes them; by default each keeps the one it begins
  // with.
  std::vector<PartialShape> shapes;
};
using BuildCondition = std::function<Output(const Scope& scope, const Outputs& variables)>;
using BuildBody = std::function<Outputs(const Scope& scope, const Outputs& variables)>;
Outputs While(const Scope& scope, const Outputs& start, const BuildCondition& condition,
              const BuildBody& body, const WhileOptions& options = {});

// `data` as the one output, while the other is dead: what reads it does not run. `pred`: bool
// scalar.
struct SwitchOutputs {
  Output output_false, output_true;
};
SwitchOutputs Switch(const Scope& scope, const Output& data, const Output& pred);

// The input that is not dead, and which one that is (int32). If none is alive it is dead, too.
struct MergeOutputs {
  Output output, value_index;
};
MergeOutputs Merge(const Scope& scope, const Outputs& inputs);

// `data` inside of the loop `frame_name`: in its first iteration or, if constant, in all.
Output EnterLoop(const Scope& scope, const Output& data, std::string_view frame_name,
                 bool is_constant = false, int parallel_iterations = 10);
// `data` outside of the loop that it is in.
Output ExitLoop(const Scope& scope, const Output& data);
// `data` in the next iteration. Only a Merge reads it, as an input that Graph::ReplaceInput sets.
Output NextIteration(const Scope& scope, const Output& data);
// Whether the loop goes on: what the Switches of its variables are told.
Output LoopCond(const Scope& scope, const Output& condition);

}  // namespace monograph
