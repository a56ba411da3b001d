// Ops that join and part tensors: ConcatV2, ConcatOffset, Split, SplitV, Pack, Unpack.
#pragma once

#include "graph/scope.h"

namespace monograph {

// The values one after the other along `axis`.
Output Concat(const Scope& scope, const Outputs& values, int axis);
Output Concat(const Scope& scope, const Outputs& values, const Output& axis);
// Where each input begins in the result of a Concat of inputs with these shapes (vectors).
Outputs ConcatOffset(const Scope& scope, const Output& axis, const Outputs& shapes);
// `num_split` equal parts along `axis`. Parts along axis 0 share the input's memory.
Outputs Split(const Scope& scope, const Output& value, int num_split, int axis);
// Parts of the given sizes along `axis`; one size may be -1: what is left.
Outputs SplitV(const Scope& scope, const Output& value, std::span<const int64_t> sizes, int axis);
Outputs SplitV(const Scope& scope, const Output& value, const Output& sizes, const Output& axis,
               int num_split);
// N tensors of one shape into one with a new dimension N at `axis`; and back (tf.stack,
// tf.unstack).
Output Pack(const Scope& scope, const Outputs& values, int axis = 0);
Outputs Unpack(const Scope& scope, const Output& value, int num, int axis = 0);

}  // namespace monograph
