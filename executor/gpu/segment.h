// Segment: nodes of one GPU that are launched together (executor/gpu/segments.h), as one
// asynchronous kernel of the plan. It is done, for the step, when all is issued.
//
// The first run of each set of input shapes measures which memory the nodes take. The next ones
// have it planned: what does not leave the segment shares one arena of the device, in stream order,
// and nothing is allocated but what leaves. Then the stretches of replayable nodes are captured as
// graphs, and replayed as long as everything that a graph has fixed is as it was: shapes,
// addresses, values of host arguments, and variables that stay in their place; where it is not, the
// nodes are launched one by one, and captured anew, or not any more if that happens again and
// again. A traced step is launched node by node.
//
// Joint collectives are items of the segment that leads to them. Such a segment is launched when
// all members' are (executor/gpu/joint_launch.h), which agree on whether they replay, capture or
// launch node by node the range that has the collectives; it is done, for the step, when the GPU
// has done it, so that nothing that follows sees what a collective that fails has left.
//
// What nodes may keep beyond the run (SegmentItem::keeps) stays as it is when the segment runs
// again, maybe in the same step: it lies outside the arena, and is copied if a graph made it. What
// they give out is copied to a place of its own before a graph takes it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/gpu/copies.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/launcher.h"
#include "executor/gpu/segments.h"
#include "executor/kernel.h"

namespace monograph {

struct JointCollective;  // executor/gpu/joint_launch.h

struct SegmentItem {
  struct Use {
    uint32_t output;
    uint32_t slot;
  };
  std::unique_ptr<Kernel> kernel;
  std::shared_ptr<JointCollective> collective;  // in place of a kernel
  std::string name, op;
  std::string who;                     // "node 'x' (Op) on /job:..."
  const std::string* owner = nullptr;  // for the table of memory
  uint32_t first_input = 0;            // slot
  std::vector<DType> inputs, outputs;
  // By input and output; bool[] because a context points to them.
  std::unique_ptr<bool[]> host_inputs, host_outputs;
  std::vector<Use> uses;                             // by nodes of the segment
  std::vector<std::pair<uint32_t, uint32_t>> exits;  // output, and its number outside
  bool replayable = false;
  bool reads_only = false;  // it leaves the variables that it is given as they are
  // It may leave what it is given with a resource or in a variant (a TensorArray, a stack, a list),
  // for as long as that likes, and give out what was left there: a node with such inputs or outputs
  // that is not replayed.
  bool keeps() const;
};

struct SegmentSpec {
  GpuDevice* device = nullptr;
  int32_t order = 0;               // among the segments of a step that could be launched
  std::string what;                // names its nodes, for errors that belong to no single one
  std::vector<SegmentItem> items;  // in launch order
  uint32_t slots = 0;
  std::vector<std::vector<uint32_t>> entries;  // by input: the slots that it goes to
  std::vector<bool> host_entries;
  std::vector<std::shared_ptr<const Inbound>> inbounds;  // copies that inputs come from
  std::vector<bool> host_exits;
  // By output: whether a copy waits for an event that is recorded behind it.
  std::vector<bool> awaited_exits;
};

class Segment : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Segment>> Make(SegmentSpec spec);
  // Recorded when output `exit` was issued last.
  virtual EventId exit_event(uint32_t exit) const = 0;
};

// An asynchronous kernel of a GPU, begun on the device's launching thread.
std::unique_ptr<AsyncKernel> MakeLaunched(GpuDevice* device, std::unique_ptr<Kernel> kernel,
                                          HostPlaces places);

}  // namespace monograph
