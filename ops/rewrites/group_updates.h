// GroupUpdates: the rewrite that makes one node (and so one launch) of the updates of all variables
// of a GPU, where they are of one kind and share their coefficients.
//
//   ResourceApplyAdam(w, w_m, w_v, ..., dw), ResourceApplyAdam(b, b_m, b_v, ..., db)
//     becomes  _MultiResourceApply(w, w_m, w_v, b, b_m, b_v, ..., dw, db)
//
// Gradients that are cast to float from half or bfloat16 for nothing else are read as they are: the
// casts go. Only updates that do not wait for one another, on one GPU, of one type. On a CPU each
// update whose gradient is so cast from bfloat16 becomes such a node by itself. The results have
// the same bits. The new node has the name of one of the old ones, and runs when all gradients are
// there.
#pragma once

#include "graph/graph.h"

namespace monograph {

// A graph without such updates comes back as it is.
Result<Graph> GroupUpdates(Graph graph);

}  // namespace monograph
