// Optimizers: they turn gradients into updates of variables, with TensorFlow's formulas, defaults
// and slot names.
//
//   Optimizer adam = Adam(1e-4);
//   std::vector<GradientAndVariable> pairs = ComputeGradients(scope, loss, variables).value();
//   ... clip, average (train/clip.h, train/tower_gradients.h) ...
//   Operation train = adam.ApplyGradients(scope, pairs, &init, {.global_step = &global_step});
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/scope.h"
#include "train/learning_rate.h"

namespace monograph {

// A variable of the model, as its nodes.
struct ModelVariable {
  std::string name;  // "conv1/weights"
  Output handle;     // VarHandleOp
  Output value;      // ReadVariableOp, beside the handle
  Operation initializer;
  DType dtype = DT_FLOAT;
  Shape shape;
};

// On a VarHandleOp: the name of a variable that always has the same value. A Saver restores that
// one where a checkpoint lacks this one.
inline constexpr char kSameValueAttr[] = "_mg_same_value";

// Makes a variable on `scope`'s device (a device function of the scope counts), with an initializer
// that assigns `initial`.
ModelVariable MakeVariable(const Scope& scope, const std::string& name, Output initial);
// The same with an initial value that is computed beside the variable, by the nodes that `initial`
// builds in "<name>/Initializer".
ModelVariable MakeVariable(const Scope& scope, const std::string& name, const Shape& shape,
                           DType dtype, const std::function<Output(const Scope& beside)>& initial);

// A variable on the device of `beside`, under exactly this name (made unique): what belongs to
// another variable, such as its slots, has a name that does not depend on the scope it is made in.
ModelVariable MakeSlot(const Scope& scope, const Output& beside, const std::string& name,
                       const Output& initial);
ModelVariable MakeSlot(const Scope& scope, const Output& beside, const std::string& name,
                       DType dtype, const Shape& shape, double initial);

// The int64 scalar "global_step", 0 at first.
ModelVariable MakeGlobalStep(const Scope& scope);

// One gradient, dense or sparse (TensorFlow's IndexedSlices).
struct GradientAndVariable {
  Output gradient;  // of the variable's shape; if sparse, rows of it. Invalid: the loss does not
                    // depend on the variable
  Output indices;  // valid: row i of `gradient` belongs to row indices[i] of the variable, and rows
                   // of one index add up
  ModelVariable variable;

  bool sparse() const { return indices.valid(); }
};

struct ApplyOptions {
  // Counts the updates: what a schedule of the learning rate reads, and incremented by one when
  // every variable has been updated, unless `count` is false: then the caller does.
  const ModelVariable* global_step = nullptr;
  bool count = true;
  // Of the returned operation. Empty: one in the optimizer's own name scope.
  std::string name = {};
};

class OptimizerRule;   // train/optimizer.cc
class OptimizerSlots;  // train/optimizer.cc

// A value; cheap to copy. Copies are one optimizer: they share its slots, from any thread. A graph
// is built by one thread.
class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<const OptimizerRule> rule);

  // Adds the update of every variable on the variable's device, and slots beside it: "w/Adam",
  // "w/Adam_1". A variable that this optimizer updates already (one update per tower, say) keeps
  // its slots. Initializers of new slots are appended to `initializers`. Pairs without a gradient
  // are left out; InvalidArgument in the scope if no pair has one. The returned operation has run
  // when every update has.
  Operation ApplyGradients(const Scope& scope, std::span<const GradientAndVariable> pairs,
                           std::vector<Operation>* initializers,
                           const ApplyOptions& options = {}) const;

  // ComputeGradients and ApplyGradients.
  Result<Operation> Minimize(const Scope& scope, Output loss,
                             std::span<const ModelVariable> variables,
                             std::vector<Operation>* initializers,
                             const ApplyOptions& options = {}) const;

  // TensorFlow's get_slot and get_slot_names. nullptr: no such slot, or no update of `variable` so
  // far.
  const ModelVariable* slot(const ModelVariable& variable, std::string_view slot_name) const;
  std::vector<std::string> slot_names() const;
  std::string name() const;

 private:
  std::shared_ptr<const OptimizerRule> rule_;
  std::shared_ptr<OptimizerSlots> slots_;
};

// Slots:                                                            // none
Optimizer GradientDescent(LearningRate learning_rate);
Optimizer Momentum(LearningRate learning_rate, double momentum,
                   bool use_nesterov = false);  // "momentum"
// "accumulator"; InvalidArgument in the scope that it is applied in unless its initial value is
// positive.
Optimizer Adagrad(LearningRate learning_rate, double initial_accumulator_value = 0.1);
// "rms", from 1; "momentum"; with `centered` "mg" between them: the mean gradient, whose square is
// taken from the mean square.
Optimizer RMSProp(LearningRate learning_rate, double decay = 0.9, double momentum = 0,
                  double epsilon = 1e-10, bool centered = false);
// "m", "v"; and per device the powers of the betas, "beta1_power" and "beta2_power". Of a sparse
// gradient, rows without a gradient move on by their momentum, as in TensorFlow.
Optimizer Adam(LearningRate learning_rate = 0.001, double beta1 = 0.9, double beta2 = 0.999,
               double epsilon = 1e-8);

// Gradients of `loss` with regard to variables, one pair per variable. Everything that reads the
// variable counts: ModelVariable::value, further reads, and ResourceGather, which gives rows.
Result<std::vector<GradientAndVariable>> ComputeGradients(const Scope& scope, Output loss,
                                                          std::span<const ModelVariable> variables);

}  // namespace monograph
