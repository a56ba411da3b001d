// The ops and kernels that this program knows: all of Monograph's, and what the program adds before
// its first Graph.
#pragma once

#include "executor/kernel.h"
#include "graph/graph.h"

namespace monograph {

struct Registries {
  OpRegistry ops;
  KernelRegistry kernels;
};

// Made at first use, with every op of ops/. A program that brings ops of its own adds them here
// before it makes graphs or servers; later changes race with readers. Lives until the process ends.
Registries& DefaultRegistries();

// An empty graph over DefaultRegistries().ops.
Graph NewGraph();

}  // namespace monograph
