// FuseOps: the rewrite that lets kernels do in one pass over memory what a graph says in several
// nodes.
//
//   Conv2D + BiasAdd (+ Relu)          becomes  _FusedConv2D, attrs num_args = 1 and
//                                               fused_ops = ["BiasAdd", "Relu"]
//   MatMul + BiasAdd (+ Relu)          becomes  _FusedMatMul, the same
//   ReluGrad(MaxPoolGrad(x, y, g), x)  becomes  MaxPoolGrad(x, y, ReluGrad(g, y))
//   FusedBatchNormV3 (+ AddV2) + Relu  becomes  _FusedBatchNormEx, attr activation_mode = "Relu"
//   its gradient after a ReluGrad (and,
//     if there was an AddV2, an AddN)  becomes  _FusedBatchNormGradEx
//   on a CPU:
//   Conv2DBackpropFilter(MaxPoolGrad), Conv2DBackpropInput(MaxPoolGrad)
//                                      become   _Conv2DBackprop: the two of one convolution, or one
//                                               or two of them behind a 2x2 pooling
//
// A BiasAddGrad of the third reads the pooled gradient, ReluGrad(g, y): the gradient of a window
// goes to its maximum alone, where x > 0 exactly if y > 0, so both gradients have the same sums.
// Only where nobody else uses what lies between, all on one device; of float and bfloat16, and on a
// GPU of half, too. The last node keeps its name. The results are those of the
// separate nodes up to rounding.
#pragma once

#include "graph/graph.h"

namespace monograph {

Result<Graph> FuseOps(const Graph& graph);

}  // namespace monograph
