// The attributes by which nodes of this folder count their features.
#pragma once

#include "base/status.h"
#include "graph/attr.h"

namespace monograph::ops::example {

// InvalidArgument unless all the attributes of a node that say how many sparse, dense or ragged
// features it has agree with each other.
Status CheckCounts(const Attrs& attrs);

}  // namespace monograph::ops::example
