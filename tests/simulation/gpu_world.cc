// The world goes on when somebody looks at it (Advance): from one end of a kernel or a transfer to
// the next, up to the clock's time. Whenever the transfers under way change, each gets its part of
// the links anew (ShareLinks). A queue runs its first item (Go), and takes the next one when that
// is over (Finish).
#include "tests/simulation/gpu_world.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace monograph::simulation {
namespace {

constexpr auto kMembersLine = static_cast<size_t>(Queue::kMembers);
constexpr auto kComputeLine = static_cast<size_t>(Queue::kCompute);
// Transfers that end so soon after another one end with it.
constexpr double kEndTogether = 20e-9;

GpuWorld* current = nullptr;

uintptr_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

uint64_t ToNanoseconds(double time) { return static_cast<uint64_t>(std::ceil(time * 1e9)); }

}  // namespace

std::vector<int> SpreadOver(int nodes, int gpus) {
  std::vector<int> on;
  for (int gpu = 0; gpu < gpus; ++gpu) on.push_back(gpu * nodes / gpus);
  return on;
}

std::vector<int> GpuTopology::GpusOf(int task) const {
  if (process_each) return {task};
  std::vector<int> there;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    if (nodes[static_cast<size_t>(gpu)] == task) there.push_back(gpu);
  }
  return there;
}

// From one rank to another.
struct GpuWorld::Pair {
  int from = 0, to = 0;
  std::deque<Message> sends, receives;
  bool send_called = false, receive_called = false;  // on the host
  bool busy = false;                                 // the first message passes
};

// A message that has passed, and is to arrive.
struct GpuWorld::Parcel {
  Message send, receive;
  Contents contents;
};

struct GpuWorld::Exchanged {
  GroupPtr group;
  int rank = 0, gpu = 0, life = 0;
  int pending = 0;  // messages
  bool started = false, aborted = false;
  std::vector<Pair*> pairs;            // that it has messages of
  std::vector<MemoryAccess> receives;  // what it writes
  std::function<void()> then;          // when all has passed
  std::optional<std::pair<int, uint64_t>> what;
};

struct GpuWorld::Group {
  struct Member {
    int gpu = -1, life = 0;
    bool aborted = false;
    std::vector<ExchangedPtr> exchanges;  // that are not over
    std::vector<Pair*> connects;          // that the last call needs
  };
  std::string id;
  int size = 0, joined = 0;
  std::map<int, Member> members;              // by rank
  std::map<std::pair<int, int>, Pair> pairs;  // by sender and receiver
};

GpuWorld::GpuWorld(GpuTopology topology, std::function<void(const std::string&)> fault)
    : topology_(std::move(topology)),
      fault_(std::move(fault)),
      gpus_(topology_.nodes.size()),
      node_traffic_(static_cast<size_t>(topology_.node_count())) {
  for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) gpus_[gpu].node = topology_.nodes[gpu];
  links_.assign(2 * gpus_.size(), topology_.port);
  const size_t nics = topology_.nics > 0
                          ? node_traffic_.size() * static_cast<size_t>(topology_.nics)
                          : gpus_.size();
  links_.resize(links_.size() + 2 * nics, topology_.nic);
  link_bytes_.resize(links_.size());
  current = this;
}

GpuWorld::~GpuWorld() { current = nullptr; }

GpuWorld* GpuWorld::Current() { return current; }

// The link by which a GPU sends; the next one is that by which it receives.
int GpuWorld::OutLink(int gpu, bool leaves_node) const {
  if (!leaves_node) return 2 * gpu;
  if (topology_.nics == 0) return 2 * (topology_.gpus() + gpu);
  const std::vector<int>& nodes = topology_.nodes;
  const int node = Of(gpu).node;
  const auto begin = static_cast<int>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  const auto there = static_cast<int>(std::count(nodes.begin(), nodes.end(), node));
  const int nic = node * topology_.nics + (gpu - begin) * topology_.nics / there;
  return 2 * (topology_.gpus() + nic);
}

// ---- time

void GpuWorld::After(Nanoseconds time, std::function<void()> what) {
  timers_.emplace(std::pair(now_ + time, ++last_timer_), std::move(what));
}

void GpuWorld::Advance() {
  const auto clock = static_cast<Nanoseconds>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  for (;;) {
    if (shares_change_) ShareLinks();
    Nanoseconds next = next_flow_end_;
    if (!timers_.empty()) next = std::min(next, timers_.begin()->first.first);
    if (next > clock) break;
    now_ = std::max(now_, next);
    if (next_flow_end_ <= now_) {
      ShareLinks();  // what has passed since
      std::vector<Flow> over;
      std::erase_if(flows_, [&](const Flow& flow) {
        const bool ends = flow.left <= std::max(0.5, flow.rate * kEndTogether);
        if (ends) over.push_back(flow);
        return ends;
      });
      shares_change_ = true;
      for (const Flow& flow : over) Passed(flow);
    }
    while (!timers_.empty() && timers_.begin()->first.first <= now_) {
      const auto what = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      what();
    }
  }
  now_ = std::max(now_, clock);
  if (look_for_deadlock_ && timers_.empty() && flows_.empty()) LookForDeadlock();
}

void GpuWorld::ShareLinks() {
  const double passed = static_cast<double>(now_ - flows_at_) * 1e-9;
  flows_at_ = now_;
  std::vector<int> users(links_.size());
  for (Flow& flow : flows_) {
    flow.left -= flow.rate * passed;
    ++users[static_cast<size_t>(flow.out)];
    ++users[static_cast<size_t>(flow.in)];
  }
  const auto part = [&](int link) {
    return links_[static_cast<size_t>(link)] / users[static_cast<size_t>(link)];
  };
  double first = 0;
  for (Flow& flow : flows_) {
    flow.rate = std::min(part(flow.out), part(flow.in));
    const double takes = std::max(0.0, flow.left) / flow.rate;
    if (&flow == flows_.data() || takes < first) first = takes;
  }
  next_flow_end_ = flows_.empty() ? UINT64_MAX : now_ + ToNanoseconds(first);
  shares_change_ = false;
}

void GpuWorld::Count(int gpu) {
  Gpu& g = Of(gpu);
  const Nanoseconds passed = now_ - g.since;
  g.since = now_;
  if (g.computes) g.times.computes += passed;
  if (g.flows > 0) g.times.moves += passed;
  if (g.computes && g.flows > 0) g.times.both += passed;
}

void GpuWorld::Begins() { first_begin_ = std::min(first_begin_, now_); }

double GpuWorld::BusiestLinkSeconds() const {
  double longest = 0;
  for (size_t link = 0; link < links_.size(); ++link)
    longest = std::max(longest, link_bytes_[link] / links_[link]);
  return longest;
}

void GpuWorld::ClearCounts() {
  Advance();
  for (Gpu& gpu : gpus_) {
    gpu.traffic = {};
    gpu.times = {};
    gpu.since = now_;
    gpu.launches.clear();
    gpu.ready.clear();
  }
  std::fill(node_traffic_.begin(), node_traffic_.end(), Traffic());
  std::fill(link_bytes_.begin(), link_bytes_.end(), 0.0);
  first_begin_ = UINT64_MAX;
  last_end_ = 0;
}

// ---- queues

void GpuWorld::Push(int gpu, Queue queue, Item item) {
  Advance();
  const auto line = static_cast<size_t>(queue);
  Of(gpu).lines[line].items.push_back(std::move(item));
  Go(gpu, line);
}

void GpuWorld::Go(int gpu, size_t queue) {
  Gpu& g = Of(gpu);
  Line& line = g.lines[queue];
  while (!line.running && !line.items.empty()) {
    const Item& item = line.items.front();
    switch (item.kind) {
      case Item::Kind::kTimed:
        line.running = true;
        Begins();
        if (queue == kComputeLine) {
          Count(gpu);
          g.computes = true;
        }
        After(item.takes, [this, gpu, queue, life = g.life] {
          if (Lives(gpu, life)) Finish(gpu, queue);
        });
        return;
      case Item::Kind::kRecord: {
        Event& event = g.events[static_cast<size_t>(item.event)];
        event.done = std::max(event.done, item.record);
        line.items.pop_front();
        for (int waits = 0; waits < topology_.gpus(); ++waits) {
          for (size_t other = 0; other < kQueues; ++other) {
            const Line& at = Of(waits).lines[other];
            if (!at.running && !at.items.empty() && at.items.front().kind == Item::Kind::kWait &&
                at.items.front().other == gpu && (waits != gpu || other != queue))
              Go(waits, other);
          }
        }
        break;
      }
      case Item::Kind::kWait: {
        const Gpu& other = Of(item.other);
        if (!other.lost && other.events[static_cast<size_t>(item.event)].done < item.record) return;
        line.items.pop_front();
        break;
      }
      case Item::Kind::kExchange: {
        const ExchangedPtr exchange = item.exchange;
        if (exchange->aborted || exchange->pending == 0) {
          if (exchange->aborted) Spoil(*exchange);
          line.items.pop_front();
          break;
        }
        line.running = exchange->started = true;
        Begins();
        g.launches.push_back(exchange);
        look_for_deadlock_ = true;
        for (const Pair* pair : exchange->pairs) TryPass(exchange->group, pair->from, pair->to);
        return;
      }
    }
  }
}

void GpuWorld::Finish(int gpu, size_t queue) {
  Gpu& g = Of(gpu);
  Line& line = g.lines[queue];
  const auto then = std::move(line.items.front().then);
  line.items.pop_front();
  line.running = false;
  last_end_ = now_;
  if (queue == kComputeLine) {
    Count(gpu);
    g.computes = false;
  }
  if (then) then();
  Go(gpu, queue);
}

int GpuWorld::Revive(int gpu) {
  Advance();
  Gpu& g = Of(gpu);
  g.lost = false;
  g.events.clear();
  return ++g.life;
}

void GpuWorld::Lose(int gpu) {
  Advance();
  Gpu& g = Of(gpu);
  Count(gpu);
  g.lost = true;
  g.computes = false;
  for (Line& line : g.lines) line = {};
  for (const auto& [id, group] : groups_) {
    for (auto& [rank, member] : group->members) {
      if (member.gpu == gpu && member.life == g.life) Abort(group.get(), rank);
    }
  }
  for (int other = 0; other < topology_.gpus(); ++other) {
    for (size_t queue = 0; queue < kQueues; ++queue) Go(other, queue);  // what waited for it
  }
}

EventId GpuWorld::MakeEvent(int gpu) {
  Of(gpu).events.emplace_back();
  return static_cast<EventId>(Of(gpu).events.size()) - 1;
}

void GpuWorld::Record(int gpu, Queue queue, EventId event) {
  const uint64_t record = ++Of(gpu).events[static_cast<size_t>(event)].recorded;
  Push(gpu, queue, {.kind = Item::Kind::kRecord, .event = event, .record = record});
}

void GpuWorld::Wait(int gpu, Queue queue, int other, EventId event) {
  const uint64_t record = Of(other).events[static_cast<size_t>(event)].recorded;
  Push(gpu, queue, {.kind = Item::Kind::kWait, .event = event, .other = other, .record = record});
}

bool GpuWorld::Done(int gpu, EventId event) {
  Advance();
  const Event& e = Of(gpu).events[static_cast<size_t>(event)];
  return e.done >= e.recorded;
}

void GpuWorld::Copy(int gpu, Queue queue, void* to, const void* from, size_t bytes) {
  const bool inside = queue == Queue::kCompute || queue == Queue::kMembers;
  const double time = static_cast<double>(bytes) * (inside                  ? 2 / topology_.memory
                                                    : queue == Queue::kPeer ? 1 / topology_.port
                                                                            : 1 / topology_.host);
  Push(gpu, queue,
       {.takes = ToNanoseconds(time) + static_cast<Nanoseconds>(topology_.launch.count()),
        .then = [this, to, from, bytes] { Put(to, bytes, Take(from, bytes)); }});
}

void GpuWorld::Kernel(int gpu, const IssuedKernel& kernel, uint64_t step) {
  if (forget_steps_) step = 0;
  const auto found = nodes_.find(std::string(kernel.name));
  std::vector<MemoryAccess> reads(kernel.reads.begin(), kernel.reads.end());
  std::vector<MemoryAccess> writes(kernel.writes.begin(), kernel.writes.end());
  size_t bytes = 0;
  for (const MemoryAccess& read : reads) bytes += read.bytes;
  for (const MemoryAccess& write : writes) bytes += write.bytes;
  Item item{.takes = ToNanoseconds(static_cast<double>(bytes) / topology_.memory)};
  if (kernel.queue == Queue::kMembers) {
    item.then = [this, reads, writes] { Merge(reads, writes.front()); };
  } else if (found == nodes_.end()) {
    item.then = [this, writes] {
      for (const MemoryAccess& write : writes) Write(write.data, write.bytes, {}, 0);
    };
  } else {
    const Node node = found->second;
    item.takes = node.takes;
    item.then = [this, gpu, node, step, reads, writes, name = std::string(kernel.name)] {
      CheckReads(name, node, step, reads);
      Content content = node.makes.value_or(Content());
      content.step = step;
      for (const MemoryAccess& write : writes) Write(write.data, write.bytes, content, 0);
      if (node.makes && node.makes->tensor == 0)
        Of(gpu).ready.emplace_back(node.makes->collective, step);
    };
  }
  item.takes += static_cast<Nanoseconds>(topology_.launch.count());
  Push(gpu, kernel.queue, std::move(item));
}

// ---- exchanges

GpuWorld::GroupPtr GpuWorld::Join(const std::string& id, int gpu, int rank, int size) {
  GroupPtr& group = groups_[id];
  if (group == nullptr) group = std::make_shared<Group>(Group{.id = id, .size = size});
  group->members[rank] = {.gpu = gpu, .life = Of(gpu).life};
  ++group->joined;
  return group;
}

bool GpuWorld::Ready(Group* group, int rank) {
  Advance();
  if (group->joined < group->size) return false;
  auto& connects = group->members[rank].connects;
  std::erase_if(connects,
                [](const Pair* pair) { return pair->send_called && pair->receive_called; });
  return connects.empty();
}

void GpuWorld::Post(const GroupPtr& group, int rank, const ExchangedPtr& exchange, int peer,
                    bool sends, const void* data, size_t bytes) {
  if (bytes == 0) return;
  const int from = sends ? rank : peer, to = sends ? peer : rank;
  Pair& pair = group->pairs[{from, to}];
  pair.from = from;
  pair.to = to;
  (sends ? pair.send_called : pair.receive_called) = true;
  (sends ? pair.sends : pair.receives).push_back({data, bytes, exchange});
  auto& connects = group->members[rank].connects;
  if (!(sends ? pair.receive_called : pair.send_called)) connects.push_back(&pair);
  if (exchange->pairs.empty() || exchange->pairs.back() != &pair) exchange->pairs.push_back(&pair);
  if (!sends && data != nullptr) exchange->receives.push_back({data, bytes});
  ++exchange->pending;
}

void GpuWorld::Enqueue(const ExchangedPtr& exchange) {
  exchange->group->members[exchange->rank].exchanges.push_back(exchange);
  Item item{.kind = Item::Kind::kExchange, .exchange = exchange};
  item.then = [exchange] {
    if (!exchange->aborted && exchange->then) exchange->then();
    std::erase(exchange->group->members[exchange->rank].exchanges, exchange);
  };
  Push(exchange->gpu, Queue::kMembers, std::move(item));
}

void GpuWorld::Exchange(const GroupPtr& group, int rank, std::span<const Communicator::Send> sends,
                        std::span<const Communicator::Receive> receives) {
  Advance();
  const Group::Member& member = group->members[rank];
  const auto exchange = std::make_shared<Exchanged>(
      Exchanged{.group = group, .rank = rank, .gpu = member.gpu, .life = member.life});
  for (const auto& send : sends)
    Post(group, rank, exchange, send.rank, true, send.data, send.bytes);
  for (const auto& receive : receives)
    Post(group, rank, exchange, receive.rank, false, receive.data, receive.bytes);
  Enqueue(exchange);
}

// As a ring: what each rank sends to the next one and gets from the one before.
void GpuWorld::AllReduce(const GroupPtr& group, int rank, size_t element_bytes,
                         std::span<const Communicator::Sum> sums) {
  Advance();
  const Group::Member& member = group->members[rank];
  const int size = group->size;
  const auto exchange = std::make_shared<Exchanged>(
      Exchanged{.group = group, .rank = rank, .gpu = member.gpu, .life = member.life});
  size_t bytes = 0;
  for (const auto& sum : sums) bytes += sum.elements * element_bytes;
  const size_t passes = 2 * bytes * static_cast<size_t>(size - 1) / static_cast<size_t>(size);
  Post(group, rank, exchange, (rank + 1) % size, true, sums.front().data, passes);
  Post(group, rank, exchange, (rank + size - 1) % size, false, nullptr, passes);
  for (const auto& sum : sums)
    exchange->receives.push_back({sum.result, sum.elements * element_bytes});
  exchange->then = [this, size, element_bytes, list = std::vector(sums.begin(), sums.end())] {
    for (const auto& sum : list) {
      auto range = Read(sum.data, sum.elements * element_bytes);
      Content content = range ? range->content : Content();
      content.first = 0;
      content.last = size;
      Write(sum.result, sum.elements * element_bytes, content, range ? range->at : 0);
    }
  };
  Enqueue(exchange);
}

void GpuWorld::TryPass(const GroupPtr& group, int from, int to) {
  Pair& pair = group->pairs[{from, to}];
  if (pair.busy || pair.sends.empty() || pair.receives.empty()) return;
  const Message& send = pair.sends.front();
  const Message& receive = pair.receives.front();
  if (!send.exchange->started || !receive.exchange->started) return;
  if (send.bytes != receive.bytes) {
    return fault_("rank " + std::to_string(to) + " of " + group->id + " waits for " +
                  std::to_string(receive.bytes) + " bytes of rank " + std::to_string(from) +
                  ", which sends " + std::to_string(send.bytes));
  }
  const auto range = Read(send.data, 1);
  if (range && range->content.collective >= 0) {
    const std::pair what(range->content.collective, range->content.step);
    for (const auto& exchange : {send.exchange, receive.exchange}) {
      if (!exchange->what) exchange->what = what;
    }
  }
  pair.busy = true;
  Flow flow{.pair = &pair,
            .group = group,
            .from = send.exchange->gpu,
            .to = receive.exchange->gpu,
            .left = static_cast<double>(send.bytes)};
  const bool leaves = Of(flow.from).node != Of(flow.to).node;
  flow.out = OutLink(flow.from, leaves);
  flow.in = OutLink(flow.to, leaves) + 1;
  for (const int gpu : {flow.from, flow.to}) {
    Count(gpu);
    ++Of(gpu).flows;
  }
  flows_.push_back(std::move(flow));
  shares_change_ = true;
}

void GpuWorld::Passed(const Flow& flow) {
  Pair& pair = *flow.pair;
  const Message send = std::move(pair.sends.front());
  // What the sender does to its memory from now on does not matter.
  Parcel parcel{send, std::move(pair.receives.front()), Take(send.data, send.bytes)};
  pair.sends.pop_front();
  pair.receives.pop_front();
  pair.busy = false;
  for (const int gpu : {flow.from, flow.to}) {
    Count(gpu);
    --Of(gpu).flows;
  }
  const auto bytes = static_cast<double>(send.bytes);
  link_bytes_[static_cast<size_t>(flow.out)] += bytes;
  link_bytes_[static_cast<size_t>(flow.in)] += bytes;
  Of(flow.from).traffic.out += bytes;
  Of(flow.to).traffic.in += bytes;
  const int from_node = Of(flow.from).node, to_node = Of(flow.to).node;
  const bool leaves = from_node != to_node;
  if (leaves) {
    node_traffic_[static_cast<size_t>(from_node)].out += bytes;
    node_traffic_[static_cast<size_t>(to_node)].in += bytes;
  }
  const auto latency = leaves ? topology_.nic_latency : topology_.port_latency;
  After(static_cast<Nanoseconds>(latency.count()),
        [this, parcel = std::move(parcel)] { Delivered(parcel); });
  TryPass(flow.group, pair.from, pair.to);
}

void GpuWorld::Delivered(const Parcel& parcel) {
  const Message& receive = parcel.receive;
  if (!receive.exchange->aborted && receive.data != nullptr)
    Put(receive.data, receive.bytes, parcel.contents);
  OneLess(parcel.send.exchange);
  OneLess(receive.exchange);
}

void GpuWorld::OneLess(const ExchangedPtr& exchange) {
  if (exchange->aborted || --exchange->pending > 0) return;
  Finish(exchange->gpu, kMembersLine);
}

// What an exchange that was aborted receives may be anything.
void GpuWorld::Spoil(const Exchanged& exchange) {
  for (const MemoryAccess& receive : exchange.receives) Write(receive.data, receive.bytes, {}, 0);
}

void GpuWorld::Abort(Group* group, int rank) {
  Advance();
  Group::Member& member = group->members[rank];
  if (std::exchange(member.aborted, true)) return;
  std::erase_if(flows_, [&](const Flow& flow) {
    if (flow.group.get() != group || (flow.pair->from != rank && flow.pair->to != rank))
      return false;
    flow.pair->busy = false;
    for (const int gpu : {flow.from, flow.to}) {
      Count(gpu);
      --Of(gpu).flows;
    }
    shares_change_ = true;
    return true;
  });
  for (auto& [ranks, pair] : group->pairs) {
    if (pair.from == rank) pair.sends.clear();
    if (pair.to == rank) pair.receives.clear();
  }
  const auto exchanges = std::exchange(member.exchanges, {});
  for (const ExchangedPtr& exchange : exchanges) {
    exchange->aborted = true;
    // One that is still on the queue may have memory that others read now.
    if (exchange->started) Spoil(*exchange);
  }
  if (!Lives(member.gpu, member.life)) return;
  for (const ExchangedPtr& exchange : exchanges) {
    if (exchange->started) Finish(member.gpu, kMembersLine);
  }
}

// ---- deadlocks and order

std::vector<int> GpuWorld::Awaits(int gpu) const {
  const Line& line = Of(gpu).lines[kMembersLine];
  if (!line.running || line.items.front().kind != Item::Kind::kExchange) return {};
  const Exchanged& exchange = *line.items.front().exchange;
  std::vector<int> gpus;
  const auto look = [&](const std::deque<Message>& own, const std::deque<Message>& others,
                        int peer) {
    if (own.empty() || own.front().exchange.get() != &exchange) return;
    if (!others.empty() && others.front().exchange->started) return;
    const auto member = exchange.group->members.find(peer);
    if (member != exchange.group->members.end()) gpus.push_back(member->second.gpu);
  };
  for (const Pair* pair : exchange.pairs) {
    if (pair->from == exchange.rank) {
      look(pair->sends, pair->receives, pair->to);
    } else {
      look(pair->receives, pair->sends, pair->from);
    }
  }
  return gpus;
}

std::string GpuWorld::DescribeExchange(int gpu) const {
  const Exchanged& exchange = *Of(gpu).lines[kMembersLine].items.front().exchange;
  std::string text = "GPU " + std::to_string(gpu) + " runs an exchange of ";
  std::optional<std::pair<int, uint64_t>> what = exchange.what;
  for (const Pair* pair : exchange.pairs) {
    if (what || pair->from != exchange.rank || pair->sends.empty()) continue;
    if (const auto range = Read(pair->sends.front().data, 1); range)
      what = {range->content.collective, range->content.step};
  }
  if (what) {
    text += "collective " + std::to_string(what->first) + " of step " +
            std::to_string(what->second) + " on ";
  }
  return text + exchange.group->id;
}

// Each exchange needs all of its peers, so any circle of them is one for ever.
void GpuWorld::LookForDeadlock() {
  look_for_deadlock_ = false;
  if (topology_.gpus() == 0 || told_) return;
  std::vector<int> seen(gpus_.size());  // 1: on the path, 2: leads to no circle
  std::vector<int> path;
  const std::function<bool(int)> circle = [&](int gpu) {
    auto& mark = seen[static_cast<size_t>(gpu)];
    if (mark == 2) return false;
    path.push_back(gpu);
    if (mark == 1) return true;
    mark = 1;
    for (const int other : Awaits(gpu)) {
      if (circle(other)) return true;
    }
    mark = 2;
    path.pop_back();
    return false;
  };
  for (int gpu = 0; gpu < topology_.gpus(); ++gpu) {
    if (!circle(gpu)) continue;
    path.erase(path.begin(), std::find(path.begin(), path.end(), path.back()));
    std::string text = "deadlock: ";
    for (size_t i = 0; i + 1 < path.size(); ++i)
      text +=
          DescribeExchange(path[i]) + " and waits for GPU " + std::to_string(path[i + 1]) + "; ";
    told_ = true;
    return fault_(text.substr(0, text.size() - 2));
  }
}

GpuWorld::Launches GpuWorld::LaunchesOf(int gpu) const {
  Launches launches;
  std::set<std::pair<int, uint64_t>> seen;
  for (const ExchangedPtr& exchange : Of(gpu).launches) {
    if (exchange->what && seen.insert(*exchange->what).second) launches.push_back(*exchange->what);
  }
  return launches;
}

std::string GpuWorld::WhyNoOrder() const {
  std::vector<Launches> launches;
  std::vector<std::map<std::pair<int, uint64_t>, size_t>> places(gpus_.size());
  for (int gpu = 0; gpu < topology_.gpus(); ++gpu) {
    launches.push_back(LaunchesOf(gpu));
    for (const auto& what : launches.back())
      places[static_cast<size_t>(gpu)].emplace(what, places[static_cast<size_t>(gpu)].size());
  }
  for (size_t a = 0; a < gpus_.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const std::pair<int, uint64_t>* before = nullptr;
      for (const auto& what : launches[a]) {
        const auto there = places[b].find(what);
        if (there == places[b].end()) continue;
        if (before != nullptr && places[b].at(*before) > there->second) {
          return "GPU " + std::to_string(a) + " launches collective " +
                 std::to_string(before->first) + " before " + std::to_string(what.first) +
                 ", GPU " + std::to_string(b) + " behind it";
        }
        before = &what;
      }
    }
  }
  return "";
}

// ---- contents

void GpuWorld::Write(const void* data, size_t bytes, const Content& content, uint64_t at) {
  if (bytes == 0) return;
  const uintptr_t begin = AddressOf(data), end = begin + bytes;
  auto it = memory_.upper_bound(begin);
  if (it != memory_.begin()) --it;
  while (it != memory_.end() && it->first < end) {
    const uintptr_t from = it->first;
    const Range range = it->second;
    if (range.end <= begin) {
      ++it;
      continue;
    }
    it = memory_.erase(it);
    if (from < begin) memory_[from] = {begin, range.content, range.at};
    if (range.end > end)
      it = memory_.insert({end, {range.end, range.content, range.at + (end - from)}}).first;
  }
  if (content.collective >= 0) memory_[begin] = {end, content, at};
}

void GpuWorld::Forget(const void* data, size_t bytes) { Write(data, bytes, {}, 0); }

std::optional<GpuWorld::Range> GpuWorld::Read(const void* data, size_t bytes) const {
  const uintptr_t begin = AddressOf(data), end = begin + bytes;
  auto it = memory_.upper_bound(begin);
  if (it == memory_.begin()) return std::nullopt;
  --it;
  if (it->second.end <= begin) return std::nullopt;
  Range found{it->second.end, it->second.content, it->second.at + (begin - it->first)};
  while (found.end < end) {
    if (++it == memory_.end() || it->first != found.end || it->second.content != found.content ||
        it->second.at != found.at + (it->first - begin))
      return std::nullopt;
    found.end = it->second.end;
  }
  return found;
}

GpuWorld::Contents GpuWorld::Take(const void* from, size_t bytes) const {
  const uintptr_t begin = AddressOf(from), end = begin + bytes;
  Contents contents;
  if (from == nullptr) return contents;
  auto it = memory_.upper_bound(begin);
  if (it != memory_.begin()) --it;
  for (; it != memory_.end() && it->first < end; ++it) {
    Range range = it->second;
    if (range.end <= begin) continue;
    const uintptr_t first = std::max(it->first, begin);
    range.at += first - it->first;
    range.end = std::min(range.end, end) - begin;
    contents.emplace_back(first - begin, range);
  }
  return contents;
}

void GpuWorld::Put(const void* to, size_t bytes, const Contents& contents) {
  Write(to, bytes, {}, 0);
  for (const auto& [first, range] : contents) {
    Write(static_cast<const char*>(to) + first, range.end - first, range.content, range.at);
  }
}

void GpuWorld::Merge(std::span<const MemoryAccess> reads, const MemoryAccess& write) {
  std::optional<Range> sum;
  for (const MemoryAccess& read : reads) {
    const auto next = Read(read.data, read.bytes);
    if (!next) return Write(write.data, write.bytes, {}, 0);  // of an exchange that was aborted
    if (!sum) {
      sum = next;
      continue;
    }
    Content expected = sum->content;
    expected.first = expected.last;
    ++expected.last;
    if (next->content != expected || next->at != sum->at) {
      return fault_("a sum of ranks before " + std::to_string(sum->content.last) +
                    " of collective " + std::to_string(sum->content.collective) + " from byte " +
                    std::to_string(sum->at) + " on is merged with rank " +
                    std::to_string(next->content.first) + " of collective " +
                    std::to_string(next->content.collective) + " from byte " +
                    std::to_string(next->at) + " on");
    }
    sum->content.last = expected.last;
  }
  if (sum && sum->content.first != 0)
    fault_("a sum begins with rank " + std::to_string(sum->content.first));
  if (sum) Write(write.data, write.bytes, sum->content, sum->at);
}

void GpuWorld::CheckReads(const std::string& name, const Node& node, uint64_t step,
                          std::span<const MemoryAccess> reads) {
  if (node.reads.empty()) return;
  // The inputs' contents, one after the other.
  std::vector<Content> there;
  bool whole = true;
  for (const MemoryAccess& read : reads) {
    for (size_t at = 0; at < read.bytes;) {
      const char* const data = static_cast<const char*>(read.data) + at;
      auto range = Read(data, 1);
      if (!range) {
        whole = false;
        break;
      }
      // To the end of this piece.
      const uint64_t first = range->at;
      uintptr_t end = range->end;
      for (auto it = memory_.find(end);
           it != memory_.end() && end < AddressOf(read.data) + read.bytes; it = memory_.find(end)) {
        if (it->second.content != range->content ||
            it->second.at != first + (end - AddressOf(data)))
          break;
        end = it->second.end;
      }
      whole = whole && first == 0;
      there.push_back(range->content);
      at += end - AddressOf(data);
    }
  }
  std::vector<Content> expected = node.reads;
  for (Content& content : expected) content.step = step;
  if (whole && there == expected) return;
  std::string text = "node " + name + " in step " + std::to_string(step) + " reads";
  for (const Content& content : there) {
    text += " [collective " + std::to_string(content.collective) + ", step " +
            std::to_string(content.step) + ", ranks " + std::to_string(content.first) + " to " +
            std::to_string(content.last) + "]";
  }
  fault_(text + (whole ? "" : ", not whole"));
}

}  // namespace monograph::simulation
