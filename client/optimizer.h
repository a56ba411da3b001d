// Optimizers: they turn gradients into updates of variables, with TensorFlow's formulas and slot names.
//
//   Optimizer adam = Adam(1e-4);
//   Operation train = adam.ApplyGradients(scope, pairs, &init);
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// A variable of the model, as its nodes.
struct ModelVariable {
  std::string name;      // "conv1/weights"
  Output handle;         // VarHandleOp
  Output value;          // ReadVariableOp, beside the handle
  Operation initializer;
  DType dtype = DT_FLOAT;
  Shape shape;
};

// Makes a variable on `scope`'s device (a device function of the scope counts), with an initializer that assigns `initial`.
ModelVariable MakeVariable(const Scope& scope, const std::string& name, Output initial);

// One gradient, dense or sparse (TensorFlow's IndexedSlices).
struct GradientAndVariable {
  Output gradient;  // of the variable's shape; if sparse, rows of it
  Output indices;   // valid: row i of `gradient` belongs to row indices[i] of the variable, and rows of one index add up
  ModelVariable variable;

  bool sparse() const { return indices.valid(); }
};

class OptimizerRule;  // client/optimizer.cc

// A value; cheap to copy.
class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<const OptimizerRule> rule) : rule_(std::move(rule)) {}

  // Adds the update of every variable on the variable's device, and slots beside it. Initializers of slots are appended to `initializers`. The returned
  // operation has run when every update has.
  Operation ApplyGradients(const Scope& scope, std::span<const GradientAndVariable> pairs,
                           std::vector<Operation>* initializers) const;

 private:
  std::shared_ptr<const OptimizerRule> rule_;
};

Optimizer GradientDescent(double learning_rate);
Optimizer Momentum(double learning_rate, double momentum, bool use_nesterov = false);
Optimizer Adam(double learning_rate, double beta1 = 0.9, double beta2 = 0.999, double epsilon = 1e-8);

// Gradients of `loss` with regard to variables that were read once (ModelVariable::value), for users who build by hand.
Result<std::vector<GradientAndVariable>> ComputeGradients(const Scope& scope, Output loss, std::span<const ModelVariable> variables);

}  // namespace monograph
