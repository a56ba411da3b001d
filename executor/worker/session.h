// What a worker keeps of one session: its peers, its graphs, and the ring of its
// steps (kStepSlots).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_holder.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/tensor.h"
#include "executor/random_streams.h"
#include "executor/session_tensors.h"
#include "executor/worker/peer_watch.h"
#include "executor/worker/step_watch.h"
#include "executor/worker/worker.h"
#include "transport/transport.h"

namespace monograph {

class GpuDevice;
class Step;

struct RegisteredGraph;

// A tensor that came before its step's run-step.
struct EarlyTensor {
  int32_t edge;
  uint64_t iteration;  // as Step::Deliver's
  Tensor tensor;
};

// A tensor that comes in parts (kPartFlag). Its memory is held by who writes to it, too.
struct TensorParts {
  Tensor tensor;
  // Where the parts come to; `tensor`'s memory itself, or pinned memory on their way to a GPU.
  Buffer landing;
  GpuDevice* gpu = nullptr;
  std::vector<bool> announced;  // by part; under the session's mutex
  std::atomic<size_t> left{0};  // parts that are not in `tensor`
};

// One slot of the ring of steps. `step` is the slot's latest step. For a step with this slot:
//   step is 0         the slot was never used
//   step is older     that step is over, or was given up
//   step is this one  it is parked, running or over, as `state` says
struct StepSlot {
  enum State : uint8_t {
    kParked,   // tensors came, run-step has not
    kRunning,  // the executor has it
    kOver,     // step-done was sent; what arrives now is dropped
  };
  uint64_t step = 0;
  State state = kOver;
  std::shared_ptr<Step> running;
  const RegisteredGraph* graph = nullptr;  // that `running` is a step of
  std::vector<EarlyTensor> parked;
  std::map<int32_t, std::shared_ptr<TensorParts>> parts;  // by edge: of which some have come
  std::vector<std::shared_ptr<void>> room;  // of the host's pool, for places of very many parked
  Status aborted;                           // an abort that came before run-step

  bool Runs(uint64_t id) const { return step == id && state == kRunning; }
  bool Waits(uint64_t id) const { return step == id && state == kParked; }
  // Assigns the slot to step `id`, for which something came before its run-step.
  void Park(uint64_t id) {
    step = id;
    state = kParked;
    Drop();
    aborted = Status();
  }
  // Marks step `id` as over: later messages for it are dropped.
  void End(uint64_t id) {
    step = id;
    state = kOver;
    Drop();
  }
  void Drop() {
    parked.clear();
    parts.clear();
    room.clear();
  }
  // Takes a tensor and parks it for step `step`; false, and it is the caller's, if there is no
  // memory for its place.
  bool Keep(int32_t edge, uint64_t iteration, Tensor* tensor);
};

// Steps that run in a row, each in a slot of its own. A step begins when the one before it has
// ended, or when only work that its GPUs do in order is left of it; then two are in flight.
struct StepRow {
  static constexpr int kMostInFlight = 2;

  StepIds numbers;
  uint64_t current = 0;  // the newest one that runs, or is about to
  int in_flight = 1;
  bool issued = false;     // `current` has ended, or only such work is left of it
  Status status;           // of those that have ended, and of aborts
  std::string unfinished;  // of those that were aborted because their time was up

  void End(uint64_t step, const Status& ended) {
    status.Update(ended);
    issued = issued || step == current;
    --in_flight;
  }
  // Whether the next step begins now; then it is `current`.
  bool Advance() {
    if (!status.ok() || !issued || current == numbers.last || in_flight == kMostInFlight)
      return false;
    current += numbers.stride;
    ++in_flight;
    issued = false;
    return true;
  }
};

struct SessionPeer {
  std::string task;
  uint64_t incarnation = 0;
  PeerId id = 0;
  uint64_t host = 0;  // Transport::HostOf
};

struct WorkerSession : std::enable_shared_from_this<WorkerSession> {
  // In this order. What ConnectSession sets is read only once the session is connected.
  enum class State : uint8_t {
    kCreated,     // peers may learn its address
    kConnecting,  // inside ConnectSession, or that failed
    kConnected,   // steps may run
    kClosed,      // nothing new begins; what still comes is dropped, but for other sessions' sake
  };

  uint64_t id = 0;
  // Default order: kConnected publishes what ConnectSession has set.
  std::atomic<State> state{State::kCreated};
  // The data plane, and who hears what it brings. None in a session that stays in one process. It
  // is closed with the session, and then refuses what a late step sends.
  std::unique_ptr<MessageHandler> port;
  std::unique_ptr<Transport> transport;
  uint64_t host = 0;  // Transport::HostOf its address
  std::vector<SessionPeer> peers;
  int client_peer = kSelf;
  int self_index = 0;
  std::shared_ptr<MemoryHolder> memory;           // tensors of its steps
  std::map<std::string, std::string> links;       // of all devices that have one, by name
  std::unique_ptr<RandomStreams> random_streams;  // nullptr: its nodes do not draw by them
  std::string container;                          // ends with the session; empty: none
  const std::shared_ptr<SessionTensors> tensors = std::make_shared<SessionTensors>();
  // Members of collectives of other sessions have sent by this one. Relaxed: set before what came
  // is handled, and read once nothing else comes for this session.
  std::atomic<bool> brought_collectives{false};
  // In the default order: it is read once per tensor or step that ends, and cleared once, if a
  // kernel does not end when the session closes.
  std::atomic<StepClient*> client = nullptr;

  mutable Mutex mutex;
  CondVar idle;
  // By handle.
  std::unordered_map<uint32_t, std::shared_ptr<RegisteredGraph>> graphs MG_GUARDED_BY(mutex);
  uint32_t last_handle MG_GUARDED_BY(mutex) = 0;  // a handle is never used twice
  std::array<StepSlot, kStepSlots> slots MG_GUARDED_BY(mutex);
  std::vector<StepRow> rows MG_GUARDED_BY(mutex);  // those that run
  int running MG_GUARDED_BY(mutex) = 0;
  uint64_t begun MG_GUARDED_BY(mutex) = 0;  // steps so far
  // Peers that are lost to this task, by index; the others are not in it.
  std::map<int, Status> lost MG_GUARDED_BY(mutex);
  int collective_sends MG_GUARDED_BY(mutex) = 0;  // payloads that have not left
  int landing MG_GUARDED_BY(mutex) = 0;           // copies of parts to GPUs
  bool closed MG_GUARDED_BY(mutex) = false;
  bool abandoned MG_GUARDED_BY(mutex) = false;  // closed while a kernel ran
  std::deque<std::pair<uint64_t, std::shared_ptr<StepTrace>>> traces MG_GUARDED_BY(mutex);

  // ---- watch.cc
  PeerWatch peer_watch;
  StepWatch part_watch, flight_watch;     // of parts that run here; of the client's steps
  std::atomic<bool> client_hears = true;  // of lost peers; default order: cleared once
  // Payloads under way from here, by peer, and to here. Relaxed: read to see whether to wait on.
  std::unique_ptr<std::atomic<int>[]> leaving;
  std::atomic<int> arriving = 0;
  // Used by the watching thread only: `begun` at its last look, and the peers that it watches.
  uint64_t begun_before = 0;
  std::set<int> watched;

  // The peer named `task`, or nullptr.
  const SessionPeer* PeerOf(std::string_view task) const;
  int IndexOf(const SessionPeer& peer) const { return static_cast<int>(&peer - peers.data()); }
  StepSlot& SlotOf(uint64_t step) MG_REQUIRES(mutex) { return slots[step % kStepSlots]; }
  StepRow* RowOf(uint64_t step) MG_REQUIRES(mutex);  // the running row with it, or nullptr
  // Something came for the step, which does not run: parks it. False if it is of no use any more.
  bool ParkEarly(uint64_t step) MG_REQUIRES(mutex);
  // Whether none of them has begun, was given up, or belongs to a row that runs.
  bool AllAreNew(const StepIds& numbers) MG_REQUIRES(mutex);
  void BeginRow(const StepIds& numbers) MG_REQUIRES(mutex);
  std::vector<std::shared_ptr<Step>> RunningOf(const StepRow& row) MG_REQUIRES(mutex);
  // What can be said of the part of the step with this id.
  PartState StateOf(uint64_t step) MG_REQUIRES(mutex);
  // The row is over: what still comes for the rest of it is dropped.
  void EndRow(const StepIds& numbers) MG_REQUIRES(mutex);
  // A record for a traced step; the last few are kept.
  std::shared_ptr<StepTrace> NewTrace(uint64_t step) MG_REQUIRES(mutex);
};

}  // namespace monograph
