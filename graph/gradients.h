// Symbolic gradients: adds to a graph the nodes that compute d(sum of ys)/dx.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// A gradient: one tensor, or rows of one (TensorFlow's IndexedSlices): values[i] belongs to row
// indices[i] of the tensor's first dimension. An index may repeat, and what its rows say adds up;
// rows without an index are zero.
struct Gradient {
  Output values;
  Output indices = {};  // a vector of int32 or int64; invalid: `values` is the whole gradient

  bool valid() const { return values.valid(); }
  bool sparse() const { return indices.valid(); }
};

// The gradient of x as one tensor. Rows of one index are added in their order. x may be a
// variable's handle.
Output Densify(const Scope& scope, const Gradient& gradient, const Output& x);

// Zeros of x's shape and type, or of those of the variable whose handle x is.
Output ZerosOf(const Scope& scope, const Output& x);

// What an op's GradientFn sees: the node, the gradients of its outputs, and where the gradients of
// its inputs go.
class GradientContext {
 public:
  GradientContext(const Scope& scope, std::string call, Operation op,
                  std::span<const Gradient> output_gradients, int num_inputs)
      : scope_(scope),
        call_(std::move(call)),
        op_(op),
        output_gradients_(output_gradients.begin(), output_gradients.end()),
        input_gradients_(static_cast<size_t>(num_inputs)) {}

  const Scope& scope() const { return scope_; }
  // A name that is the same for all nodes of one AddGradients, and for no other.
  const std::string& call() const { return call_; }
  Operation op() const { return op_; }
  Output input(int i) const { return op_.input(i); }
  Output output(int i) const { return op_.output(i); }
  const Attrs& attrs() const { return op_.attrs(); }
  int num_inputs() const { return static_cast<int>(input_gradients_.size()); }
  // Invalid if no gradient flows into output i. Rows are made one tensor first.
  const Output& grad(int i);
  // The same as it came, for ops that can pass rows on.
  const Gradient& gradient(int i) const { return output_gradients_[static_cast<size_t>(i)]; }
  // Left unset: no gradient flows to that input.
  void set_grad(int i, const Output& gradient) { set_gradient(i, {gradient}); }
  void set_gradient(int i, const Gradient& gradient) {
    input_gradients_[static_cast<size_t>(i)] = gradient;
  }
  const std::vector<Gradient>& input_gradients() const { return input_gradients_; }

 private:
  Scope scope_;
  std::string call_;
  Operation op_;
  std::vector<Gradient> output_gradients_, input_gradients_;
};

struct GradientOptions {
  // Gradient nodes stay on the device of the node they differentiate (TensorFlow's
  // colocate_gradients_with_ops=True; its default is the trap).
  bool colocate_with_forward = true;
  std::vector<Output> stop_gradients;
};

// d(sum ys)/dx for every x, in the order of xs; an invalid Output where y does not depend on x.
// `grad_ys` gives the incoming gradients (default: ones). Unimplemented names the op that has no
// gradient. A ReadVariableOp output may be given as x: then only what that read's value leads to
// counts. A variable's handle as x stands for the variable: all that reads it (ReadVariableOp,
// ResourceGather) counts, and the gradient is computed beside it. A call, an If, a Case or a While
// (a node with functions) on a path from an x to a y becomes the nodes that it would run
// (ExpandCalls); its own node stays and hands on their results.
Result<Outputs> AddGradients(const Scope& scope, std::span<const Output> ys,
                             std::span<const Output> xs, std::span<const Output> grad_ys = {},
                             const GradientOptions& options = {});

// The same, but a gradient that arises as rows stays rows: that of what GatherV2 (along axis 0) and
// ResourceGather take rows of. Rows from several consumers are put one after the other, in the
// order of the consumers; where others contribute a whole tensor, the sum is one tensor.
Result<std::vector<Gradient>> AddSparseGradients(const Scope& scope, std::span<const Output> ys,
                                                 std::span<const Output> xs,
                                                 std::span<const Output> grad_ys = {},
                                                 const GradientOptions& options = {});

}  // namespace monograph
