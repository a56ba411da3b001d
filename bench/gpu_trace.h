// What a traced step says of its nodes on a GPU: how long each took, how many bytes it moved, and
// how near our own kernels come to the rate of a copy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cuda_floor.h"
#include "bench/gpu_steps.h"
#include "bench/harness.h"
#include "graph/graph.h"

namespace monograph::bench {

struct TracedNode {
  std::string name, op;
  double start = 0, us = 0;  // microseconds
  int64_t bytes = 0;         // of its tensors, and what it reads again (bench/gpu_least.h)
};

// The nodes on GPUs of a trace (RunMetadata::trace_json) of `step`, the client's graph of it, in
// their order.
std::vector<TracedNode> NodesOnGpu(const Graph& step, const std::string& trace);

// Of our own kernels that move this much, a rate is looked at: below it the times of a traced step,
// whose nodes are launched one by one, are the launches'.
inline constexpr int64_t kBytesWithRate = 16'000'000;
// Of the rate of a copy within the device.
inline constexpr Goal kGoalOfCopy{0.85, Goal::kMin};

// Traces the step several times. Prints the 40 nodes that take longest, and reports GB/s of our own
// kernels, of each op and together, against a copy of the device's memory.
void CompareWithCopy(const Args& args, CudaFloors& floors, Report& report, const GpuStep& step,
                     const std::string& name);

// Bytes read and written per second by cudaMemcpyAsync from the device to itself.
double DeviceCopyRate(CudaFloors& floors);

}  // namespace monograph::bench
