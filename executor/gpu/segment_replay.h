// What a segment (executor/gpu/segment.h) keeps from run to run, so that it can replay graphs: its
// ranges, which follow from its nodes alone; by set of input shapes, the plan of its memory and
// what each captured graph has fixed. A graph is valid while all of that is as it was.
//
// Threads: the device's launching thread. None of this allocates host memory in a run that replays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "executor/gpu/segment.h"

namespace monograph {

class JointGraph;
class ResourceManager;
class Variable;

// A stretch of the launch order that is replayed as one graph, or not at all.
struct SegmentRange : ReplayRange {
  struct LiveOut {
    int32_t item;
    uint32_t output;
    bool host;
    std::vector<uint32_t> slots;  // outside the range
    std::vector<uint32_t> exits;
  };
  // The slots of a tensor of the device that a node which keeps() gives, or is given, too, by a
  // node that is not replayed. It lies elsewhere in each run, and a graph must not write it: the
  // graph gets a copy, in place `staged` of SegmentVariant::staging.
  struct Kept {
    size_t staged;
    std::vector<uint32_t> slots;
  };
  std::vector<std::pair<uint32_t, bool>> live_ins;  // slots that are filled from outside; on host
  std::vector<Kept> kept_ins;                       // of these, if the range is replayed
  std::vector<LiveOut> live_outs;
  bool joint = false;  // it has joint collectives
};
std::vector<SegmentRange> MakeRanges(const SegmentSpec& spec);

class CapturedRange {
 public:
  // What leaves the range. A variable's value, or what came into the segment, is not held twice.
  struct Output {
    Tensor tensor;
    int32_t variable = -1, input = -1;  // the tensor views that one's buffer
    DType dtype = DT_INVALID;
    Shape shape;
    size_t offset = 0;
    bool owned = false;  // of the segment's own memory
  };

  // Begins a capture: holds what comes into the range.
  Status Begin(const SegmentRange& range, std::span<const Tensor> slots,
               std::shared_ptr<GpuMemory::Arena> now);
  // After a capture that failed: gives the slots what came into the range.
  void GiveBack(std::span<Tensor> slots, std::span<const Tensor> staging) const;
  // Holds the variables that a node is about to work on, and the value of one that it is about to
  // replace because others hold it, too.
  void HoldVariables(const SegmentItem& item, std::span<const Tensor> inputs,
                     ResourceManager& resources);
  // After the capture, lets go of what came in. `filled`: the slots that had a value before it, and
  // where. Whether all variables have stayed in their places, so that the graph may be replayed.
  bool HoldPlaces(std::span<const std::pair<uint32_t, const void*>> filled);
  // After a capture that failed, because of `why`, or a graph that could not be launched: gives
  // each variable the value that it had before. One that was replaced while nobody else held its
  // value has lost it and is left without one: DataLoss, with its name.
  Status RestoreVariables(const Status& why);
  // Lets go of a tensor that views a variable or an input of the segment (`staging`), and notes
  // which.
  void HoldView(Output* held, std::span<const Tensor> staging) const;
  Tensor View(const Output& held, std::span<const Tensor> staging) const;
  // Whether a replay computes what the nodes would.
  bool Valid(const std::shared_ptr<GpuMemory::Arena>& now, std::span<Tensor> slots);
  void Drop(StreamDriver& driver);

  GraphId graph = -1;
  // Of a range with joint collectives: what launches its graph, in place of `graph`; the
  // communicator that the graph refers to, and the number of the run that captured it.
  std::shared_ptr<JointGraph> joint;
  std::weak_ptr<void> communicator;
  uint64_t capture = 0;
  bool has_graph() const { return graph >= 0 || joint != nullptr; }
  Status Launch(StreamDriver& driver);
  bool off = false;             // launched node by node
  int captures = 0;             // since the last replay
  int32_t next_block = 0;       // of the memory script, behind the range
  std::vector<Output> outputs;  // by live-out

 private:
  struct Input {
    uint32_t slot = 0;
    bool host = false;
    Tensor tensor;  // a host argument, by value; a device tensor only by address:
    const void* data = nullptr;
    DType dtype = DT_INVALID;
    Shape shape;
  };
  // A variable that the range works on, where it was.
  struct Held {
    std::shared_ptr<Variable> variable;
    const void* data = nullptr;
    Shape shape;
    bool written = false;
    bool moved = false;  // it has had other memory since
    Tensor old;          // what was at `data`, if it had to be replaced
    bool StillAt(const Tensor& value) const {
      return data == (value.valid() ? value.raw() : nullptr);
    }
    std::vector<uint32_t> slots;  // that have its value when the range begins
  };
  void LetGo(const Tensor& value, int32_t variable);
  static void HoldVariable(const SegmentItem& item, Held* held);
  bool OnlyOurs(const Tensor& value, std::span<const uint32_t> held, std::span<Tensor> slots);

  std::shared_ptr<GpuMemory::Arena> arena_;
  std::vector<Input> inputs_;
  std::vector<Output> entered_;  // by input, while it is captured
  std::vector<Held> variables_;
  std::vector<Output> spare_views_;
};

// One set of input shapes.
class SegmentVariant {
 public:
  SegmentVariant(std::span<const Tensor> entries, size_t range_count);
  bool Fits(std::span<const Tensor> entries) const;
  // A graph writes its memory again in the next step, so no one else may hold it. If someone does,
  // that memory is left to them, and the variant is run without graphs.
  void CheckKept(StreamDriver& driver);
  // Whether a graph writes the buffer again when it is replayed, or it is written before that.
  bool Rewrites(const Buffer& buffer) const;
  void Forget(StreamDriver& driver);

  MemoryScript script;
  int stale = 0;
  bool replay = true;
  std::vector<Tensor> staging;  // by device input, then SegmentRange::Kept, for replays
  std::vector<CapturedRange> ranges;
  uint64_t used = 0;

 private:
  bool OnlyKept(const CapturedRange::Output& first);

  std::vector<std::pair<DType, Shape>> key_;
  std::vector<CapturedRange::Output*> twins_;
};

}  // namespace monograph
