// Variables: values that live in a task and outlive steps.
//
//   Operation w = VarHandle(scope.WithOpName("w"), DT_FLOAT, {784, 10});
//   Operation init = AssignVariable(scope, w, initial_value);       // run once
//   Output value = ReadVariable(scope, w);                          // a snapshot, without a copy
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// A handle to the variable (container, shared_name), which lives in the task where the handle is
// computed. Empty names mean the session's container and the node's own name. Two handles that name
// one variable must agree in type and shape.
Output VarHandle(const Scope& scope, DType dtype, const PartialShape& shape,
                 const std::string& container = "", const std::string& shared_name = "");
// The value at that moment. FailedPrecondition if the variable has none yet.
Output ReadVariable(const Scope& scope, Output handle, DType dtype);
// As above, with the type that the handle's own node gives. REQUIRES: `handle` comes from a
// VarHandleOp, perhaps through Identity.
Output ReadVariable(const Scope& scope, Output handle);

Operation AssignVariable(const Scope& scope, Output handle, Output value);
Operation AssignAddVariable(const Scope& scope, Output handle, Output value);
Operation AssignSubVariable(const Scope& scope, Output handle, Output value);
// Adds 1 to an integer scalar; the value before, which no other call gets, too. OutOfRange "Reached
// limit of <limit>" if it is not below `limit`.
Output ResourceCountUpTo(const Scope& scope, Output handle, int64_t limit, DType dtype);
Output VarIsInitialized(const Scope& scope, Output handle);
Output VariableShape(const Scope& scope, Output handle, DType out_type = DT_INT32);
// Rows of the variable, without reading all of it: only they leave the task where it lives. The
// gradient with regard to the handle is rows, too.
Output ResourceGather(const Scope& scope, Output handle, Output indices, DType dtype);
// Adds updates[i, ...] to row indices[i] of the variable, in order of i; a scalar to all those
// rows.
Operation ResourceScatterAdd(const Scope& scope, Output handle, Output indices, Output updates);
// Subtracts them.
Operation ResourceScatterSub(const Scope& scope, Output handle, Output indices, Output updates);
Operation DestroyResource(const Scope& scope, Output handle, bool ignore_lookup_error = true);

}  // namespace monograph
