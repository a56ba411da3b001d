// TensorFlow 1.x's ops for branches and loops: Switch, Merge, Enter, Exit, NextIteration, LoopCond,
// ControlTrigger. The executor runs them itself, without kernels (graph/control_flow.h).
#pragma once

#include <string_view>

#include "graph/scope.h"

namespace monograph {

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
Output Enter(const Scope& scope, const Output& data, std::string_view frame_name,
             bool is_constant = false, int parallel_iterations = 10);
// `data` outside of the loop that it is in.
Output Exit(const Scope& scope, const Output& data);
// `data` in the next iteration. Only a Merge reads it, as an input that Graph::ReplaceInput sets.
Output NextIteration(const Scope& scope, const Output& data);
// Whether the loop goes on: what the Switches of its variables are told.
Output LoopCond(const Scope& scope, const Output& condition);

}  // namespace monograph
