// Exponential moving averages of variables and tensors, kept in shadow variables beside them.
//
//   ExponentialMovingAverage averages(0.999, {.num_updates = global_step.value});
//   Operation train =
//       averages.Apply(scope.WithControlDependencies({update}), variables, &init).value();
//   session->Run({}, {averages.Average(variables[0])->value});
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

class Collections;

struct MovingAverageOptions {
  // If valid, a scalar: the decay is min(decay, (1 + num_updates) / (10 + num_updates)), so that
  // averages move faster at first. A variable is read when the averaged variables are: after the
  // update of a step, global_step.value counts that update, as in TensorFlow.
  Output num_updates = {};
  // Averages of tensors start at 0; this takes the zero out again. Averages of variables start at
  // the variable's initial value.
  bool zero_debias = false;
  // Gets the variables that are averaged, in GraphKeys::kMovingAverageVariables, each once.
  // Outlives the averages.
  Collections* collections = nullptr;
  std::string name = "ExponentialMovingAverage";
};

// Building is for one thread.
class ExponentialMovingAverage {
 public:
  explicit ExponentialMovingAverage(double decay, MovingAverageOptions options = {});

  // Adds shadow variables ("w/ExponentialMovingAverage") for those that have none, their
  // initializers to `initializers`, and an operation that does
  //   shadow -= (1 - decay) * (shadow - variable)
  // The variables are read when the control dependencies of `scope` have run: give it the update.
  // Initializers of shadows take the variables' initial values; run them in one step with the
  // variables' own.
  Result<Operation> Apply(const Scope& scope, std::span<const ModelVariable> variables,
                          std::vector<Operation>* initializers);
  // The same for a tensor of known shape, such as a loss.
  Result<Operation> Apply(const Scope& scope, const Output& tensor,
                          std::vector<Operation>* initializers);

  // The shadow of a variable, under the shadow's own name; nullptr before Apply. To evaluate with
  // averages put `value` in place of the variable's.
  const ModelVariable* Average(const ModelVariable& variable) const;
  const ModelVariable* Average(
      const Output& tensor) const;  // the same for a tensor; debiased where asked for
  // The name of a variable's average, in a checkpoint for example.
  std::string AverageName(const ModelVariable& variable) const;
  // `variables` under the names of their averages, also before Apply: a Saver (train/saver.h) of
  // them restores the averages in place of the variables.
  std::vector<ModelVariable> VariablesToRestore(std::span<const ModelVariable> variables) const;
  // `variables` with the values of their averages in place of their own, names unchanged: for a
  // model that is built again for evaluation.
  Result<std::vector<ModelVariable>> Averaged(std::span<const ModelVariable> variables) const;

 private:
  // 1 - decay of this step, a float scalar.
  Output Rate(const Scope& scope) const;
  void Collect(const ModelVariable& variable) const;
  const ModelVariable* Find(const Output& key) const;

  const double decay_;
  const MovingAverageOptions options_;
  std::map<Endpoint, ModelVariable> shadows_;  // by handle or tensor
};

}  // namespace monograph
