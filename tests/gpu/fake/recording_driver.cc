// What is issued is computed at once and takes a step of its queue's clock. Recording an event
// copies the clock, waiting for one takes its maximum; a cell for each stretch of memory has who
// wrote it last and who has read it since, and an access whose clock does not know of these is a
// race.
#include "tests/gpu/fake/recording_driver.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "tests/gpu/emulated/numbers.h"

namespace monograph::testing {

using Clock = std::vector<uint64_t>;

namespace {

void JoinClock(Clock* clock, const Clock& other) {
  if (clock->size() < other.size()) clock->resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) (*clock)[i] = std::max((*clock)[i], other[i]);
}

}  // namespace

struct World {
  // One access: at its own queue's time.
  struct Stamp {
    size_t queue = 0;
    uint64_t time = 0;
    std::string who;
  };
  struct Cell {
    bool written = false;
    Stamp write;
    std::vector<Stamp> reads;  // since; the last one of each queue
  };

  mutable std::recursive_mutex mutex;
  std::vector<Clock> clocks;  // by queue
  Clock host;
  std::map<const char*, size_t> regions;  // device memory: only that is watched
  // Ranges of it: each cell begins at its key and ends at the next one's.
  std::map<const char*, Cell> cells;
  std::vector<std::string> races;

  // A communicator: what is on its way, by sender and receiver.
  struct Parcel {
    std::string bytes;
    Clock clock;
  };
  struct Meeting {
    int joined = 0;
    std::set<int> told;  // ranks that know that they have
    std::map<std::pair<int, int>, std::deque<Parcel>> parcels;
  };
  std::map<std::string, Meeting> meetings;
  int last_id = 0;

  std::map<const char*, Cell>::iterator Split(const char* at) {
    const auto after = cells.upper_bound(at);
    if (after == cells.begin()) return after;
    const auto it = std::prev(after);
    if (it->first == at) return it;
    return cells.emplace(at, it->second).first;
  }
  bool Watched(const char* at) const {
    const auto after = regions.upper_bound(at);
    return after != regions.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }
  bool Before(const Stamp& stamp, const Clock& clock) const {
    return stamp.queue < clock.size() && stamp.time <= clock[stamp.queue];
  }
  void Report(const Stamp& earlier, const char* how, std::string_view who, const char* does) {
    if (races.size() < 20)
      races.push_back(std::string(who) + " " + does + " what " + earlier.who + " " + how +
                      ", and nothing orders them");
  }
};

struct RecordingDriver::Event {
  bool timed = false;
  Clock clock;
  int polls = 0;  // until it is done
  Queue queue = Queue::kCompute;
  GraphId captured = 0;                      // 0: outside of graphs
  int64_t at = 0;                            // for ElapsedNs
  std::vector<std::function<void()>> lands;  // copies to the host that come before it
};

struct RecordingDriver::Graph {
  struct Step {
    std::string who;
    std::vector<MemoryAccess> reads, writes;
    std::function<Status()> again;
  };
  std::vector<Step> steps;
  GraphId id = 0;
  bool fresh = true;                    // its kernels were computed while it was captured
  bool members = false, joined = true;  // kMembers belongs to it; has come back
  // All memory as it was before the capture, if that or a launch is to be refused.
  std::map<char*, std::string> before;
};

std::shared_ptr<World> RecordingDriver::NewWorld() { return std::make_shared<World>(); }

RecordingDriver::RecordingDriver(std::shared_ptr<World> world, uint32_t seed)
    : world_(std::move(world)), base_(static_cast<int>(world_->clocks.size())), random_(seed) {
  world_->clocks.resize(world_->clocks.size() + kQueues);
}

RecordingDriver::~RecordingDriver() = default;

Status RecordingDriver::Broken(Call call) {
  if (call != Call::kNone && lose_at_ == call && lose_after_-- == 0) lost_ = true;
  if (lost_) return Unavailable("an illegal memory access was encountered");
  if (call == Call::kNone || refuse_at_ != call || refuse_after_-- > 0) return Status();
  refuse_at_ = Call::kNone;
  return Internal("the call was refused");
}

Result<void*> RecordingDriver::AllocateDevice(size_t bytes) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kAllocate));
  if (refuse_memory_) return ResourceExhausted("out of memory");
  ++counts_.allocations;
  counts_.device_bytes += static_cast<int64_t>(bytes);
  void* data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (data == nullptr) return ResourceExhausted("out of memory");
  regions_[static_cast<char*>(data)] = bytes;
  world_->regions[static_cast<char*>(data)] = bytes;
  world_->cells[static_cast<char*>(data)] = {};
  world_->cells.emplace(static_cast<char*>(data) + bytes, World::Cell());
  return data;
}

void RecordingDriver::FreeDevice(void* data) {
  std::lock_guard lock(world_->mutex);
  regions_.erase(static_cast<char*>(data));
  // Another driver may get it.
  if (const auto region = world_->regions.find(static_cast<char*>(data));
      region != world_->regions.end()) {
    world_->cells.erase(world_->cells.lower_bound(region->first),
                        world_->cells.lower_bound(region->first + region->second));
    world_->regions.erase(region);
  }
  std::free(data);
}

Result<void*> RecordingDriver::AllocatePinned(size_t bytes) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kAllocate));
  ++counts_.allocations;
  return std::aligned_alloc(512, (bytes + 511) / 512 * 512);
}

void RecordingDriver::FreePinned(void* data) { std::free(data); }

Result<EventId> RecordingDriver::MakeEvent(bool timed) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kMakeEvent));
  ++counts_.allocations;
  auto event = std::make_unique<Event>();
  event->timed = timed;
  events_[++last_event_] = std::move(event);
  return last_event_;
}

void RecordingDriver::DropEvent(EventId event) {
  std::lock_guard lock(world_->mutex);
  events_.erase(event);
}

void RecordingDriver::Tick(Queue queue) {
  const auto index = static_cast<size_t>(base_) + static_cast<size_t>(queue);
  Clock& clock = world_->clocks[index];
  // What the host has seen happened before it issued this.
  JoinClock(&clock, world_->host);
  if (clock.size() <= index) clock.resize(index + 1);
  ++clock[index];
}

uint64_t RecordingDriver::Now(Queue queue) const {
  const auto index = static_cast<size_t>(base_) + static_cast<size_t>(queue);
  const Clock& clock = world_->clocks[index];
  return index < clock.size() ? clock[index] : 0;
}

// Whether what `other` had done at `time` comes before what is issued to `queue` next.
bool RecordingDriver::Knows(Queue queue, Queue other, uint64_t time) const {
  const Clock& clock = world_->clocks[static_cast<size_t>(base_) + static_cast<size_t>(queue)];
  const auto index = static_cast<size_t>(base_) + static_cast<size_t>(other);
  return world_->Before({index, time, {}}, clock) ||
         world_->Before({index, time, {}}, world_->host) || time == 0;
}

void RecordingDriver::Touch(Queue queue, std::string_view who, const void* data, size_t bytes,
                            bool write) {
  if (bytes == 0 || !world_->Watched(static_cast<const char*>(data))) return;
  const auto index = static_cast<size_t>(base_) + static_cast<size_t>(queue);
  const Clock& clock = world_->clocks[index];
  static constexpr const char* kNames[] = {"kCompute", "kToDevice", "kToHost", "kPeer", "kMembers"};
  const World::Stamp stamp{index, clock[index],
                           std::string(who) + " (" + kNames[static_cast<size_t>(queue)] +
                               " of driver " + std::to_string(base_ / kQueues) + ")"};
  const auto* begin = static_cast<const char*>(data);
  const auto* end = begin + bytes;
  auto it = world_->Split(begin);
  world_->Split(end);
  for (; it != world_->cells.end() && it->first < end; ++it) {
    World::Cell& cell = it->second;
    if (cell.written && !world_->Before(cell.write, clock))
      world_->Report(cell.write, "wrote", stamp.who, write ? "writes" : "reads");
    if (!write) {
      std::erase_if(cell.reads, [&](const auto& read) { return read.queue == index; });
      cell.reads.push_back(stamp);
      continue;
    }
    for (const auto& read : cell.reads) {
      if (!world_->Before(read, clock)) world_->Report(read, "read", stamp.who, "writes");
    }
    cell = {true, stamp, {}};
  }
}

void RecordingDriver::Issue(Queue queue, std::string_view who, std::span<const MemoryAccess> reads,
                            std::span<const MemoryAccess> writes) {
  Tick(queue);
  for (const auto& read : reads) Touch(queue, who, read.data, read.bytes, false);
  for (const auto& write : writes) Touch(queue, who, write.data, write.bytes, true);
}

Status RecordingDriver::Record(EventId id, Queue queue) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kRecord));
  ++counts_.records;
  Event& event = *events_.at(id);
  event.captured = Captures(queue) ? capturing_->id : 0;
  if (quiet_ || event.captured != 0) return Status();
  Tick(queue);
  event.clock = world_->clocks[static_cast<size_t>(base_) + static_cast<size_t>(queue)];
  event.polls = static_cast<int>(random_() % 4);
  event.queue = queue;
  if (queue == Queue::kToHost) {
    for (auto& land : pending_) event.lands.push_back(std::move(land));
    pending_.clear();
  }
  static int64_t time = 0;
  event.at = time += 1000;
  return Status();
}

Status RecordingDriver::Wait(Queue queue, StreamDriver& other, EventId id) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kWait));
  ++counts_.waits;
  if (quiet_ || (skip_wait_ >= 0 && skip_wait_-- == 0)) return Status();
  const GraphId captured = static_cast<RecordingDriver&>(other).events_.at(id)->captured;
  if (captured != 0 && (capturing_ == nullptr || captured != capturing_->id || &other != this))
    return Internal("an event of a graph is waited for outside of it");
  if (captured != 0) {
    if (queue == Queue::kMembers) capturing_->members = true;
    capturing_->joined = queue == Queue::kCompute;
    return Status();
  }
  if (Captures(queue)) return Internal("a graph waits for an event from outside");
  Tick(queue);
  JoinClock(&world_->clocks[static_cast<size_t>(base_) + static_cast<size_t>(queue)],
            static_cast<RecordingDriver&>(other).events_.at(id)->clock);
  return Status();
}

// Whether what is issued to the queue becomes part of a graph.
bool RecordingDriver::Captures(Queue queue) const {
  return capturing_ != nullptr &&
         (queue == Queue::kCompute || (queue == Queue::kMembers && capturing_->members));
}

Result<bool> RecordingDriver::Done(EventId id) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kDone));
  if (held_) return false;
  Event& event = *events_.at(id);
  if (event.captured != 0) return Internal("an event of a graph is asked for");
  if (event.queue == Queue::kMembers && hung_) return false;
  if (event.polls > 0) {
    --event.polls;
    return false;
  }
  for (auto& land : event.lands) land();
  event.lands.clear();
  JoinClock(&world_->host, event.clock);
  return true;
}

Result<int64_t> RecordingDriver::ElapsedNs(EventId from, EventId to) {
  std::lock_guard lock(world_->mutex);
  return events_.at(to)->at - events_.at(from)->at;
}

Status RecordingDriver::Copy(Queue queue, void* to, const void* from, size_t bytes) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kCopy));
  ++counts_.copies;
  const MemoryAccess read{from, bytes}, write{to, bytes};
  if (Captures(queue)) return Internal("a copy was issued into a graph");
  if (quiet_) {
    std::memcpy(to, from, bytes);
    return Status();
  }
  Issue(queue, "a copy of " + std::to_string(bytes) + " bytes", {&read, 1}, {&write, 1});
  if (queue != Queue::kToHost) {
    std::memcpy(to, from, bytes);
    return Status();
  }
  // It lands when the host hears of an event behind it; until then the place holds garbage.
  std::memset(to, 0xcd, bytes);
  pending_.push_back([to, data = std::string(static_cast<const char*>(from), bytes)] {
    std::memcpy(to, data.data(), data.size());
  });
  return Status();
}

Status RecordingDriver::CopyFromPeer(void* to, StreamDriver& other, const void* from,
                                     size_t bytes) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kCopyFromPeer));
  MG_RETURN_IF_ERROR(static_cast<RecordingDriver&>(other).Broken());
  ++counts_.copies;
  const MemoryAccess read{from, bytes}, write{to, bytes};
  Issue(Queue::kPeer, "a peer copy of " + std::to_string(bytes) + " bytes", {&read, 1},
        {&write, 1});
  std::memcpy(to, from, bytes);
  return Status();
}

Status RecordingDriver::BeginCapture() {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken(Call::kBeginCapture));
  if (capturing_ != nullptr) return Internal("a capture within a capture");
  ++counts_.allocations;
  graphs_[++last_graph_] = std::make_unique<Graph>();
  capturing_ = graphs_[last_graph_].get();
  capturing_->id = last_graph_;
  if (refuse_captures_ || refused_launches_ > 0) {
    for (const auto& [data, bytes] : regions_) capturing_->before[data] = {data, bytes};
  }
  return Status();
}

void RecordingDriver::TakeBack(Graph* graph) {
  for (const auto& step : graph->steps) {
    for (const MemoryAccess& write : step.writes) {
      char* const data = static_cast<char*>(const_cast<void*>(write.data));
      const auto after = graph->before.upper_bound(data);
      if (after == graph->before.begin()) continue;
      const auto& [region, bytes] = *std::prev(after);
      if (data >= region + bytes.size()) continue;
      std::memcpy(data, bytes.data() + (data - region), write.bytes);
    }
  }
  graph->before.clear();
}

Result<GraphId> RecordingDriver::EndCapture() {
  std::lock_guard lock(world_->mutex);
  Graph* const graph = std::exchange(capturing_, nullptr);
  MG_RETURN_IF_ERROR(Broken(Call::kEndCapture));
  if (!graph->joined) return Internal("a graph ends while kMembers has not come back");
  if (refuse_captures_) {
    TakeBack(graph);
    return Internal("operation not permitted when stream is capturing");
  }
  return last_graph_;
}

Status RecordingDriver::Launch(GraphId id) {
  std::vector<Graph::Step>* steps = nullptr;
  bool again = false;
  {
    std::lock_guard lock(world_->mutex);
    MG_RETURN_IF_ERROR(Broken(Call::kLaunch));
    Graph& graph = *graphs_.at(id);
    again = !std::exchange(graph.fresh, false);
    if (refused_launches_ > 0) {
      --refused_launches_;
      TakeBack(&graph);
      return ResourceExhausted("cudaGraphLaunch: out of memory");
    }
    graph.before.clear();
    ++counts_.launches;
    counts_.joint_launches += graph.members ? 1 : 0;
    steps = &graph.steps;
    if (graph.members && !Knows(Queue::kCompute, Queue::kMembers, Now(Queue::kMembers)))
      world_->races.push_back("a graph with exchanges is launched beside what is on kMembers");
    for (const auto& step : *steps) Issue(Queue::kCompute, step.who, step.reads, step.writes);
    if (graph.members) last_joint_ = Now(Queue::kCompute);
  }
  if (!again) return Status();
  for (const auto& step : *steps) MG_RETURN_IF_ERROR(step.again());
  return Status();
}

void RecordingDriver::DropGraph(GraphId graph) {
  decltype(graphs_)::node_type gone;  // after the lock: what it holds is freed under other locks
  std::lock_guard lock(world_->mutex);
  gone = graphs_.extract(graph);
}

void RecordingDriver::OnKernel(IssuedKernel kernel) {
  std::lock_guard lock(world_->mutex);
  ++counts_.kernels;
  if (!Captures(kernel.queue)) return Issue(kernel.queue, kernel.name, kernel.reads, kernel.writes);
  capturing_->steps.push_back({std::string(kernel.name),
                               {kernel.reads.begin(), kernel.reads.end()},
                               {kernel.writes.begin(), kernel.writes.end()},
                               std::move(kernel.again)});
}

// ---- communicators

// An exchange is on the queue, as far as the host goes, when all that it receives has come: the
// strictest that a library may do. So collectives that are launched in different orders hang here,
// too.
class RecordingCommunicator : public Communicator {
 public:
  RecordingCommunicator(RecordingDriver* driver, const std::string& id, int rank, int size)
      : driver_(*driver), meeting_(driver->world_->meetings[id]), rank_(rank), size_(size) {
    ++meeting_.joined;
  }
  ~RecordingCommunicator() override { (void)RecordingCommunicator::Abort(); }

  Result<bool> Ready() override {
    std::lock_guard lock(driver_.world_->mutex);
    MG_RETURN_IF_ERROR(driver_.Broken());
    if (aborted_) return Aborted("the communicator was aborted");
    if (meeting_.joined < size_) return false;
    if (driver_.joins_late_ && !meeting_.told.contains(rank_)) {
      const auto now = std::chrono::steady_clock::now();
      if (!late_until_) late_until_ = now + std::chrono::milliseconds(200);
      if (now < *late_until_) return false;
    }
    meeting_.told.insert(rank_);
    while (!missing_.empty()) {
      const Receive& next = missing_.front();
      auto& parcels = meeting_.parcels[{next.rank, rank_}];
      if (parcels.empty()) return false;
      const World::Parcel parcel = std::move(parcels.front());
      parcels.pop_front();
      if (parcel.bytes.size() != next.bytes) {
        driver_.world_->races.push_back("rank " + std::to_string(rank_) + " wants " +
                                        std::to_string(next.bytes) + " bytes of rank " +
                                        std::to_string(next.rank) + ", which sends " +
                                        std::to_string(parcel.bytes.size()));
        return Internal("an exchange that does not fit");
      }
      const MemoryAccess write{next.data, next.bytes};
      if (driver_.Captures(Queue::kMembers)) {
        driver_.capturing_->steps.back().writes.push_back(write);
      } else {
        JoinClock(&driver_.world_->clocks[static_cast<size_t>(driver_.base_) +
                                          static_cast<size_t>(Queue::kMembers)],
                  parcel.clock);
        driver_.Issue(Queue::kMembers, "an exchange", {}, {&write, 1});
      }
      std::memcpy(next.data, parcel.bytes.data(), next.bytes);
      missing_.pop_front();
    }
    for (; !adding_.empty(); adding_.pop_front()) {
      if (!AddUp(adding_.front())) return false;
    }
    return true;
  }

  Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    std::lock_guard lock(driver_.world_->mutex);
    MG_RETURN_IF_ERROR(Begin());
    ++driver_.counts_.exchanges;
    if (driver_.Captures(Queue::kMembers)) {
      driver_.capturing_->steps.push_back(
          {"an exchange",
           {},
           {},
           [this, out = std::vector(sends.begin(), sends.end()),
            in = std::vector(receives.begin(), receives.end())] { return Again(out, in); }});
    }
    for (const Send& send : sends) {
      Post(send);
      driver_.counts_.sent[send.rank] += static_cast<int64_t>(send.bytes);
    }
    missing_.assign(receives.begin(), receives.end());
    return Status();
  }

  Status AllReduce(DType dtype, std::span<const Sum> sums) override {
    std::lock_guard lock(driver_.world_->mutex);
    MG_RETURN_IF_ERROR(Begin());
    if (driver_.Captures(Queue::kMembers))
      return Unimplemented("sums in any order in a graph are not part of the fake");
    ++driver_.counts_.all_reduces;
    for (const Sum& sum : sums) {
      for (int rank = 0; rank < size_; ++rank)
        Post({rank, sum.data, sum.elements * DTypeSize(dtype)});
      adding_.push_back({dtype, sum});
    }
    return Status();
  }

  // Memory is freed there, for which CUDA waits until the device has nothing left to do: what
  // hangs on other communicators must be aborted meanwhile.
  Status Abort() override {
    bool hangs = false;
    {
      std::lock_guard lock(driver_.world_->mutex);
      hangs = driver_.stuck_.erase(this) > 0;
      if (std::exchange(aborted_, true)) return Status();
      ++driver_.counts_.aborts;
      if (!missing_.empty()) ++driver_.counts_.late;
    }
    adding_.clear();
    if (!missing_.empty()) EnqueueLate();
    if (!hangs) return Status();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (bool over = false; !over; std::this_thread::yield()) {
      std::lock_guard lock(driver_.world_->mutex);
      over = driver_.stuck_.empty();
      if (over) driver_.hung_ = false;
      if (over || std::chrono::steady_clock::now() < until) continue;
      driver_.world_->races.push_back("an abort waits for what another communicator has enqueued");
      over = true;
    }
    return Status();
  }
  void Abandon() override {
    std::lock_guard lock(driver_.world_->mutex);
    aborted_ = true;
  }

 private:
  struct Adding {
    DType dtype;
    Sum sum;
  };

  // With the world's lock, as the next two. Whether something may be put on the queue now.
  Status Begin() {
    MG_RETURN_IF_ERROR(driver_.Broken());
    if (aborted_ || meeting_.joined < size_ || !missing_.empty() || !adding_.empty())
      return Internal("an exchange on a communicator that is not ready");
    if (driver_.refuse_exchange_ >= 0 && driver_.refuse_exchange_-- == 0)
      return Unavailable("a member's card is gone");
    if (!driver_.Captures(Queue::kMembers) &&
        !driver_.Knows(Queue::kMembers, Queue::kCompute, driver_.last_joint_))
      driver_.world_->races.push_back("an exchange is begun beside a graph with exchanges");
    if (static_cast<int>(meeting_.told.size()) < size_)
      driver_.world_->races.push_back("an exchange before the last member has joined");
    if (driver_.hung_) driver_.stuck_.insert(this);
    return Status();
  }
  void Post(const Send& send) {
    const MemoryAccess read{send.data, send.bytes};
    if (driver_.Captures(Queue::kMembers)) {
      driver_.capturing_->steps.back().reads.push_back(read);
    } else if (!replaying_) {
      driver_.Issue(Queue::kMembers, "an exchange", {&read, 1}, {});
    }
    meeting_.parcels[{rank_, send.rank}].push_back(
        {std::string(static_cast<const char*>(send.data), send.bytes),
         driver_.world_
             ->clocks[static_cast<size_t>(driver_.base_) + static_cast<size_t>(Queue::kMembers)]});
  }
  // From the last rank to the first. False: not all of them have sent theirs.
  bool AddUp(const Adding& adding) {
    for (int rank = 0; rank < size_; ++rank) {
      if (meeting_.parcels[{rank, rank_}].empty()) return false;
    }
    const MemoryAccess write{adding.sum.result, adding.sum.elements * DTypeSize(adding.dtype)};
    for (int rank = size_ - 1; rank >= 0; --rank) {
      auto& parcels = meeting_.parcels[{rank, rank_}];
      const World::Parcel parcel = std::move(parcels.front());
      parcels.pop_front();
      JoinClock(
          &driver_.world_
               ->clocks[static_cast<size_t>(driver_.base_) + static_cast<size_t>(Queue::kMembers)],
          parcel.clock);
      for (int64_t i = 0; i < static_cast<int64_t>(adding.sum.elements); ++i) {
        const double own = emulated::Load(adding.dtype, parcel.bytes.data(), i);
        const double before =
            rank + 1 < size_ ? emulated::Load(adding.dtype, adding.sum.result, i) : 0;
        emulated::Store(adding.dtype, adding.sum.result, i, before + own);
      }
    }
    driver_.Issue(Queue::kMembers, "an all-reduce", {}, {&write, 1});
    return true;
  }
  // An exchange of a graph that is launched again. A GPU would wait for the others; here the host
  // does.
  Status Again(const std::vector<Send>& sends, const std::vector<Receive>& receives) {
    {
      std::lock_guard lock(driver_.world_->mutex);
      if (driver_.hung_) driver_.stuck_.insert(this);
      replaying_ = true;
      for (const Send& send : sends) Post(send);
      replaying_ = false;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (const Receive& receive : receives) {
      for (bool come = false; !come; std::this_thread::yield()) {
        std::lock_guard lock(driver_.world_->mutex);
        if (aborted_ || std::chrono::steady_clock::now() > until)
          return Unavailable("a graph's exchange lacks what another member sends");
        auto& parcels = meeting_.parcels[{receive.rank, rank_}];
        come = !parcels.empty();
        if (!come) continue;
        std::memcpy(receive.data, parcels.front().bytes.data(), receive.bytes);
        parcels.pop_front();
      }
    }
    return Status();
  }
  // What was begun is put on the queue by a thread of the library's, perhaps after it was aborted.
  void EnqueueLate() {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::lock_guard lock(driver_.world_->mutex);
    for (const Receive& receive : missing_) {
      const MemoryAccess write{receive.data, receive.bytes};
      driver_.Issue(Queue::kMembers, "an exchange that was aborted", {}, {&write, 1});
      std::memset(receive.data, 0xEE, receive.bytes);
    }
    missing_.clear();
    --driver_.counts_.late;
  }

  RecordingDriver& driver_;
  World::Meeting& meeting_;
  const int rank_, size_;
  std::optional<std::chrono::steady_clock::time_point> late_until_;
  std::deque<Receive> missing_;
  std::deque<Adding> adding_;
  bool aborted_ = false, replaying_ = false;
};

Result<std::string> RecordingDriver::NewId() {
  std::lock_guard lock(world_->mutex);
  return "communicator " + std::to_string(++world_->last_id);
}

Result<std::unique_ptr<Communicator>> RecordingDriver::Join(const std::string& id, int rank,
                                                            int size) {
  std::lock_guard lock(world_->mutex);
  MG_RETURN_IF_ERROR(Broken());
  ++counts_.joins;
  return std::unique_ptr<Communicator>(
      std::make_unique<RecordingCommunicator>(this, id, rank, size));
}

std::vector<std::string> RecordingDriver::races() const {
  std::lock_guard lock(world_->mutex);
  return world_->races;
}

RecordingDriver::Counts RecordingDriver::counts() const {
  std::lock_guard lock(world_->mutex);
  return counts_;
}

}  // namespace monograph::testing
