// Where: the positions of the elements that are not zero.
#pragma once

#include "graph/scope.h"

namespace monograph {

// int64 of shape [elements of `condition` that are true or not zero, rank of condition]: a row of
// indices for each, in the order in which they lie. tf.where with one argument; with three it is
// Select.
Output Where(const Scope& scope, const Output& condition);

}  // namespace monograph
