// What a step does on a GPU, without one: the launches of each node, the bytes of the device's
// memory that it reads and writes, and how long that takes at least. The step runs with CUDA's
// libraries emulated (tests/gpu/emulated/) and computes nothing.
#pragma once

#include <functional>
#include <string>

#include "graph/graph.h"

namespace monograph::bench {

// The rate that bounds are printed for: what an H200's memory gives a copy.
inline constexpr double kPlanBytesPerSecond = 4.3e12;

// Starts this program once more with the emulated libraries in the place of CUDA's, unless it runs
// with them already. Ends it if they are not beside it: tests must have been built.
void EmulateGpu(char** argv);

// How many times the least bytes (bench/gpu_least.h) a step may move.
inline constexpr double kGoalOfBytes = 1.15;

// Prints a table of the nodes in their order, one by op, and one of what `step`, the client's graph
// of it, must move at least. `traced` runs a traced step and gives its trace
// (RunMetadata::trace_json); after EmulateGpu. Launches are kernels, copies and calls of libraries,
// each of which is a node of a CUDA graph or more.
void PrintPlan(const std::string& name, const Graph& step,
               const std::function<std::string()>& traced);

}  // namespace monograph::bench
