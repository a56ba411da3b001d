#include "client/optimizer.h"

#include <utility>

#include "graph/gradients.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"

namespace monograph {

// One optimizer's formula.
class OptimizerRule {
 public:
  virtual ~OptimizerRule() = default;
  virtual std::string name() const = 0;

  // What all variables of one device share (decay powers); `anchor` is the first of them.
  struct Shared {
    std::vector<ModelVariable> values;
  };
  virtual Shared MakeShared(const Scope&, std::vector<Operation>*) const { return {}; }
  virtual Operation Apply(const Scope& scope, const GradientAndVariable& pair, const Shared& shared,
                          std::vector<Operation>* initializers) const = 0;
  // Updates what is shared, once all of `applied` have run. Invalid if there is nothing to do.
  virtual Operation Finish(const Scope&, const Shared&, std::span<const Operation>) const { return {}; }

 protected:
  static ModelVariable Slot(const Scope& scope, const ModelVariable& of, const std::string& slot,
                            std::vector<Operation>* initializers) {
    ModelVariable made = MakeVariable(scope, of.name + "/" + slot, Zeros(scope.WithOpName(of.name + "/" + slot + "/zeros"), of.shape, of.dtype));
    initializers->push_back(made.initializer);
    return made;
  }
};

namespace {

class GradientDescentRule : public OptimizerRule {
 public:
  explicit GradientDescentRule(double learning_rate) : learning_rate_(learning_rate) {}
  std::string name() const override { return "GradientDescent"; }
  Operation Apply(const Scope& scope, const GradientAndVariable& pair, const Shared&, std::vector<Operation>*) const override {
    const DType dtype = pair.variable.dtype;
    return ResourceApplyGradientDescent(scope, pair.variable.handle, ScalarConst(scope, learning_rate_, dtype), pair.gradient);
  }

 private:
  const double learning_rate_;
};

class MomentumRule : public OptimizerRule {
 public:
  MomentumRule(double learning_rate, double momentum, bool use_nesterov)
      : learning_rate_(learning_rate), momentum_(momentum), use_nesterov_(use_nesterov) {}
  std::string name() const override { return "Momentum"; }
  Operation Apply(const Scope& scope, const GradientAndVariable& pair, const Shared&,
                  std::vector<Operation>* initializers) const override {
    const DType dtype = pair.variable.dtype;
    const ModelVariable accumulator = Slot(scope, pair.variable, "Momentum", initializers);
    return ResourceApplyMomentum(scope, pair.variable.handle, accumulator.handle, ScalarConst(scope, learning_rate_, dtype),
                                 pair.gradient, ScalarConst(scope, momentum_, dtype), use_nesterov_);
  }

 private:
  const double learning_rate_, momentum_;
  const bool use_nesterov_;
};

class AdamRule : public OptimizerRule {
 public:
  AdamRule(double learning_rate, double beta1, double beta2, double epsilon)
      : learning_rate_(learning_rate), beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  std::string name() const override { return "Adam"; }

  // The powers of the decay rates live beside the variables that they serve: one pair per device, so that an update never waits for another task.
  Shared MakeShared(const Scope& scope, std::vector<Operation>* initializers) const override {
    Shared shared;
    shared.values.push_back(MakeVariable(scope, "beta1_power", ScalarConst(scope, beta1_, DT_FLOAT)));
    shared.values.push_back(MakeVariable(scope, "beta2_power", ScalarConst(scope, beta2_, DT_FLOAT)));
    for (const ModelVariable& value : shared.values) initializers->push_back(value.initializer);
    return shared;
  }
  Operation Apply(const Scope& scope, const GradientAndVariable& pair, const Shared& shared,
                  std::vector<Operation>* initializers) const override {
    const DType dtype = pair.variable.dtype;
    const ModelVariable m = Slot(scope, pair.variable, "Adam", initializers);
    const ModelVariable v = Slot(scope, pair.variable, "Adam_1", initializers);
    return ResourceApplyAdam(scope, pair.variable.handle, m.handle, v.handle, shared.values[0].value, shared.values[1].value,
                             ScalarConst(scope, learning_rate_, dtype), ScalarConst(scope, beta1_, dtype),
                             ScalarConst(scope, beta2_, dtype), ScalarConst(scope, epsilon_, dtype), pair.gradient);
  }
  Operation Finish(const Scope& scope, const Shared& shared, std::span<const Operation> applied) const override {
    const Scope after = scope.WithControlDependencies(applied);
    const Operation first = AssignVariable(after, shared.values[0].handle,
                                           Mul(after, shared.values[0].value, ScalarConst(scope, beta1_, DT_FLOAT)));
    const Operation second = AssignVariable(after, shared.values[1].handle,
                                            Mul(after, shared.values[1].value, ScalarConst(scope, beta2_, DT_FLOAT)));
    return Group(scope, {first, second});
  }

 private:
  const double learning_rate_, beta1_, beta2_, epsilon_;
};

}  // namespace

ModelVariable MakeVariable(const Scope& scope, const std::string& name, Output initial) {
  ModelVariable variable;
  variable.name = name;
  if (!scope.ok() || !initial.valid()) return variable;
  if (!initial.shape().fully_known()) {
    scope.Fail(InvalidArgument("variable '" + name + "' needs an initial value of known shape, not " + initial.shape().ToString()));
    return variable;
  }
  variable.dtype = initial.dtype();
  variable.shape = initial.shape().AsShape();
  variable.handle = VarHandle(scope.WithOpName(name), variable.dtype, variable.shape);
  if (!scope.ok()) return variable;
  const Scope beside = scope.ColocateWith(variable.handle);
  variable.initializer = AssignVariable(beside.WithOpName(name + "/Assign"), variable.handle, initial);
  variable.value = ReadVariable(beside.WithOpName(name + "/Read"), variable.handle, variable.dtype);
  return variable;
}

Operation Optimizer::ApplyGradients(const Scope& scope, std::span<const GradientAndVariable> pairs,
                                    std::vector<Operation>* initializers) const {
  const Scope inner = scope.SubScope(rule_->name());
  // Variables of one device share a finish.
  std::vector<std::pair<std::string, std::vector<const GradientAndVariable*>>> by_device;
  for (const GradientAndVariable& pair : pairs) {
    if (!scope.ok() || !pair.variable.handle.valid()) return {};
    if (!pair.gradient.valid()) {
      scope.Fail(InvalidArgument("variable '" + pair.variable.name + "' has no gradient: the loss does not depend on it"));
      return {};
    }
    if (pair.sparse()) {
      scope.Fail(Unimplemented("variable '" + pair.variable.name + "' has a sparse gradient, which " + rule_->name() + " cannot apply"));
      return {};
    }
    const std::string device = scope.graph()->device(pair.variable.handle.node()).ToString();
    auto it = by_device.begin();
    while (it != by_device.end() && it->first != device) ++it;
    if (it == by_device.end()) it = by_device.emplace(by_device.end(), device, std::vector<const GradientAndVariable*>());
    it->second.push_back(&pair);
  }
  std::vector<Operation> all;
  for (const auto& [device, members] : by_device) {
    const Scope beside = inner.WithDevice(device);
    const OptimizerRule::Shared shared = rule_->MakeShared(beside, initializers);
    std::vector<Operation> applied;
    for (const GradientAndVariable* pair : members) {
      if (!scope.ok()) return {};
      applied.push_back(rule_->Apply(beside.ColocateWith(pair->variable.handle), *pair, shared, initializers));
    }
    if (!scope.ok()) return {};
    const Operation finish = rule_->Finish(beside, shared, applied);
    all.insert(all.end(), applied.begin(), applied.end());
    if (finish.valid()) all.push_back(finish);
  }
  return Group(inner.WithOpName("update"), all);
}

Optimizer GradientDescent(double learning_rate) { return Optimizer(std::make_shared<GradientDescentRule>(learning_rate)); }
Optimizer Momentum(double learning_rate, double momentum, bool use_nesterov) {
  return Optimizer(std::make_shared<MomentumRule>(learning_rate, momentum, use_nesterov));
}
Optimizer Adam(double learning_rate, double beta1, double beta2, double epsilon) {
  return Optimizer(std::make_shared<AdamRule>(learning_rate, beta1, beta2, epsilon));
}

Result<std::vector<GradientAndVariable>> ComputeGradients(const Scope& scope, Output loss, std::span<const ModelVariable> variables) {
  std::vector<Output> values;
  for (const ModelVariable& variable : variables) values.push_back(variable.value);
  MG_RETURN_IF_ERROR(scope.status());
  MG_ASSIGN_OR_RETURN(const Outputs gradients, AddGradients(scope, std::span<const Output>(&loss, 1), values));
  std::vector<GradientAndVariable> pairs;
  for (size_t i = 0; i < gradients.size(); ++i) pairs.push_back({gradients[i], {}, variables[i]});
  return pairs;
}

}  // namespace monograph
