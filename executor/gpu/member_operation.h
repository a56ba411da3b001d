// One member's part in one collective of GPUs: what the files of GpuMembers share.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/collective/manager.h"
#include "executor/gpu/members.h"

namespace monograph {

// How often what is being put on the queue is looked at.
inline constexpr std::chrono::microseconds kMembersPoll{50};

// What each member says of itself in the roll call.
struct MemberRow {
  uint64_t signature = 0;  // of what members must agree on
  uint64_t current = 0;    // the communicator that it has; 0: none
  uint64_t node = 0;       // NodeOfLink
  bool sends = false;      // a broadcast's sender
  bool any_order = false;  // Communicators::any_order
  bool captures = false;   // a joint segment's range may be one graph
  Shape shape;             // of the first input
};

struct MemberOperation : Arrival, std::enable_shared_from_this<MemberOperation> {
  enum class State {
    kRollCall,  // not all are there; or it goes through the host
    kNumbers,   // all are; its place in the order is not known
    kWaits,     // it is; it is not its turn
    kUnderWay,  // the members thread has it, then the device
    kOver,
  };
  std::shared_ptr<GpuMembers> members;
  std::shared_ptr<CollectiveRequest> request;
  CollectiveManager* manager = nullptr;
  const DeviceMerge* merge = nullptr;
  const std::string* owner = nullptr;
  KernelContext* context = nullptr;  // until done
  Done done;
  std::vector<Tensor> inputs, outputs;
  Buffer scratch;
  // Of a group that was found: what entered its round.
  std::shared_ptr<CollectiveRequest> entry;
  // Through the host: which way it is copied next, and what is there.
  bool down = false;
  std::vector<Tensor> on_host;
  EventId ready = -1;  // the inputs are there
  int rank = -1;
  // Of a joint segment (executor/gpu/joint_launch.h): what launches it, and what its collectives
  // take memory from meanwhile.
  LaunchTask* task = nullptr;
  bool captures = false;
  Allocator* memory = nullptr;

  // Guarded by the members' mutex.
  State state = State::kRollCall;
  bool cancelled = false;
  std::shared_ptr<CollectiveRequest> meeting;  // under way: kRollCall, kNumbers
  Status broken;                               // how the epoch of a group that was found ended
  LaunchOrder<MemberOperationPtr>::Place place;
  uint64_t left_out = 0;      // of the group, when it was announced
  std::optional<Status> met;  // a meeting that the members thread waits for is over
  std::vector<Tensor> met_rows;
  Status failure;
  std::chrono::steady_clock::time_point deadline =
      std::chrono::steady_clock::time_point::max();  // when under way
  bool inputs_there = false;                         // the deadline counts
  MemberOperationPtr self;                           // while the device has it
  std::shared_ptr<GpuMembers::Connection> connection;
  std::optional<Status> issued;  // how the task ended

  // The members thread's, once all are there.
  std::vector<MemberRow> rows;

  int size() const { return request->members->size(); }
  std::string Describe() const {
    return "collective '" + std::string(request->op) + "' (group " +
           std::to_string(request->group_key) + ", instance " +
           std::to_string(request->instance_key) + ")";
  }
  void Arrived(const Status& status) override {
    const MemberOperationPtr keep = std::move(self);
    down ? members->OnHost(keep, status) : members->Passed(keep, status);
  }
};

// What came of a meeting.
inline std::string_view BytesOf(const Tensor& tensor) {
  const auto values = tensor.values<uint8_t>();
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

}  // namespace monograph
