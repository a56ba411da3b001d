// RecordingDriver: a GPU without a GPU. Its memory is the host's, and what is issued is computed at
// once, on the issuing thread; but nothing counts as done before some polls later, and a copy to
// the host arrives only then. It keeps a vector clock per queue and, for every byte of its memory,
// who wrote it last and who read it since, and reports each pair of accesses that no event orders.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "executor/device_stream.h"
#include "executor/gpu/communicator.h"
#include "executor/gpu/driver.h"

namespace monograph::testing {

// Clocks of all queues of all drivers of a world, and of the host.
struct World;

class RecordingDriver : public StreamDriver, private Communicators {
 public:
  // Drivers of one world may copy from each other. `seed`: of the delays.
  RecordingDriver(std::shared_ptr<World> world, uint32_t seed);
  static std::shared_ptr<World> NewWorld();
  ~RecordingDriver() override;

  DeviceStream* stream() override { return &stream_; }
  DeviceStream* members_stream() override { return &stream_; }
  Communicators* communicators() override { return linked_ ? this : nullptr; }
  Status Enter() override { return Status(); }
  bool lost() override { return lost_.load(); }
  Result<void*> AllocateDevice(size_t bytes) override;
  void FreeDevice(void* data) override;
  Result<void*> AllocatePinned(size_t bytes) override;
  void FreePinned(void* data) override;
  Result<EventId> MakeEvent(bool timed) override;
  void DropEvent(EventId event) override;
  Status Record(EventId event, Queue queue) override;
  Status Wait(Queue queue, StreamDriver& other, EventId event) override;
  Result<bool> Done(EventId event) override;
  Result<int64_t> ElapsedNs(EventId from, EventId to) override;
  Status Copy(Queue queue, void* to, const void* from, size_t bytes) override;
  Status CopyFromPeer(void* to, StreamDriver& other, const void* from, size_t bytes) override;
  Status BeginCapture() override;
  Result<GraphId> EndCapture() override;
  Status Launch(GraphId graph) override;
  void DropGraph(GraphId graph) override;
  bool observes() const override { return !quiet_; }
  void OnKernel(IssuedKernel kernel) override;

  // What it found; empty if all is ordered.
  std::vector<std::string> races() const;
  struct Counts {
    int64_t allocations = 0;  // of device and pinned memory, events and graphs
    int64_t kernels = 0, launches = 0, copies = 0, waits = 0, records = 0;
    int64_t device_bytes = 0;
    int64_t joins = 0, exchanges = 0, aborts = 0;  // of communicators
    int64_t all_reduces = 0;
    int64_t joint_launches = 0;   // of graphs with exchanges
    std::map<int, int64_t> sent;  // bytes of exchanges, by the rank that they go to
    int64_t late = 0;             // that are aborted while they put an exchange on the queue
  };
  Counts counts() const;

  // Faults. The wait number `wait` from now on (0: the next) is left out.
  void SkipWait(int64_t wait) { skip_wait_ = wait; }
  void RefuseMemory(bool refuse) { refuse_memory_ = refuse; }
  // What a refused capture has computed is taken back, as of a graph whose first launch is refused:
  // it has not run.
  void RefuseCaptures(bool refuse) { refuse_captures_ = refuse; }
  // The next so many launches of graphs; those behind them succeed.
  void RefuseLaunches(int64_t launches) { refused_launches_ = launches; }
  // From now on every call fails, as after an illegal address.
  void Lose() { lost_ = true; }
  // The same, from call number `after` of that kind on (0: the next).
  enum class Call : uint8_t {
    kNone,
    kAllocate,
    kMakeEvent,
    kRecord,
    kWait,
    kDone,
    kCopy,
    kCopyFromPeer,
    kBeginCapture,
    kEndCapture,
    kLaunch,
  };
  void LoseAt(Call call, int64_t after) {
    lose_after_ = after;
    lose_at_ = call;
  }
  // Call number `after` of that kind (0: the next) is refused, once, and has no effect.
  void RefuseAt(Call call, int64_t after) {
    refuse_after_ = after;
    refuse_at_ = call;
  }
  bool has_refused() const { return refuse_at_ == Call::kNone; }  // what RefuseAt asked for
  // It joins communicators with others of its world.
  void Link() { linked_ = true; }
  // Its sums may be made in any order; they then are, from the last rank to the first.
  void AllowAnyOrder() { any_order_ = true; }
  // It has joined some time after all others have.
  void JoinLate() { joins_late_ = true; }
  // What is on kMembers does not end, as if another member's card hung, until a communicator of
  // this one is aborted.
  void HangExchanges() { hung_ = true; }
  // Exchange number `after` from now on (0: the next) is refused, once.
  void RefuseExchange(int64_t after = 0) { refuse_exchange_ = after; }
  // From now on nothing is recorded, delayed or computed again by graphs: it takes no memory of the
  // heap by itself, for tests that count what the executor takes. A replayed graph changes nothing.
  void BeQuiet() { quiet_ = true; }
  // Nothing is done any more, until Resume.
  void Hold() { held_ = true; }
  void Resume() { held_ = false; }

 private:
  friend class RecordingCommunicator;
  struct Event;
  struct Graph;
  Result<std::string> NewId() override;
  bool any_order() const override { return any_order_.load(); }
  Result<std::unique_ptr<Communicator>> Join(const std::string& id, int rank, int size) override;
  void Tick(Queue queue);
  void Touch(Queue queue, std::string_view who, const void* data, size_t bytes, bool write);
  void Issue(Queue queue, std::string_view who, std::span<const MemoryAccess> reads,
             std::span<const MemoryAccess> writes);
  bool Captures(Queue queue) const;
  uint64_t Now(Queue queue) const;
  bool Knows(Queue queue, Queue other, uint64_t time) const;
  Status Broken(Call call = Call::kNone);
  void TakeBack(Graph* graph);

  const std::shared_ptr<World> world_;
  const int base_;  // its queues' first clock
  std::mt19937 random_;
  DeviceStream stream_;
  std::map<char*, size_t> regions_;  // of device memory
  std::map<EventId, std::unique_ptr<Event>> events_;
  std::map<GraphId, std::unique_ptr<Graph>> graphs_;
  std::vector<std::function<void()>> pending_;  // copies to the host behind which no event is
  Graph* capturing_ = nullptr;
  uint64_t last_joint_ = 0;  // when a graph with exchanges was launched, of kCompute's clock
  EventId last_event_ = 0;
  GraphId last_graph_ = 0;
  Counts counts_;
  int64_t skip_wait_ = -1, lose_after_ = -1, refuse_after_ = -1;
  std::atomic<Call> lose_at_{Call::kNone}, refuse_at_{Call::kNone};
  std::atomic<bool> lost_{false}, held_{false};
  bool refuse_memory_ = false, refuse_captures_ = false;
  int64_t refused_launches_ = 0;
  bool linked_ = false, quiet_ = false;
  std::atomic<bool> hung_{false}, joins_late_{false}, any_order_{false};
  std::atomic<int64_t> refuse_exchange_{-1};
  std::set<const void*> stuck_;  // communicators of exchanges that hang
};

}  // namespace monograph::testing
