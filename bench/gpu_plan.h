// What a step does on a GPU, without one: the launches of each node, the bytes of the device's
// memory that it reads and writes, and how long that takes at least. The step runs with CUDA's
// libraries emulated (tests/gpu/emulated/) and computes nothing.
#pragma once

#include <functional>
#include <string>

namespace monograph::bench {

// The rate that bounds are printed for: what an H200's memory gives a copy.
inline constexpr double kPlanBytesPerSecond = 4.3e12;

// Starts this program once more with the emulated libraries in the place of CUDA's, unless it runs
// with them already. Ends it if they are not beside it: tests must have been built.
void EmulateGpu(char** argv);

// Prints a table of the nodes in their order and one by op. `traced` runs a traced step and gives
// its trace (RunMetadata::trace_json); after EmulateGpu. Launches are kernels, copies and calls of
// libraries, each of which is a node of a CUDA graph or more.
void PrintPlan(const std::string& name, const std::function<std::string()>& traced);

}  // namespace monograph::bench
