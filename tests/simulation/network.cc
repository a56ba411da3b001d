// A message is an item of a wire, which is one lane of a connection in one direction. A wire with
// items has one piece of work waiting in the receiver's loop (Schedule), which looks, when its time
// has come, whether the road is open (Arrive): if not, the wire stalls until the road is healed.
// So a cut needs not to look for what is on its way, and nothing but the loops has a thread.
#include "tests/simulation/network.h"

#include <arpa/inet.h>

#include <algorithm>

#include "tests/simulation/tcp.h"

namespace monograph::simulation {
namespace {

constexpr int kLanes = 2;
constexpr size_t kKept = 16;  // messages of old connections, of each direction
constexpr std::chrono::milliseconds kDialPause{250};
// After a heal the senders' next attempts come within this time, or half of what the cut took.
constexpr std::chrono::milliseconds kLongestPause{500};

Network* current = nullptr;

}  // namespace

struct Network::Item {
  std::any message;
  bool last = false;  // the other side ends with `why`
  Status why = {};
  Clock::time_point due = {};
};

struct Network::Wire {
  std::deque<Item> items;
  bool scheduled = false, stalled = false;
  Clock::time_point latest;  // due time of the last item: the next is not before it
};

struct Network::Connection {
  struct Side {
    Site site;
    std::shared_ptr<Loop> loop;
    std::shared_ptr<Receiver> receiver;
    bool ended = false;
    std::deque<std::any> got;  // the last messages, to be replayed
    Wire wires[kLanes];        // to this side
  };
  Network* network = nullptr;
  bool open = false, kept = false;
  Side sides[2];
};

Network::Network(Options options)
    : options_(options), random_(options.seed), tcp_(std::make_unique<Tcp>(this)) {
  MG_CHECK(current == nullptr);
  current = this;
  AddHost("client");
}

Network::~Network() {
  std::map<std::pair<int, uint64_t>, std::shared_ptr<void>> ending;
  {
    MutexLock lock(mutex_);
    ending.swap(of_processes_);
  }
  ending.clear();
  current = nullptr;
}

Network& Network::Current() {
  MG_CHECK(current != nullptr);
  return *current;
}

bool Network::Exists() { return current != nullptr; }

// ---- machines and roads

int Network::AddHost(const std::string& name) {
  MutexLock lock(mutex_);
  hosts_.push_back({.name = name});
  return static_cast<int>(hosts_.size()) - 1;
}

int Network::HostNamed(const std::string& name) const {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i].name == name) return static_cast<int>(i);
  in_addr address{};
  if (inet_pton(AF_INET, name.c_str(), &address) != 1) return -1;
  const uint32_t number = ntohl(address.s_addr) - first_address();
  return number < hosts_.size() ? static_cast<int>(number) : -1;
}

std::string Network::AddressOf(int host) const {
  const in_addr address{htonl(first_address() + static_cast<uint32_t>(host))};
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &address, text, sizeof text);
}

const std::string& Network::NameOf(int host) const {
  MutexLock lock(mutex_);
  return hosts_[static_cast<size_t>(host)].name;
}

Site Network::SiteOf(int host) const {
  MutexLock lock(mutex_);
  return {host, hosts_[static_cast<size_t>(host)].life};
}

bool Network::IsUp(int host) const {
  MutexLock lock(mutex_);
  return hosts_[static_cast<size_t>(host)].up;
}

bool Network::Lives(const Site& site) const {
  MutexLock lock(mutex_);
  return Alive(site);
}

bool Network::Alive(const Site& site) const {
  const Host& host = hosts_[static_cast<size_t>(site.host)];
  return host.up && host.life == site.life;
}

uint64_t Network::Random(uint64_t bound) {
  MutexLock lock(mutex_);
  return RandomLocked(bound);
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
uint64_t Network::RandomLocked(uint64_t bound) {
  uint64_t z = random_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return z % bound;
}

Clock::duration Network::Within(Clock::duration time) {
  return Clock::duration(
      static_cast<int64_t>(RandomLocked(static_cast<uint64_t>(time.count()) + 1)));
}

Network::Road& Network::RoadOf(int from, int to) {
  const auto [road, made] = roads_.try_emplace({from, to});
  if (made) road->second.link = options_.link;
  return road->second;
}

Clock::time_point Network::Arrival(Road* road, size_t bytes) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> sending(static_cast<double>(bytes) /
                                              road->link.bytes_per_second);
  road->busy_until =
      std::max(now, road->busy_until) + std::chrono::duration_cast<Clock::duration>(sending);
  return road->busy_until + road->link.delay + Within(road->link.jitter);
}

void Network::SetLink(int from, int to, const Link& link) {
  MutexLock lock(mutex_);
  Road& road = RoadOf(from, to);
  road.link = link;
  road.busy_until = Clock::now();
}

void Network::CutOneWay(int from, int to) {
  MutexLock lock(mutex_);
  CutLocked(from, to);
}

void Network::HealOneWay(int from, int to) {
  MutexLock lock(mutex_);
  HealLocked(from, to);
}

void Network::Cut(int a, int b) {
  MutexLock lock(mutex_);
  CutLocked(a, b);
  CutLocked(b, a);
}

void Network::Heal(int a, int b) {
  MutexLock lock(mutex_);
  HealLocked(a, b);
  HealLocked(b, a);
}

void Network::Isolate(int host) {
  MutexLock lock(mutex_);
  for (int other = 0; other < static_cast<int>(hosts_.size()); ++other) {
    if (other == host) continue;
    CutLocked(host, other);
    CutLocked(other, host);
  }
}

void Network::HealAll() {
  MutexLock lock(mutex_);
  for (const auto& [ends, road] : std::map(roads_)) {
    RoadOf(ends.first, ends.second).repeats = false;
    if (road.cut) HealLocked(ends.first, ends.second);
  }
}

void Network::Repeat(int from, int to) {
  MutexLock lock(mutex_);
  RoadOf(from, to).repeats = true;
}

void Network::CutLocked(int from, int to) {
  Road& road = RoadOf(from, to);
  if (road.cut || from == to) return;
  tcp_->SettleAll(from, to);
  road.cut = true;
  road.cut_at = Clock::now();
  ++road.changes;
  WatchRoad(from, to);
  tcp_->LookAll(from, to);
}

void Network::HealLocked(int from, int to) {
  Road& road = RoadOf(from, to);
  road.repeats = false;
  if (!road.cut) return;
  road.cut = false;
  ++road.changes;
  const Clock::duration pause =
      std::min<Clock::duration>(kLongestPause, (Clock::now() - road.cut_at) / 2);
  tcp_->Heal(from, to, pause);
  for (const ConnectionPtr& connection : Between(from, to)) {
    for (int side = 0; side < 2; ++side) {
      if (connection->sides[1 - side].site.host != from) continue;
      const Clock::time_point again = Clock::now() + Within(pause);
      for (int lane = 0; lane < kLanes; ++lane) {
        Wire& wire = connection->sides[side].wires[lane];
        if (!wire.stalled) continue;
        wire.stalled = false;
        for (Item& item : wire.items) item.due = std::max(item.due, again);
        wire.latest = std::max(wire.latest, again);
        Schedule(connection, side, lane);
      }
    }
  }
}

// Keepalive and retransmission, of whichever side has something to lose by it.
void Network::WatchRoad(int from, int to) {
  const uint64_t changes = RoadOf(from, to).changes;
  for (const ConnectionPtr& connection : Between(from, to)) {
    for (int side = 0; side < 2; ++side) {
      connection->sides[side].loop->PostAt(
          Clock::now() + options_.patience, [this, connection, side, from, to, changes] {
            MutexLock lock(mutex_);
            if (RoadOf(from, to).changes == changes)
              EndSide(connection, side, Unavailable("connection timed out"));
          });
    }
  }
}

void Network::ForgetEnded() {
  std::erase_if(connections_, [](const ConnectionPtr& connection) {
    return connection->sides[0].ended && connection->sides[1].ended;
  });
}

std::vector<Network::ConnectionPtr> Network::Between(int a, int b) {
  ForgetEnded();
  std::vector<ConnectionPtr> found;
  for (const ConnectionPtr& connection : connections_) {
    const int first = connection->sides[0].site.host, second = connection->sides[1].site.host;
    if ((first == a && second == b) || (first == b && second == a)) found.push_back(connection);
  }
  return found;
}

void Network::Break(int a, int b) {
  MutexLock lock(mutex_);
  for (const ConnectionPtr& connection : Between(a, b)) {
    for (int side = 0; side < 2; ++side)
      EndSide(connection, side, Unavailable("connection reset by peer"));
  }
  tcp_->Break(a, b);
}

int Network::Replay(int from, int to) {
  MutexLock lock(mutex_);
  const std::deque<std::any> kept = kept_[{from, to}];
  int count = 0;
  for (const ConnectionPtr& connection : Between(from, to)) {
    for (int side = 0; side < 2; ++side) {
      if (connection->sides[side].site.host != to || !connection->kept || !connection->open)
        continue;
      for (const std::any& message : kept) {
        Push(connection, side, 0, {message}, 100);
        ++count;
      }
    }
  }
  return count;
}

void Network::EndLife(int host, bool told) {
  MutexLock lock(mutex_);
  Host& ended = hosts_[static_cast<size_t>(host)];
  if (!ended.up) return;
  tcp_->EndLife(host, told);
  ended.up = false;
  ended.silent = !told;
  ended.ports.clear();
  for (const ConnectionPtr& connection : std::vector(connections_)) {
    for (int side = 0; side < 2; ++side) {
      Connection::Side& own = connection->sides[side];
      Connection::Side& other = connection->sides[1 - side];
      if (own.site.host != host) continue;
      if (told && !own.ended && other.site.host != host) {
        // What the kernel sends for a process that is gone overtakes nothing and waits for nothing.
        for (Wire& wire : other.wires) wire.items.clear();
        Push(connection, 1 - side, 0, {.last = true, .why = Unavailable(kGone)}, 40);
      } else if (other.loop != nullptr) {
        other.loop->PostAt(Clock::now() + options_.patience, [this, connection, side] {
          MutexLock inner(mutex_);
          EndSide(connection, 1 - side, Unavailable("connection timed out"));
        });
      }
      EndSide(connection, side, Unavailable("this machine is down"));
    }
  }
}

void Network::Restart(int host) {
  MutexLock lock(mutex_);
  Host& again = hosts_[static_cast<size_t>(host)];
  MG_CHECK(!again.up);
  again.up = true;
  again.silent = false;
  ++again.life;
}

// ---- connections

void Network::End::Send(std::any message, size_t bytes, int lane) const {
  if (connection_ != nullptr)
    connection_->network->Send(connection_, side_, std::move(message), bytes, lane);
}

void Network::End::Close(const std::string& why) const {
  if (connection_ != nullptr) connection_->network->Close(connection_, side_, why);
}

int Network::End::peer_host() const { return connection_->sides[1 - side_].site.host; }

void Network::Send(const ConnectionPtr& connection, int side, std::any message, size_t bytes,
                   int lane) {
  MutexLock lock(mutex_);
  Connection::Side& own = connection->sides[side];
  const Connection::Side& other = connection->sides[1 - side];
  if (own.ended || !Alive(own.site)) return;
  if (!connection->open || Alive(other.site))
    return Push(connection, 1 - side, lane, {std::move(message)}, bytes);
  // The machine is up again and knows nothing of this connection, or it is not and says nothing.
  if (!hosts_[static_cast<size_t>(other.site.host)].up) return;
  const int to = other.site.host;
  if (RoadOf(own.site.host, to).cut || RoadOf(to, own.site.host).cut) return;
  own.loop->PostAt(Arrival(&RoadOf(to, own.site.host), 40) + RoadOf(own.site.host, to).link.delay,
                   [this, connection, side] {
                     MutexLock inner(mutex_);
                     EndSide(connection, side, Unavailable("connection reset by peer"));
                   });
}

void Network::Close(const ConnectionPtr& connection, int side, const std::string& why) {
  std::shared_ptr<Receiver> receiver;  // ends without the lock
  MutexLock lock(mutex_);
  Connection::Side& own = connection->sides[side];
  if (own.ended) return;
  own.ended = true;
  Keep(connection, side);
  receiver = std::move(own.receiver);
  if (Alive(own.site)) Push(connection, 1 - side, 0, {.last = true, .why = Unavailable(why)}, 40);
  lock.Unlock();
}

void Network::Push(const ConnectionPtr& connection, int to, int lane, Item item, size_t bytes) {
  Connection::Side& side = connection->sides[to];
  if (side.ended) return;
  Wire& wire = side.wires[lane];
  const int from = connection->sides[1 - to].site.host;
  item.due = std::max(wire.latest, Arrival(&RoadOf(from, side.site.host), bytes));
  wire.latest = item.due;
  wire.items.push_back(std::move(item));
  if (connection->open) Schedule(connection, to, lane);
}

void Network::Schedule(const ConnectionPtr& connection, int to, int lane) {
  Connection::Side& side = connection->sides[to];
  Wire& wire = side.wires[lane];
  if (wire.scheduled || wire.stalled || wire.items.empty()) return;
  wire.scheduled = true;
  side.loop->PostAt(wire.items.front().due,
                    [this, connection, to, lane] { Arrive(connection, to, lane); });
}

void Network::Arrive(const ConnectionPtr& connection, int to, int lane) {
  MutexLock lock(mutex_);
  Connection::Side& side = connection->sides[to];
  Wire& wire = side.wires[lane];
  wire.scheduled = false;
  if (side.ended || wire.items.empty() || !Alive(side.site)) return;
  if (RoadOf(connection->sides[1 - to].site.host, side.site.host).cut) {
    wire.stalled = true;
    return;
  }
  if (wire.items.front().due > Clock::now()) return Schedule(connection, to, lane);
  Item item = std::move(wire.items.front());
  wire.items.pop_front();
  if (item.last) return EndSide(connection, to, item.why);
  Schedule(connection, to, lane);
  ++delivered_;
  if (lane == 0 && connection->kept) {
    side.got.push_back(item.message);
    if (side.got.size() > kKept) side.got.pop_front();
  }
  const bool twice =
      connection->kept && RoadOf(connection->sides[1 - to].site.host, side.site.host).repeats;
  const std::shared_ptr<Receiver> receiver = side.receiver;
  lock.Unlock();
  for (int i = 0; i < (twice ? 2 : 1); ++i)
    if (receiver != nullptr) receiver->OnMessage(item.message);
}

void Network::Keep(const ConnectionPtr& connection, int side) {
  Connection::Side& ended = connection->sides[side];
  auto& kept = kept_[{connection->sides[1 - side].site.host, ended.site.host}];
  for (std::any& message : ended.got) kept.push_back(std::move(message));
  ended.got.clear();
  while (kept.size() > kKept) kept.pop_front();
}

void Network::EndSide(const ConnectionPtr& connection, int side, const Status& why) {
  Connection::Side& ending = connection->sides[side];
  if (ending.ended) return;
  ending.ended = true;
  Keep(connection, side);
  if (ending.receiver == nullptr) return;
  ending.loop->Post([receiver = std::move(ending.receiver), why] { receiver->OnEnd(why); });
}

// ---- listening and dialling

bool Network::Listen(const Site& site, const std::string& port, std::shared_ptr<Loop> loop,
                     Accept accept) {
  MutexLock lock(mutex_);
  if (!Alive(site)) return false;
  return hosts_[static_cast<size_t>(site.host)]
      .ports.try_emplace(port, Listener{std::move(loop), std::move(accept), site.life})
      .second;
}

void Network::StopListening(const Site& site, const std::string& port) {
  MutexLock lock(mutex_);
  auto& ports = hosts_[static_cast<size_t>(site.host)].ports;
  if (const auto found = ports.find(port); found != ports.end() && found->second.life == site.life)
    ports.erase(found);
}

Network::End Network::Dial(const Site& from, const std::string& host, const std::string& port,
                           std::any hello, std::shared_ptr<Loop> loop,
                           std::shared_ptr<Receiver> receiver, bool kept) {
  auto connection = std::make_shared<Connection>();
  connection->kept = kept;
  connection->network = this;
  connection->sides[0].site = from;
  connection->sides[0].loop = std::move(loop);
  connection->sides[0].receiver = std::move(receiver);
  const int to = HostNamed(host);
  connection->sides[1].site = to < 0 ? from : SiteOf(to);
  MutexLock lock(mutex_);
  if (to < 0 || !Alive(from)) {
    EndSide(connection, 0,
            to < 0 ? NotFound("cannot resolve the host '" + host + "'")
                   : Unavailable("this machine is down"));
    return End(connection, 0);
  }
  const auto& link = RoadOf(from.host, to).link;
  connection->sides[0].loop->PostAt(Clock::now() + 2 * link.delay + Within(link.jitter),
                                    [this, connection, host, port, hello = std::move(hello),
                                     give_up = Clock::now() + options_.patience] {
                                      TryDial(connection, host, port, hello, give_up);
                                    });
  return End(connection, 0);
}

void Network::TryDial(const ConnectionPtr& connection, const std::string& host,
                      const std::string& port, const std::any& hello, Clock::time_point give_up) {
  MutexLock lock(mutex_);
  Connection::Side& own = connection->sides[0];
  Connection::Side& other = connection->sides[1];
  if (own.ended) return;
  const Host& there = hosts_[static_cast<size_t>(other.site.host)];
  const bool reached = there.up && !RoadOf(own.site.host, other.site.host).cut &&
                       !RoadOf(other.site.host, own.site.host).cut;
  if (!reached && Clock::now() >= give_up)
    return EndSide(connection, 0, Unavailable("connection timed out"));
  if (!reached) {
    own.loop->PostAt(Clock::now() + kDialPause, [this, connection, host, port, hello, give_up] {
      TryDial(connection, host, port, hello, give_up);
    });
    return;
  }
  const auto listener = there.ports.find(port);
  if (listener == there.ports.end())
    return EndSide(connection, 0, Unavailable("connection refused"));
  other.site.life = there.life;
  other.loop = listener->second.loop;
  ForgetEnded();
  connections_.push_back(connection);
  const bool taken = other.loop->Post([this, connection, hello, accept = listener->second.accept] {
    Open(connection, hello, accept);
  });
  if (!taken) EndSide(connection, 0, Unavailable("connection refused"));
}

// On the loop of the side that listens.
void Network::Open(const ConnectionPtr& connection, const std::any& hello, const Accept& accept) {
  {
    MutexLock lock(mutex_);
    if (connection->sides[1].ended) return;
    // The receiver may send at once.
    connection->open = true;
  }
  std::shared_ptr<Receiver> receiver = accept(hello, End(connection, 1));
  if (receiver == nullptr) return Close(connection, 1, "connection refused");
  MutexLock lock(mutex_);
  Connection::Side& own = connection->sides[1];
  if (!own.ended) {
    own.receiver = receiver;
    for (int lane = 0; lane < kLanes; ++lane) Schedule(connection, 1, lane);
    if (!connection->sides[0].ended && connection->sides[0].receiver != nullptr) {
      connection->sides[0].loop->Post(
          [dialled = connection->sides[0].receiver] { dialled->OnOpen(); });
    }
  }
  lock.Unlock();
}

std::shared_ptr<void> Network::OfProcess(const Site& site,
                                         const std::function<std::shared_ptr<void>()>& make) {
  MutexLock lock(mutex_);
  std::shared_ptr<void>& found = of_processes_[{site.host, site.life}];
  if (found == nullptr) found = make();
  return found;
}

uint64_t Network::delivered() const {
  MutexLock lock(mutex_);
  return delivered_;
}

}  // namespace monograph::simulation
