// What the targets of graphs share.
#pragma once

#include "graph/graph_def.h"

namespace monograph::fuzz {

// All ops of Monograph.
const OpRegistry& KnownOps();

// A few bytes that ask for much memory would only slow the search.
inline const ImportOptions kSmallGraphs{.most_expanded_bytes = 1 << 20};

}  // namespace monograph::fuzz
