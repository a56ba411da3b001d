// Stacks of tensors, which live within one step: what TensorFlow's gradient of a loop keeps the
// values of its forward iterations in.
#pragma once

#include "graph/scope.h"

namespace monograph {

// An empty stack of its own in every step (and iteration); it goes with the last copy of the
// handle. `max_size`: int32 scalar, negative for no bound.
Output Stack(const Scope& scope, DType elem_type, const Output& max_size);
// `elem`, which is on the stack then. InvalidArgument if the stack is full or closed, or `elem` is
// of another type.
Output StackPush(const Scope& scope, const Output& stack, const Output& elem);
// Takes the last tensor off. InvalidArgument if there is none.
Output StackPop(const Scope& scope, const Output& stack, DType elem_type);
// Drops what is on the stack; it takes nothing more.
Operation StackClose(const Scope& scope, const Output& stack);

}  // namespace monograph
