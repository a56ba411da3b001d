// Symbolic gradients: adds to a graph the nodes that compute d(sum of ys)/dx.
#pragma once

#include <span>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// What an op's GradientFn sees: the node, the gradients of its outputs, and where the gradients of its inputs go.
class GradientContext {
 public:
  GradientContext(const Scope& scope, Operation op, std::span<const Output> output_gradients, int num_inputs)
      : scope_(scope), op_(op), output_gradients_(output_gradients), input_gradients_(static_cast<size_t>(num_inputs)) {}

  const Scope& scope() const { return scope_; }
  Operation op() const { return op_; }
  Output input(int i) const { return op_.input(i); }
  Output output(int i) const { return op_.output(i); }
  const Attrs& attrs() const { return op_.attrs(); }
  int num_inputs() const { return static_cast<int>(input_gradients_.size()); }
  // Invalid if no gradient flows into output i.
  const Output& grad(int i) const { return output_gradients_[static_cast<size_t>(i)]; }
  // Left unset: no gradient flows to that input.
  void set_grad(int i, const Output& gradient) { input_gradients_[static_cast<size_t>(i)] = gradient; }
  const Outputs& input_gradients() const { return input_gradients_; }

 private:
  Scope scope_;
  Operation op_;
  std::span<const Output> output_gradients_;
  Outputs input_gradients_;
};

struct GradientOptions {
  // Gradient nodes stay on the device of the node they differentiate (TensorFlow's colocate_gradients_with_ops=True; its default is the trap).
  bool colocate_with_forward = true;
  std::vector<Output> stop_gradients;
};

// d(sum ys)/dx for every x, in the order of xs; an invalid Output where y does not depend on x.
// `grad_ys` gives the incoming gradients (default: ones). Unimplemented names the op that has no gradient.
// A ReadVariableOp output may be given as x.
Result<Outputs> AddGradients(const Scope& scope, std::span<const Output> ys, std::span<const Output> xs,
                             std::span<const Output> grad_ys = {}, const GradientOptions& options = {});

}  // namespace monograph
