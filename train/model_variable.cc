#include "train/model_variable.h"

#include "ops/constant/constant.h"
#include "ops/variable/variable.h"

namespace monograph {

ModelVariable MakeVariable(const Scope& scope, const std::string& name, Output initial) {
  if (!scope.ok() || !initial.valid()) return {.name = name};
  if (!initial.shape().fully_known()) {
    scope.Fail(InvalidArgument("variable '" + name +
                               "' needs an initial value of known shape, not " +
                               initial.shape().ToString()));
    return {.name = name};
  }
  return MakeVariable(scope, name, initial.shape().AsShape(), initial.dtype(),
                      [&](const Scope&) { return initial; });
}

ModelVariable MakeVariable(const Scope& scope, const std::string& name, const Shape& shape,
                           DType dtype, const std::function<Output(const Scope& beside)>& initial) {
  ModelVariable variable{.name = name, .dtype = dtype, .shape = shape};
  if (!scope.ok()) return variable;
  variable.handle = VarHandle(scope.WithOpName(name), variable.dtype, variable.shape);
  if (!scope.ok()) return variable;
  const Scope beside = scope.ColocateWith(variable.handle);
  const Output value = initial(beside.ReuseScope(name + "/Initializer"));
  if (!scope.ok()) return variable;
  variable.initializer =
      AssignVariable(beside.WithOpName(name + "/Assign"), variable.handle, value);
  variable.value = ReadVariable(beside.WithOpName(name + "/Read"), variable.handle, variable.dtype);
  return variable;
}

ModelVariable MakeSlot(const Scope& scope, const Output& beside, const std::string& name,
                       const Output& initial) {
  if (!scope.ok()) return {};
  const Scope place = Scope(scope.graph()).ColocateWith(beside);
  // The name is made unique here, so that the nodes that read and assign the slot are named after
  // it.
  ModelVariable made = MakeVariable(place, scope.graph()->UniqueName(name), initial);
  scope.Fail(place.status());
  if (made.handle.valid()) made.name = scope.graph()->name(made.handle.node());
  return made;
}

ModelVariable MakeSlot(const Scope& scope, const Output& beside, const std::string& name,
                       DType dtype, const Shape& shape, double initial) {
  if (!scope.ok()) return {};
  const std::string unique = scope.graph()->UniqueName(name);
  const Scope place = Scope(scope.graph()).ColocateWith(beside).ReuseScope(unique + "/Initializer");
  const Output value =
      Fill(place, IntsConst(place, shape.dims()), ScalarConst(place, initial, dtype));
  scope.Fail(place.status());
  return MakeSlot(scope, beside, unique, value);
}

ModelVariable MakeGlobalStep(const Scope& scope) {
  return MakeVariable(scope, "global_step", Const(scope, int64_t{0}));
}

}  // namespace monograph
