// The variables of a model, as their nodes, and those that belong to them: slots of optimizers, the
// global step.
#pragma once

#include <functional>
#include <string>

#include "graph/scope.h"

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

}  // namespace monograph
