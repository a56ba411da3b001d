// GroupCasts: the rewrite that makes one node (and so one launch) of what a GPU does to variables
// before a step computes with them: casts to 16 bits, and the filters of convolutions laid as cuDNN
// wants them, which each convolution would else do for itself.
//
//   Cast(ReadVariableOp(w)), Conv2D(x, Cast(ReadVariableOp(f)))
//     becomes  _MultiCast(ReadVariableOp(w), ReadVariableOp(f))
//              _FusedConv2D(x, f with its last dimension first), filter_last_first = true
//
// and likewise Conv2DBackpropInput, which becomes _Conv2DBackpropInput. At the other end of the
// step it does the same to the gradients of filters that one update of many variables reads:
//
//   _MultiResourceApply(.., Conv2DBackpropFilter(a), Conv2DBackpropFilter(b))
//     becomes  _MultiResourceApply(.., _MultiCast(_Conv2DBackpropFilter(a),
//                                                 _Conv2DBackpropFilter(b)), back = true)
//
// Only variables of the same
// GPU whose reading, and casting, waits for nothing: so all of it can run at the beginning of a
// step. Left out are 1x1 filters with strides of 1, which need no
// transposition, and NCHW. The results have the same bits; they occupy memory from the beginning of
// the step until they are used.
//
// Runs behind FuseOps, which looks for convolutions by their plain names.
#pragma once

#include "graph/graph.h"

namespace monograph {

// A graph where nothing is to be gained comes back as it is.
Result<Graph> GroupCasts(Graph graph);

}  // namespace monograph
