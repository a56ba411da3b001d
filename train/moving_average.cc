// Averages are slots beside what they average. An update is two kernels, a subtraction and a
// descent by the rate 1 - decay, which run in place on the average's own task: only the rate
// travels.
#include "train/moving_average.h"

#include <utility>

#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"
#include "train/collections.h"

namespace monograph {
namespace {

// shadow -= rate * (shadow - value): the product and the subtraction are one pass over the shadow,
// in place.
Operation Approach(const Scope& scope, const ModelVariable& shadow, const Output& value,
                   const Output& rate) {
  const Output distance = Sub(scope, ReadVariable(scope, shadow.handle, shadow.dtype), value);
  const Output as_shadow = shadow.dtype == DT_FLOAT ? rate : Cast(scope, rate, shadow.dtype);
  return ResourceApplyGradientDescent(scope, shadow.handle, as_shadow, distance);
}

// What the variable is initialised to; the same node in the same step gives the same value.
Result<Output> InitialValue(const ModelVariable& variable) {
  const Operation& assign = variable.initializer;
  if (assign.valid() && assign.graph->is(assign.id, "AssignVariableOp")) return assign.input(1);
  return InvalidArgument("moving average of variable '" + variable.name +
                         "': its initializer is no assignment of a value");
}

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(double decay, MovingAverageOptions options)
    : decay_(decay), options_(std::move(options)) {}

Result<Operation> ExponentialMovingAverage::Apply(const Scope& scope,
                                                  std::span<const ModelVariable> variables,
                                                  std::vector<Operation>* initializers) {
  MG_RETURN_IF_ERROR(scope.status());
  const Scope inner = scope.SubScope(options_.name);
  const Output rate = Rate(inner);
  std::vector<Operation> updates;
  for (const ModelVariable& variable : variables) {
    const ModelVariable* shadow = Average(variable);
    if (shadow == nullptr) {
      MG_ASSIGN_OR_RETURN(const Output initial, InitialValue(variable));
      const ModelVariable made = MakeSlot(scope, variable.handle, AverageName(variable), initial);
      MG_RETURN_IF_ERROR(scope.status());
      initializers->push_back(made.initializer);
      shadow = &shadows_.insert_or_assign(variable.handle.endpoint, made).first->second;
      Collect(variable);
    }
    const Scope beside = inner.ColocateWith(variable.handle);
    updates.push_back(
        Approach(beside, *shadow, ReadVariable(beside, variable.handle, variable.dtype), rate));
  }
  const Operation all = Group(inner, updates);
  MG_RETURN_IF_ERROR(scope.status());
  return all;
}

Result<Operation> ExponentialMovingAverage::Apply(const Scope& scope, const Output& tensor,
                                                  std::vector<Operation>* initializers) {
  MG_RETURN_IF_ERROR(scope.status());
  if (!tensor.valid() || !IsFloating(tensor.dtype()) || !tensor.shape().fully_known()) {
    return InvalidArgument("moving average of " +
                           (tensor.valid() ? "'" + tensor.name() + "', " +
                                                 std::string(DTypeName(tensor.dtype())) +
                                                 tensor.shape().ToString()
                                           : std::string("nothing")) +
                           ": needs a floating-point tensor of known shape");
  }
  const Scope inner = scope.SubScope(options_.name);
  const std::string name = std::string(tensor.graph->name(tensor.node())) + "/" + options_.name;
  const Shape shape = tensor.shape().AsShape();
  auto slot = [&](const std::string& slot_name, const Shape& slot_shape) {
    ModelVariable made = MakeSlot(scope, tensor, slot_name, tensor.dtype(), slot_shape, 0);
    initializers->push_back(made.initializer);
    return made;
  };
  if (Find(tensor) != nullptr)
    return FailedPrecondition("'" + tensor.name() + "' has a moving average already");
  const ModelVariable& average =
      shadows_.insert_or_assign(tensor.endpoint, slot(name, shape)).first->second;
  const Scope beside = inner.ColocateWith(tensor);
  const Output rate = Rate(inner);
  if (!options_.zero_debias) {
    const Operation update = Approach(beside, average, tensor, rate);
    MG_RETURN_IF_ERROR(scope.status());
    return update;
  }
  // The average from zero is too small by 1 - decay^n after n steps.
  const ModelVariable biased = slot(name + "/biased", shape),
                      steps = slot(name + "/local_step", Shape());
  MG_RETURN_IF_ERROR(scope.status());
  const Operation moved = Approach(beside, biased, tensor, rate);
  const Output one = ScalarConst(beside, 1, tensor.dtype());
  const Operation counted = AssignAddVariable(beside, steps.handle, one);
  const Scope after = beside.WithControlDependencies({moved, counted});
  const Output decay = Sub(beside, one, Cast(beside, rate, tensor.dtype()));
  const Output factor =
      Sub(beside, one, Pow(beside, decay, ReadVariable(after, steps.handle, steps.dtype)));
  const Operation update =
      AssignVariable(beside, average.handle,
                     RealDiv(beside, ReadVariable(after, biased.handle, biased.dtype), factor));
  MG_RETURN_IF_ERROR(scope.status());
  return update;
}

Output ExponentialMovingAverage::Rate(const Scope& scope) const {
  const Output one = ScalarConst(scope, 1, DT_FLOAT), decay = ScalarConst(scope, decay_, DT_FLOAT);
  if (!options_.num_updates.valid()) return Sub(scope, one, decay);
  const Scope place = scope.ColocateWith(options_.num_updates);
  // A variable is read anew, after what `scope` waits for: a read that the caller made earlier has
  // no order with regard to the update.
  const Operation given(options_.num_updates);
  const Output now = given.graph->is(given.id, "ReadVariableOp")
                         ? ReadVariable(place, given.input(0), options_.num_updates.dtype())
                         : options_.num_updates;
  const Output updates = Cast(place, now, DT_FLOAT);
  const Output at_first = RealDiv(place, Add(place, one, updates),
                                  Add(place, ScalarConst(place, 10, DT_FLOAT), updates));
  return Sub(place, one, Minimum(place, decay, at_first));
}

void ExponentialMovingAverage::Collect(const ModelVariable& variable) const {
  if (options_.collections == nullptr) return;
  for (const auto& item : options_.collections->Items(GraphKeys::kMovingAverageVariables)) {
    const auto* known = std::get_if<ModelVariable>(&item);
    if (known != nullptr && known->handle.endpoint == variable.handle.endpoint) return;
  }
  options_.collections->Add(GraphKeys::kMovingAverageVariables, variable);
}

const ModelVariable* ExponentialMovingAverage::Find(const Output& key) const {
  const auto it = shadows_.find(key.endpoint);
  return it != shadows_.end() && it->second.handle.graph == key.graph ? &it->second : nullptr;
}

const ModelVariable* ExponentialMovingAverage::Average(const ModelVariable& variable) const {
  return Find(variable.handle);
}

const ModelVariable* ExponentialMovingAverage::Average(const Output& tensor) const {
  return Find(tensor);
}

std::string ExponentialMovingAverage::AverageName(const ModelVariable& variable) const {
  return std::string(variable.handle.graph->name(variable.handle.node())) + "/" + options_.name;
}

std::vector<ModelVariable> ExponentialMovingAverage::VariablesToRestore(
    std::span<const ModelVariable> variables) const {
  std::vector<ModelVariable> renamed(variables.begin(), variables.end());
  for (ModelVariable& variable : renamed) variable.name = AverageName(variable);
  return renamed;
}

Result<std::vector<ModelVariable>> ExponentialMovingAverage::Averaged(
    std::span<const ModelVariable> variables) const {
  std::vector<ModelVariable> averaged;
  for (ModelVariable variable : variables) {
    const ModelVariable* shadow = Average(variable);
    if (shadow == nullptr)
      return InvalidArgument("variable '" + variable.name +
                             "' has no moving average: give it to Apply first");
    variable.value = shadow->value;
    averaged.push_back(std::move(variable));
  }
  return averaged;
}

}  // namespace monograph
