// Scan and DynamicRnn are one loop over the rows of tensors (LoopOverRows), which reads them from
// TensorArrays and writes what each step gives to others. A cell that is past the end of a sequence
// is computed all the same, and what it gives is not taken.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ops/constant/constant.h"
#include "ops/control_flow/control_flow.h"
#include "ops/elementwise/elementwise.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/tensor_array/tensor_array.h"
#include "ops/transpose/transpose.h"

namespace monograph {
namespace {

// The number of rows, an int32 scalar.
Output NumRows(const Scope& scope, const Output& x) {
  if (x.shape().known_rank() && x.shape().rank() > 0 && x.shape().dim(0) >= 0)
    return Const(scope, static_cast<int32_t>(x.shape().dim(0)));
  return Reshape(scope, Slice(scope, ShapeOf(scope, x), {0}, {1}), {});
}

PartialShape RowShape(const PartialShape& shape) {
  return shape.known_rank() && shape.rank() > 0 ? PartialShape(shape.dims().subspan(1))
                                                : PartialShape();
}

struct Step {
  Outputs values, emitted;
};
using BuildEmittingStep = std::function<Step(const Scope& scope, const Output& row_number,
                                             const Outputs& values, const Outputs& rows)>;

// A loop over the rows of `elements`: a step gives the next values and what becomes a row of each
// result, whose types are `types`. Returns the last values, and the results.
Step LoopOverRows(const Scope& scope, const Outputs& elements, const Outputs& start,
                  const std::vector<DType>& types, const BuildEmittingStep& step, bool reverse,
                  int parallel_iterations) {
  const Output zero = Const(scope, 0), one = Const(scope, 1);
  const Output count = NumRows(scope, elements[0]);
  const Output indices = Range(scope, zero, count, one);
  if (!scope.ok()) return {};
  std::vector<TensorArrayOutputs> in, out;
  for (const Output& element : elements) {
    TensorArrayOptions options;
    options.element_shape = RowShape(element.shape());
    in.push_back(TensorArray(scope, count, element.dtype(), options));
    in.back().flow = TensorArrayScatter(scope, in.back().handle, indices, element, in.back().flow);
  }
  Outputs variables{zero};
  for (const DType type : types) {
    out.push_back(TensorArray(scope, count, type));
    variables.push_back(out.back().flow);
  }
  variables.insert(variables.end(), start.begin(), start.end());
  const auto states = static_cast<ptrdiff_t>(1 + types.size());
  std::vector<PartialShape> shapes;  // of what is emitted
  const auto goes_on = [&](const Scope& s, const Outputs& v) { return Less(s, v[0], count); };
  const auto body = [&](const Scope& s, const Outputs& v) -> Outputs {
    const Output next = Add(s, v[0], one);
    const Output row = reverse ? Sub(s, count, next) : v[0];
    Outputs rows;
    for (size_t i = 0; i < in.size(); ++i)
      rows.push_back(TensorArrayRead(s, in[i].handle, row, in[i].flow, elements[i].dtype()));
    const Step made = step(s, row, Outputs(v.begin() + states, v.end()), rows);
    if (!s.ok()) return {};
    if (made.values.size() != start.size() || made.emitted.size() != types.size()) {
      s.Fail(InvalidArgument("a step has " + std::to_string(made.values.size()) +
                             " next values and " + std::to_string(made.emitted.size()) +
                             " results; there are " + std::to_string(start.size()) +
                             " values, and " + std::to_string(types.size()) +
                             " results are wanted"));
      return {};
    }
    Outputs after{next};
    for (size_t i = 0; i < types.size(); ++i) {
      after.push_back(TensorArrayWrite(s, out[i].handle, row, made.emitted[i], v[1 + i]));
      shapes.push_back(made.emitted[i].shape());
    }
    after.insert(after.end(), made.values.begin(), made.values.end());
    return after;
  };
  const Outputs end =
      While(scope, variables, goes_on, body, {.parallel_iterations = parallel_iterations});
  if (end.empty() || !scope.ok()) return {};
  Step result{{end.begin() + states, end.end()}, {}};
  for (size_t i = 0; i < types.size(); ++i) {
    // So that there is a result of known shape also where there are no rows.
    auto attrs = std::make_shared<Attrs>(Operation(out[i].handle).attrs());
    attrs->Set("element_shape", PartialShape(shapes[i]));
    scope.graph()->SetAttrs(out[i].handle.node(), std::move(attrs));
    result.emitted.push_back(
        TensorArrayGather(scope, out[i].handle, indices, end[1 + i], types[i], shapes[i]));
  }
  return result;
}

// [a, b, ...] becomes [b, a, ...].
Output SwapFirstTwo(const Scope& scope, const Output& x) {
  std::vector<int32_t> perm(static_cast<size_t>(x.shape().rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[0], perm[1]);
  return Transpose(scope, x,
                   Const(scope, Tensor::FromValues<int32_t>({static_cast<int64_t>(perm.size())},
                                                            std::span(perm))));
}

// `condition` ([batch]) chooses rows.
Output SelectRows(const Scope& scope, const Output& condition, const Output& yes,
                  const Output& no) {
  Output wide = condition;
  for (int i = 1; i < yes.shape().rank(); ++i) wide = ExpandDims(scope, wide, -1);
  return Select(scope, wide, yes, no);
}

}  // namespace

Outputs Scan(const Scope& scope, const Outputs& elements, const Outputs& start,
             const BuildStep& step, const ScanOptions& options) {
  const Scope sub = scope.SubScope("scan");
  if (!sub.ok()) return {};
  if (elements.empty() || start.empty()) {
    sub.Fail(InvalidArgument("Scan: there must be elements, and values to start with"));
    return {};
  }
  std::vector<DType> types;
  for (const Output& value : start) types.push_back(value.dtype());
  const auto emit = [&](const Scope& s, const Output&, const Outputs& values,
                        const Outputs& rows) -> Step {
    const Outputs next = step(s, values, rows);
    return {next, next};
  };
  return LoopOverRows(sub, elements, start, types, emit, options.reverse,
                      options.parallel_iterations)
      .emitted;
}

DynamicRnnOutputs DynamicRnn(const Scope& scope, const Output& inputs, const Outputs& state,
                             const BuildCell& cell, const DynamicRnnOptions& options) {
  const Scope sub = scope.SubScope("rnn");
  if (!sub.ok()) return {};
  if (state.empty() || !inputs.valid() || inputs.shape().rank() < 2) {
    sub.Fail(InvalidArgument(
        "DynamicRnn: there must be a state, and inputs of a known rank of 2 or more, not " +
        (inputs.valid() ? inputs.shape().ToString() : std::string("none"))));
    return {};
  }
  const Output lengths = options.sequence_length;
  const auto next = [&](const Scope& s, const Output& time, const Outputs& before,
                        const Outputs& rows) -> Step {
    CellOutputs made = cell(s, rows[0], before);
    if (!s.ok() || made.state.size() != before.size()) return {made.state, {made.output}};
    if (lengths.valid()) {
      const Output now =
          lengths.dtype() == DT_INT32
              ? time
              : OpBuilder(s, "Cast").Input(time).Attr("DstT", lengths.dtype()).BuildOutput();
      const Output runs = Less(s, now, lengths);
      made.output = SelectRows(s, runs, made.output, ZerosLike(s, made.output));
      for (size_t i = 0; i < before.size(); ++i)
        made.state[i] = SelectRows(s, runs, made.state[i], before[i]);
    }
    return {made.state, {made.output}};
  };
  const Output rows = options.time_major ? inputs : SwapFirstTwo(sub, inputs);
  const Step end = LoopOverRows(sub, {rows}, state, {state[0].dtype()}, next, false,
                                options.parallel_iterations);
  if (!sub.ok()) return {};
  const Output outputs = end.emitted[0];
  if (!options.time_major && outputs.shape().rank() < 2) {
    sub.Fail(InvalidArgument("DynamicRnn: the cell's output must have a known rank"));
    return {};
  }
  return {options.time_major ? outputs : SwapFirstTwo(sub, outputs), end.values};
}

}  // namespace monograph
