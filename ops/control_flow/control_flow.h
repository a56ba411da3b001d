// Cond, Case, While, Scan and DynamicRnn, and what they are made of: TensorFlow 1.x's ops for
// branches and loops: Switch, Merge, Enter, Exit, NextIteration, LoopCond, ControlTrigger, and the
// Ref forms that old graphs have. The executor runs them itself, without kernels
// (graph/control_flow.h), but for RefSelect, which chooses a variable by a number. Gradients go
// through all of them (AddGradients).
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

// What branch number `index` (an int32 scalar) builds; the last one for any other index. As Cond.
//
//   Outputs y = Case(scope, index,
//                    {[&](const Scope& s) { return Outputs{Square(s, x)}; },
//                     [&](const Scope& s) { return Outputs{x}; }});
Outputs Case(const Scope& scope, const Output& index, const std::vector<BuildBranch>& branches);

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

// What TensorFlow's tf.scan computes: `step` is called once and builds the next values from those
// before, which begin as `start`, and from one row of each of `elements` (tensors of as many rows);
// its results have the types and shapes of `start`. For each value a tensor with a row for every
// step.
//
//   Outputs sums = Scan(scope, {x}, {Const(scope, 0.0f)},
//       [](const Scope& s, const Outputs& sum, const Outputs& row) {
//         return Outputs{Add(s, sum[0], row[0])};
//       });
using BuildStep =
    std::function<Outputs(const Scope& scope, const Outputs& values, const Outputs& rows)>;
struct ScanOptions {
  bool reverse = false;  // from the last row to the first; results have their rows where these were
  int parallel_iterations = 10;
};
Outputs Scan(const Scope& scope, const Outputs& elements, const Outputs& start,
             const BuildStep& step, const ScanOptions& options = {});

// What TensorFlow's tf.nn.dynamic_rnn computes: `cell` is called once and builds a step's output
// and the next state, from the input [batch, ...] of that step and the state before.
//
//   DynamicRnnOutputs rnn = DynamicRnn(scope, inputs, {c, h},
//       [&](const Scope& s, const Output& x, const Outputs& state) -> CellOutputs {
//         ...
//         return {h, {c, h}};
//       }, {.sequence_length = lengths});
struct CellOutputs {
  Output output;
  Outputs state;
};
using BuildCell =
    std::function<CellOutputs(const Scope& scope, const Output& input, const Outputs& state)>;
struct DynamicRnnOptions {
  // [batch], int32 or int64: the steps of each sequence. Behind its end a sequence's outputs are
  // zero and its state stays as it is. Invalid: all sequences have all steps.
  Output sequence_length = {};
  bool time_major = false;  // inputs and outputs are [time, batch, ...], not [batch, time, ...]
  int parallel_iterations = 32;
};
struct DynamicRnnOutputs {
  Output outputs;  // of all steps
  Outputs state;   // the last one
};
// `state`: what it begins with, each [batch, ...].
DynamicRnnOutputs DynamicRnn(const Scope& scope, const Output& inputs, const Outputs& state,
                             const BuildCell& cell, const DynamicRnnOptions& options = {});

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
