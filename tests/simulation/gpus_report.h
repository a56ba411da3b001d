// What a topology of GPUs does in the backward pass of a model whose gradients are summed in
// buckets: times, bytes by link, and the order of launches.
#pragma once

#include <string_view>

#include "tests/simulation/gpu_world.h"

namespace monograph::simulation {

struct GpuReport {
  int gpus = 0, nodes = 1;  // gpus = 0: there is no report
  GpuTopology topology;
  double megabytes = 102;  // of gradients; each GPU has all
  int buckets = 10;
  double backward_ms = 20;  // what a GPU computes
  double spread = 5;        // percent by which the slowest GPU takes longer
  bool shuffle = false;     // each GPU has its buckets ready in an order of its own
};

// One of the report's flags, "--gpus=16" or as kGpuReportFlags says. False: it is none, or its
// value is wrong.
bool ReadGpuFlag(std::string_view flag, GpuReport* report);
inline constexpr char kGpuReportFlags[] =
    "--gpus=N [--nodes=N] [--nvlink=GB/s] [--nic=GB/s] [--nics=N] [--process_each] [--any_order] "
    "[--mb=N] [--buckets=N] [--backward_ms=N] [--spread=PERCENT] [--shuffle]";

// Prints it. 0, or an exit status.
int PrintGpuReport(GpuReport report);

}  // namespace monograph::simulation
