// Optimizers: they turn gradients into updates of variables, with TensorFlow's formulas, defaults
// and slot names.
//
//   Optimizer adam = Adam(1e-4);
//   std::vector<GradientAndVariable> pairs = ComputeGradients(scope, loss, variables).value();
//   ... clip, average (train/clip.h, train/tower_gradients.h) ...
//   Operation train = adam.ApplyGradients(scope, pairs, &init, {.global_step = &global_step});
//
// What differs between optimizers is an OptimizerRule: a name, slots, and functions that add the
// nodes of an update. docs/training.md shows how a program writes one of its own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/gradients.h"
#include "graph/scope.h"
#include "train/learning_rate.h"
#include "train/model_variable.h"

namespace monograph {

// One gradient, dense or sparse (TensorFlow's IndexedSlices).
struct GradientAndVariable {
  Output gradient;  // of the variable's shape; if sparse, rows of it. Invalid: the loss does not
                    // depend on the variable
  Output indices;  // valid: row i of `gradient` belongs to row indices[i] of the variable, and rows
                   // of one index add up
  ModelVariable variable;

  bool sparse() const { return indices.valid(); }
};

// Gradients of `loss` with regard to variables, one pair per variable. Everything that reads the
// variable counts: ModelVariable::value, further reads, and ResourceGather, which gives rows.
Result<std::vector<GradientAndVariable>> ComputeGradients(const Scope& scope, Output loss,
                                                          std::span<const ModelVariable> variables);

// What the update of one variable reads; valid while the rule's function runs. Scalars are of the
// variable's type, on its device; each is one node there, however many variables read it.
class UpdateInputs {
 public:
  class Device;  // what the variables of one device share
  UpdateInputs(Device* device, const ModelVariable& of, std::vector<Output> slot_handles);

  Output variable;            // the handle
  std::vector<Output> slots;  // their handles, in the order of the rule

  Output rate() const;  // the learning rate of this step
  Output number(double value) const;
  Output power(size_t i) const;  // of the rule's power i, in this update

 private:
  Device* device_;
  DType dtype_;
};

// One optimizer's formula. It is the same for every way of training: one device, replicas, and
// parameter servers, where the update runs beside the variable.
struct OptimizerRule {
  // A variable beside each variable that is updated, of its type and shape. Its name is that of
  // Optimizer::slot; in checkpoints slot i of "w" is "w/<name of the rule>_i", without "_0".
  struct Slot {
    std::string name;
    double initial = 0;
  };
  // base ^ t in update t, counted from 1: what corrects the bias of a mean that began with zeros.
  // One variable per device, so that an update never waits for another task.
  struct Power {
    std::string name;
    double base = 0;
  };

  std::string name;
  LearningRate rate;
  std::vector<Slot> slots = {};
  std::vector<Power> powers = {};
  // Adds the nodes that change the variable and its slots by a gradient of the variable's shape.
  // The operation has run when all have changed. `scope` is beside the variable. Values are read by
  // ReadVariable(scope, in.slots[0]), and what is read and then assigned is not atomic: of
  // replicas that update at their own pace one may overwrite what another has just assigned.
  std::function<Operation(const Scope& scope, const UpdateInputs& in, const Output& gradient)>
      dense = {};
  // The same by rows of a gradient; SumRepeatedRows adds up those of one index. Empty: `dense` gets
  // the rows as a whole gradient, zero elsewhere.
  std::function<Operation(const Scope& scope, const UpdateInputs& in, const Gradient& rows)>
      sparse = {};
  // An error if the arguments that the rule was made of make no sense; the scope that it is applied
  // in fails with it.
  Status status = {};
};

struct ApplyOptions {
  // Counts the updates: what a schedule of the learning rate reads, and incremented by one when
  // every variable has been updated, unless `count` is false: then the caller does.
  const ModelVariable* global_step = nullptr;
  bool count = true;
  // Of the returned operation. Empty: one in the optimizer's own name scope.
  std::string name = {};
};

// A value; cheap to copy. Copies are one optimizer: they share its slots, from any thread. A graph
// is built by one thread.
class Optimizer {
 public:
  explicit Optimizer(OptimizerRule rule);

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
  class Slots;
  class Application;
  std::shared_ptr<const OptimizerRule> rule_;
  std::shared_ptr<Slots> slots_;
};

// No slots.
Optimizer GradientDescent(LearningRate learning_rate);
// Slot "momentum".
Optimizer Momentum(LearningRate learning_rate, double momentum, bool use_nesterov = false);
// Slot "accumulator". InvalidArgument in the scope that it is applied in unless its initial value
// is positive.
Optimizer Adagrad(LearningRate learning_rate, double initial_accumulator_value = 0.1);
// Slots "rms", from 1, and "momentum"; with `centered` "mg" between them: the mean gradient, whose
// square is taken from the mean square.
Optimizer RMSProp(LearningRate learning_rate, double decay = 0.9, double momentum = 0,
                  double epsilon = 1e-10, bool centered = false);
// Slots "m" and "v"; and per device the powers of the betas, "beta1_power" and "beta2_power". Of a
// sparse gradient, rows without a gradient move on by their momentum, as in TensorFlow.
Optimizer Adam(LearningRate learning_rate = 0.001, double beta1 = 0.9, double beta2 = 0.999,
               double epsilon = 1e-8);

}  // namespace monograph
