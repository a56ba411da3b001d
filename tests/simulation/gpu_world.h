// GpuWorld: GPUs that compute nothing, and the links between them. What is issued to their queues
// (executor/gpu/driver.h) takes time: kernels as long as they were given, copies and exchanges what
// their bytes take on the links that they cross, which transfers share.
// tests/simulation/sim_gpus.cc has the drivers and communicators by which the product uses it.
//
// A GPU has one port to those of its node, and a NIC to those of other nodes; each has a rate for
// either direction. Of n transfers in one direction of a port or NIC each gets an n-th of its rate,
// or less where the other end has less for it.
//
// Exchanges are NCCL's grouped sends and receives. One is a kernel: it occupies Queue::kMembers
// from its turn until all that it sends and receives has passed, and a message passes when the
// kernels at both ends run. On the host it is on the queue once each peer that it has never had a
// message with has called for one, too. So GPUs that launch exchanges in different orders wait for
// each other for ever; that is found, and told as a fault.
//
// No bytes are moved. Instead the world knows of each byte of its memory what lies there: element k
// of the sum of ranks [a, b) of a collective. A merge must have the sum of the first ranks and then
// one rank after the other; what a node reads of a collective must be whole.
//
// Threads: those of a schedule, of which one runs at a time. Nothing here waits or locks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/gpu/communicator.h"
#include "executor/gpu/driver.h"

namespace monograph::simulation {

// Rates are in bytes per second and direction.
struct GpuTopology {
  std::vector<int> nodes;     // by GPU; those of a node follow each other
  bool process_each = false;  // one task for each GPU, or one for each node
  double port = 450e9, nic = 50e9;
  int nics = 0;  // of a node, which its GPUs share; 0: each has one
  std::chrono::nanoseconds port_latency{2'000}, nic_latency{6'000};
  double memory = 3e12, host = 50e9;       // a GPU's memory; its way to the host
  std::chrono::nanoseconds launch{3'000};  // of a kernel, in addition
  bool any_order = false;                  // Communicators::any_order

  int gpus() const { return static_cast<int>(nodes.size()); }
  int node_count() const { return nodes.empty() ? 0 : nodes.back() + 1; }
  int tasks() const { return process_each ? gpus() : node_count(); }
  std::vector<int> GpusOf(int task) const;
};
// `gpus` on `nodes`, as evenly as they can be.
std::vector<int> SpreadOver(int nodes, int gpus);

class GpuWorld : public std::enable_shared_from_this<GpuWorld> {
 public:
  using Nanoseconds = uint64_t;

  // What lies somewhere: elements of a collective's tensor, of the sum of these ranks.
  struct Content {
    int collective = -1;  // -1: anything
    uint64_t step = 0;
    int first = 0, last = 0;  // ranks [first, last)
    int tensor = 0;
    friend bool operator==(const Content&, const Content&) = default;
  };
  // What a node of the graph does, by its name.
  struct Node {
    Nanoseconds takes = 0;
    std::optional<Content> makes = {};  // its output; `step` is the step's
    // Its inputs: one after the other, each whole.
    std::vector<Content> reads = {};
  };

  // `fault` is called with what is wrong: a deadlock, a sum that is none.
  GpuWorld(GpuTopology topology, std::function<void(const std::string&)> fault);
  ~GpuWorld();
  GpuWorld(const GpuWorld&) = delete;
  GpuWorld& operator=(const GpuWorld&) = delete;
  static GpuWorld* Current();  // nullptr: there is none

  const GpuTopology& topology() const { return topology_; }
  std::map<std::string, Node>& nodes() { return nodes_; }
  // Of several clients, each of which counts its steps by itself: contents are of step 0.
  void ForgetSteps() { forget_steps_ = true; }
  // Something may be lost: GPUs that wait for each other are then ended by those who notice.
  void AllowDeadlocks() { told_ = true; }

  // ---- the drivers'

  // Another life of the GPU; its number.
  int Revive(int gpu);
  // Whatever life it is in: nothing of it goes on.
  void Lose(int gpu);
  bool Lives(int gpu, int life) const { return Of(gpu).life == life && !Of(gpu).lost; }

  EventId MakeEvent(int gpu);
  void Record(int gpu, Queue queue, EventId event);
  void Wait(int gpu, Queue queue, int other, EventId event);
  bool Done(int gpu, EventId event);
  void Copy(int gpu, Queue queue, void* to, const void* from, size_t bytes);
  void Kernel(int gpu, const IssuedKernel& kernel, uint64_t step);
  void Forget(const void* data, size_t bytes);  // its memory is given back

  std::string NewId() { return "communicator " + std::to_string(++last_id_); }
  struct Group;  // a communicator
  using GroupPtr = std::shared_ptr<Group>;
  GroupPtr Join(const std::string& id, int gpu, int rank, int size);
  bool Ready(Group* group, int rank);
  void Exchange(const GroupPtr& group, int rank, std::span<const Communicator::Send> sends,
                std::span<const Communicator::Receive> receives);
  void AllReduce(const GroupPtr& group, int rank, size_t element_bytes,
                 std::span<const Communicator::Sum> sums);
  // What this rank has on the queue ends.
  void Abort(Group* group, int rank);

  // ---- what was seen

  struct Traffic {
    double out = 0, in = 0;
  };
  const Traffic& gpu_traffic(int gpu) const { return Of(gpu).traffic; }
  // Across the node's NICs.
  const Traffic& node_traffic(int node) const { return node_traffic_[static_cast<size_t>(node)]; }
  // How long the GPU computed, moved bytes of exchanges, and did both at once.
  struct Times {
    Nanoseconds computes = 0, moves = 0, both = 0;
  };
  const Times& times(int gpu) const { return Of(gpu).times; }
  // How long the busiest direction of a port or NIC would take for its bytes.
  double BusiestLinkSeconds() const;
  void ClearCounts();
  // Collectives, with their steps, in the order in which the GPU has launched them, and in which
  // their inputs were there.
  using Launches = std::vector<std::pair<int, uint64_t>>;
  Launches LaunchesOf(int gpu) const;
  const Launches& ReadyOf(int gpu) const { return Of(gpu).ready; }
  // Two GPUs that have launched what they share in different orders: which. Empty: there are none.
  std::string WhyNoOrder() const;
  // Since the first kernel or exchange that began after ClearCounts, to the last that ended.
  Nanoseconds Span() const { return last_end_ > first_begin_ ? last_end_ - first_begin_ : 0; }

 private:
  struct Pair;
  struct Exchanged;  // an exchange of one rank
  using ExchangedPtr = std::shared_ptr<Exchanged>;
  struct Message {
    const void* data = nullptr;
    size_t bytes = 0;
    ExchangedPtr exchange;
  };
  struct Flow {
    Pair* pair = nullptr;
    GroupPtr group;
    int from = 0, to = 0;  // GPUs
    double left = 0, rate = 0;
    int out = 0, in = 0;  // links
  };
  struct Item {
    enum class Kind : uint8_t { kTimed, kRecord, kWait, kExchange } kind = Kind::kTimed;
    Nanoseconds takes = 0;
    std::function<void()> then = {};  // when it is over
    EventId event = -1;
    int other = 0;        // kWait: the event's GPU
    uint64_t record = 0;  // which Record of the event
    ExchangedPtr exchange = {};
  };
  struct Line {
    std::deque<Item> items;
    bool running = false;  // the first one
  };
  struct Event {
    uint64_t recorded = 0, done = 0;
  };
  struct Gpu {
    int node = 0;
    int life = 0;
    bool lost = true;
    std::array<Line, kQueues> lines;
    std::vector<Event> events;
    Traffic traffic;
    Times times;
    int flows = 0;
    bool computes = false;
    Nanoseconds since = 0;  // what `times` counts up to
    std::vector<ExchangedPtr> launches;
    Launches ready;
  };
  struct Range {
    uintptr_t end = 0;
    Content content;
    uint64_t at = 0;  // byte of the tensor that the first one is
  };

  Gpu& Of(int gpu) { return gpus_[static_cast<size_t>(gpu)]; }
  const Gpu& Of(int gpu) const { return gpus_[static_cast<size_t>(gpu)]; }
  void Advance();
  void After(Nanoseconds time, std::function<void()> what);
  void Push(int gpu, Queue queue, Item item);
  void Go(int gpu, size_t queue);
  void Finish(int gpu, size_t queue);
  void Count(int gpu);
  void Begins();
  void TryPass(const GroupPtr& group, int from, int to);
  void Passed(const Flow& flow);
  struct Parcel;
  void Delivered(const Parcel& parcel);
  void OneLess(const ExchangedPtr& exchange);
  void Spoil(const Exchanged& exchange);
  void ShareLinks();
  int OutLink(int gpu, bool leaves_node) const;
  void Post(const GroupPtr& group, int rank, const ExchangedPtr& exchange, int peer, bool sends,
            const void* data, size_t bytes);
  void Enqueue(const ExchangedPtr& exchange);
  // Whom the exchange that runs on the GPU waits for.
  std::vector<int> Awaits(int gpu) const;
  void LookForDeadlock();
  std::string DescribeExchange(int gpu) const;

  void Write(const void* data, size_t bytes, const Content& content, uint64_t at);
  // What lies there, if it is of one piece.
  std::optional<Range> Read(const void* data, size_t bytes) const;
  // What lies in so many bytes, by where it begins and ends there; and puts it elsewhere.
  using Contents = std::vector<std::pair<uintptr_t, Range>>;
  Contents Take(const void* from, size_t bytes) const;
  void Put(const void* to, size_t bytes, const Contents& contents);
  void Merge(std::span<const MemoryAccess> reads, const MemoryAccess& write);
  void CheckReads(const std::string& name, const Node& node, uint64_t step,
                  std::span<const MemoryAccess> reads);

  const GpuTopology topology_;
  const std::function<void(const std::string&)> fault_;
  std::map<std::string, Node> nodes_;
  std::vector<Gpu> gpus_;
  std::vector<Traffic> node_traffic_;
  std::vector<double> links_, link_bytes_;  // rates; what has passed
  std::map<std::string, GroupPtr> groups_;
  uint64_t last_id_ = 0;
  Nanoseconds now_ = 0;
  std::map<std::pair<Nanoseconds, uint64_t>, std::function<void()>> timers_;
  uint64_t last_timer_ = 0;
  std::vector<Flow> flows_;
  Nanoseconds flows_at_ = 0;  // `left` is as of
  Nanoseconds next_flow_end_ = UINT64_MAX;
  bool shares_change_ = false;
  bool look_for_deadlock_ = false;
  bool told_ = false;  // of a deadlock
  bool forget_steps_ = false;
  Nanoseconds first_begin_ = UINT64_MAX, last_end_ = 0;
  std::map<uintptr_t, Range> memory_;  // by first byte
};

}  // namespace monograph::simulation
