// Lost updates: of a variable that an assignment gives what was computed from its own value, while
// something else in the step updates it.
//
//   w ──> read ──> clip ──> assign w         (a)
//   gradient ─────────────> update w         (b)
//
// If (b) comes between (a)'s read and its assignment, it is lost. TensorFlow 1.x leaves the order
// open, but starts what is ready first, so that its users' programs, which run [train, clip] in one
// step, see (a) before (b). Here what is on the longest way comes first, and (a) is on none.
#pragma once

#include "graph/graph.h"

namespace monograph {

// Lets other updates of a variable wait for such an assignment, in a step's graph with variables by
// handle, where no way through the graph orders the two already. Assignments and updates in
// branches or loops, and two assignments that both start from a read, stay as they are. Errors are
// those of control flow that cannot be.
Status OrderLostUpdates(Graph* graph);

}  // namespace monograph
