// The transport has one lock. Everything that runs a callback is work of its loop, whose thread (or
// guest) drives the transport; Send and Disconnect, on any thread, only change the tables and give
// the loop its work.
//
// A send's life:
//
//   Send --link not open--> Link::queue --> small: a kMessage packet ------> Done
//                                      \--> large: kAnnounce, kBytes --kTaken--> Done
//     \--Disconnect, Close, a lost link -----------------------------------> Done
#include "tests/simulation/sim_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/mutex.h"

namespace monograph::simulation {
namespace {

constexpr char kMagic[] = "MGSM";
constexpr size_t kMaxSmall = 8192;   // bytes of a payload that come with their header
constexpr size_t kPacketBytes = 32;  // what a packet takes beside header and payload
constexpr std::chrono::milliseconds kRetiredGrace{1000};

// ---- addresses: magic host:bytes instance:u64 number:u64 queue:u64 hash:u64

struct Address {
  std::string host;
  uint64_t instance = 0, number = 0;  // `number` names the host to HostOf
  uint64_t queue = 1;                 // into which all its peers write
};

uint64_t Hash(std::string_view bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string Encode(const Address& address) {
  Encoder encoder;
  encoder.PutBytes(kMagic);
  encoder.PutBytes(address.host);
  encoder.Put(address.instance);
  encoder.Put(address.number);
  encoder.Put(address.queue);
  encoder.Put(Hash(encoder.bytes()));
  return encoder.Take();
}

Result<Address> Decode(std::string_view bytes) {
  Decoder decoder(bytes);
  Address address;
  const bool ours = decoder.GetBytes() == kMagic;
  address.host = decoder.GetBytes();
  address.instance = decoder.Get<uint64_t>();
  address.number = decoder.Get<uint64_t>();
  address.queue = decoder.Get<uint64_t>();
  const auto hash = decoder.Get<uint64_t>();
  if (!ours || !decoder.ok() || !decoder.rest().empty() ||
      hash != Hash(bytes.substr(0, bytes.size() - sizeof hash)))
    return InvalidArgument("its address is not one of a simulated transport");
  return address;
}

std::string PortOf(uint64_t instance) { return "data " + std::to_string(instance); }

// ---- what goes over a link

// A large payload, in the memory of its sender until it is taken or given up.
struct Transfer {
  explicit Transfer(const Site& sender) : from(sender) {}
  const Site from;
  Mutex mutex;
  Payload payload MG_GUARDED_BY(mutex);
  bool given_up MG_GUARDED_BY(mutex) = false;
};

struct Packet {
  enum Kind { kMessage, kAnnounce, kBytes, kTaken };
  Kind kind = kMessage;
  uint64_t token = 0;  // of the link, at the side that dialled it
  uint64_t queue = 1;  // the receiver's
  std::string header;
  std::string small;                     // of kMessage
  size_t bytes = 0;                      // of the payload
  uint64_t transfer = 0;                 // of all but kMessage
  std::shared_ptr<Transfer> large = {};  // of kBytes
};

struct Hello {
  uint64_t instance = 0, token = 0;
};

class SimTransport : public Transport {
 public:
  SimTransport(Network* network, const Site& site, MessageHandler* handler);
  ~SimTransport() override { MG_CHECK(thread_ == nullptr); }

  std::string address() const override {
    MutexLock lock(mutex_);
    return AddressLocked();
  }
  uint64_t HostOf(std::string_view address) const override {
    const Result<Address> decoded = Decode(address);
    return decoded.ok() ? decoded->number : 0;
  }
  Result<PeerId> Connect(std::string_view address, std::string_view name) override;
  void Disconnect(PeerId id) override;
  Result<std::string> Renew(PeerId lost) override;
  Status Reconnect(PeerId peer, std::string_view address) override;
  std::string Describe(PeerId id) const override;
  void Send(PeerId to, std::string_view header, Payload payload, Done done) override;
  bool DriveUntil(const std::function<bool()>& ready, Clock::time_point deadline) override {
    return loop_->DriveUntil(ready, deadline);
  }
  void Wake() override { loop_->Wake(); }
  TransportStats stats() const override {
    MutexLock lock(mutex_);
    return stats_;
  }
  void Close() override;
  void Join() override;

 private:
  struct Sending {
    PeerId peer = 0;
    std::string header;
    Payload payload;
    Done done;
    std::shared_ptr<Transfer> transfer = {};  // once it is announced
    uint64_t queue = 0;                       // of this transport, then
  };
  struct Arrival {
    PayloadSink sink;
    size_t bytes = 0;
    uint64_t queue = 0;  // of this transport, through which it was announced
  };
  // To one other transport.
  struct Link : Receiver, std::enable_shared_from_this<Link> {
    enum State { kConnecting, kOpen, kLost };
    SimTransport* transport = nullptr;
    uint64_t instance = 0, token = 0;
    uint64_t to_queue = 1;  // of the other side
    uint64_t told = 1;      // the last queue of this side that the other may know
    State state = kConnecting;
    std::string why_lost;
    int peers = 0;
    Network::End end;
    std::deque<Sending> queue;              // until it is open
    std::map<uint64_t, Sending> transfers;  // announced
    uint64_t last_transfer = 0;
    uint64_t last_announced = 0, last_bytes = 0;  // that came
    std::map<uint64_t, Arrival> arrivals;
    std::map<uint64_t, std::shared_ptr<Transfer>> early;  // bytes before their announcement

    void OnOpen() override { transport->Opened(shared_from_this()); }
    void OnMessage(const std::any& message) override {
      transport->Arrived(shared_from_this(), std::any_cast<const Packet&>(message));
    }
    void OnEnd(const Status& why) override { transport->Ended(shared_from_this(), why); }
  };
  using LinkPtr = std::shared_ptr<Link>;
  struct Peer {
    std::string name;
    bool self = false, connected = true;
    LinkPtr link;
    uint64_t told = 1;  // as Link's, also when that is closed
  };
  // Callbacks that are to run, in order.
  using Later = std::vector<Loop::Work>;

  // Gives them to the loop; after Join there is none, and they run here.
  void Run(Later later) MG_EXCLUDES(mutex_);
  static void Complete(Done done, const Status& status, Later* later) {
    if (done) later->push_back([done = std::move(done), status] { done(status); });
  }
  void SendLocked(PeerId to, std::string_view header, Payload payload, Done done, Later* later)
      MG_REQUIRES(mutex_);
  void Transmit(Link& link, Sending sending, Later* later) MG_REQUIRES(mutex_);
  std::shared_ptr<Receiver> Accept(const Hello& hello, Network::End end);
  void Opened(const LinkPtr& link);
  void OpenLocked(Link& link, Later* later) MG_REQUIRES(mutex_);
  void Arrived(const LinkPtr& link, const Packet& packet);
  void Announced(const LinkPtr& link, const Packet& packet);
  void TakeBytes(const LinkPtr& link, uint64_t id, const std::shared_ptr<Transfer>& large);
  void Ended(const LinkPtr& link, const Status& why);
  void Lose(Link& link, const std::string& why, Later* later) MG_REQUIRES(mutex_);
  // What is pending with `peer`, or with all.
  void CancelSends(Link& link, const PeerId* peer, const Status& why, Later* later)
      MG_REQUIRES(mutex_);
  static void EndArrivals(Link& link, const Status& why, Later* later);
  std::string AddressLocked() const MG_REQUIRES(mutex_) {
    return Encode(
        {network_->NameOf(site_.host), instance_, static_cast<uint64_t>(site_.host) + 1, queue_});
  }
  // What is still on its way through queues before this one fails in a moment.
  void RetireLocked() MG_REQUIRES(mutex_) {
    (void)loop_->PostAt(Clock::now() + kRetiredGrace,
                        [this, queue = queue_ - 1, lost = lost_] { Abandon(queue, lost); });
  }
  void Abandon(uint64_t queue, const std::string& lost);
  void CloseLink(const LinkPtr& link, const Status& why, Later* later) MG_REQUIRES(mutex_);
  void CountReceived(size_t bytes) MG_EXCLUDES(mutex_);
  Status LostTo(const Link& link, PeerId peer) const MG_REQUIRES(mutex_);

  Network* const network_;
  const Site site_;
  MessageHandler* const handler_;
  const uint64_t instance_;
  std::shared_ptr<Loop> loop_;

  mutable Mutex mutex_;
  std::vector<Peer> peers_ MG_GUARDED_BY(mutex_);            // by PeerId
  std::map<uint64_t, LinkPtr> links_ MG_GUARDED_BY(mutex_);  // by instance
  // Instances that were disconnected and not connected again: they cannot open a link.
  std::set<uint64_t> gone_ MG_GUARDED_BY(mutex_);
  uint64_t queue_ MG_GUARDED_BY(mutex_) = 1;
  std::string lost_ MG_GUARDED_BY(mutex_);      // for whose sake there is another queue
  uint64_t blocked_ MG_GUARDED_BY(mutex_) = 0;  // nothing comes through queues up to this one
  bool closed_ MG_GUARDED_BY(mutex_) = false;
  TransportStats stats_ MG_GUARDED_BY(mutex_);
  std::unique_ptr<LoopThread> thread_;
};

SimTransport::SimTransport(Network* network, const Site& site, MessageHandler* handler)
    : network_(network),
      site_(site),
      handler_(handler),
      instance_(network->Random(UINT64_MAX) + 1),
      thread_(std::make_unique<LoopThread>("mg-sim-data")) {
  loop_ = thread_->loop();
  // False on a machine that has been crashed: then it is reached by nobody.
  (void)network_->Listen(site_, PortOf(instance_), loop_,
                         [this](const std::any& hello, Network::End end) {
                           return Accept(std::any_cast<const Hello&>(hello), std::move(end));
                         });
}

void SimTransport::Run(Later later) {
  for (Loop::Work& work : later) {
    // The loop is over or it takes the work: a copy is for the first case.
    if (!loop_->Post(work)) work();
  }
}

// ---- peers

Result<PeerId> SimTransport::Connect(std::string_view bytes, std::string_view name) {
  const Result<Address> address = Decode(bytes);
  if (!address.ok()) return address.status().WithContext("cannot connect to " + std::string(name));
  MutexLock lock(mutex_);
  if (closed_)
    return Cancelled("cannot connect to " + std::string(name) + ": the transport is closed");
  const auto id = static_cast<PeerId>(peers_.size());
  peers_.push_back({std::string(name), address->instance == instance_, true, nullptr, queue_});
  if (peers_.back().self) return id;
  gone_.erase(address->instance);
  LinkPtr& link = links_[address->instance];
  const bool made = link == nullptr;
  if (made) {
    link = std::make_shared<Link>();
    link->transport = this;
    link->instance = address->instance;
  }
  link->to_queue = std::max(link->to_queue, address->queue);
  link->told = queue_;
  ++link->peers;
  peers_.back().link = link;
  if (made && instance_ < address->instance) {
    link->token = network_->Random(UINT64_MAX);
    link->end = network_->Dial(site_, address->host, PortOf(address->instance),
                               Hello{instance_, link->token}, loop_, link, /*kept=*/true);
  }
  return id;
}

void SimTransport::Disconnect(PeerId id) {
  Later later;
  {
    MutexLock lock(mutex_);
    if (id >= peers_.size() || !peers_[id].connected) return;
    Peer& peer = peers_[id];
    peer.connected = false;
    const LinkPtr link = std::exchange(peer.link, nullptr);
    if (link == nullptr) return;
    const Status why = Cancelled("disconnected from " + peer.name);
    CancelSends(*link, &id, why, &later);
    if (--link->peers == 0) {
      gone_.insert(link->instance);
      CloseLink(link, why, &later);
    }
  }
  Run(std::move(later));
}

Result<std::string> SimTransport::Renew(PeerId lost) {
  MutexLock lock(mutex_);
  if (closed_) return Cancelled("the transport is closed");
  if (lost < peers_.size() && !peers_[lost].self && peers_[lost].told == queue_) {
    lost_ = peers_[lost].name;
    ++queue_;
    RetireLocked();
  }
  return AddressLocked();
}

Status SimTransport::Reconnect(PeerId id, std::string_view bytes) {
  const Result<Address> address = Decode(bytes);
  if (!address.ok()) return address.status();
  MutexLock lock(mutex_);
  if (closed_ || id >= peers_.size()) return Cancelled("the transport is closed");
  Peer& peer = peers_[id];
  peer.told = queue_;
  if (peer.link == nullptr) return Status();
  if (peer.link->instance != address->instance)
    return InvalidArgument("the address is that of another transport");
  if (peer.link->told != queue_) RetireLocked();
  peer.link->to_queue = address->queue;
  peer.link->told = queue_;
  return Status();
}

void SimTransport::Abandon(uint64_t queue, const std::string& lost) {
  Later later;
  {
    MutexLock lock(mutex_);
    const Status why = TaskLost(lost, "held up by " + lost);
    for (const auto& [instance, link] : links_) {
      for (auto entry = link->transfers.begin(); entry != link->transfers.end();) {
        Sending& sending = entry->second;
        if (sending.queue > queue) {
          ++entry;
          continue;
        }
        {
          MutexLock transfer(sending.transfer->mutex);
          sending.transfer->given_up = true;
          sending.transfer->payload = {};
        }
        Complete(std::move(sending.done), why, &later);
        entry = link->transfers.erase(entry);
      }
      for (auto entry = link->arrivals.begin(); entry != link->arrivals.end();) {
        Arrival& arrival = entry->second;
        if (arrival.queue > queue) {
          ++entry;
          continue;
        }
        if (arrival.sink.data != nullptr) Complete(std::move(arrival.sink.done), why, &later);
        entry = link->arrivals.erase(entry);
      }
    }
  }
  Run(std::move(later));
}

std::string SimTransport::Describe(PeerId id) const {
  MutexLock lock(mutex_);
  if (id >= peers_.size() || !peers_[id].connected) return "not connected";
  return peers_[id].self ? "self (by reference)" : "simulated network";
}

Status SimTransport::LostTo(const Link& link, PeerId peer) const {
  const std::string& name = peers_[peer].name;
  return TaskLost(name, "sending to " + name + ": " + link.why_lost);
}

void SimTransport::CloseLink(const LinkPtr& link, const Status& why, Later* later) {
  if (const auto found = links_.find(link->instance);
      found != links_.end() && found->second == link)
    links_.erase(found);
  link->state = Link::kLost;
  link->why_lost = why.message();
  CancelSends(*link, nullptr, why, later);
  EndArrivals(*link, why, later);
  link->end.Close("the other side closed the connection");
}

void SimTransport::CancelSends(Link& link, const PeerId* peer, const Status& why, Later* later) {
  const auto reason = [&](const Sending& sending) MG_REQUIRES(mutex_) {
    return why.code() == Code::kUnavailable ? LostTo(link, sending.peer) : why;
  };
  std::deque<Sending> others;
  for (Sending& sending : link.queue) {
    if (peer != nullptr && sending.peer != *peer) {
      others.push_back(std::move(sending));
    } else {
      Complete(std::move(sending.done), reason(sending), later);
    }
  }
  link.queue = std::move(others);
  for (auto entry = link.transfers.begin(); entry != link.transfers.end();) {
    Sending& sending = entry->second;
    if (peer != nullptr && sending.peer != *peer) {
      ++entry;
      continue;
    }
    {
      MutexLock transfer(sending.transfer->mutex);
      sending.transfer->given_up = true;
      sending.transfer->payload = {};
    }
    Complete(std::move(sending.done), reason(sending), later);
    entry = link.transfers.erase(entry);
  }
}

void SimTransport::EndArrivals(Link& link, const Status& why, Later* later) {
  for (auto& [id, arrival] : link.arrivals)
    if (arrival.sink.data != nullptr) Complete(std::move(arrival.sink.done), why, later);
  link.arrivals.clear();
  link.early.clear();
}

// ---- sending

void SimTransport::Send(PeerId to, std::string_view header, Payload payload, Done done) {
  Later later;
  {
    MutexLock lock(mutex_);
    SendLocked(to, header, std::move(payload), std::move(done), &later);
  }
  Run(std::move(later));
}

void SimTransport::SendLocked(PeerId to, std::string_view header, Payload payload, Done done,
                              Later* later) {
  if (header.size() > kMaxHeaderBytes) {
    return Complete(
        std::move(done),
        InvalidArgument("a message header of " + std::to_string(header.size()) +
                        " bytes; at most " + std::to_string(kMaxHeaderBytes) + " are allowed"),
        later);
  }
  if (closed_ || to >= peers_.size() || !peers_[to].connected) {
    return Complete(std::move(done),
                    Cancelled(closed_ ? "the transport is closed" : "the peer is not connected"),
                    later);
  }
  const LinkPtr& link = peers_[to].link;
  if (link != nullptr && link->state == Link::kLost)
    return Complete(std::move(done), LostTo(*link, to), later);
  ++stats_.messages_sent;
  stats_.bytes_sent += header.size() + payload.bytes;
  Sending sending{to, std::string(header), std::move(payload), std::move(done)};
  if (link != nullptr && link->state == Link::kOpen)
    return Transmit(*link, std::move(sending), later);
  if (link != nullptr) return link->queue.push_back(std::move(sending));
  later->push_back([this, sending = std::move(sending)] {  // to this very transport
    {
      MutexLock lock(mutex_);
      if (closed_ || !peers_[sending.peer].connected) {
        const Status why = Cancelled("disconnected from " + peers_[sending.peer].name);
        lock.Unlock();
        if (sending.done) sending.done(why);
        return;
      }
    }
    CountReceived(sending.header.size() + sending.payload.bytes);
    handler_->OnDelivered(sending.header, sending.payload);
    if (sending.done) sending.done(Status());
  });
}

void SimTransport::Transmit(Link& link, Sending sending, Later* later) {
  Packet packet{.token = link.token, .queue = link.to_queue, .header = std::move(sending.header)};
  const size_t size = kPacketBytes + packet.header.size();
  packet.bytes = sending.payload.bytes;
  if (packet.bytes <= kMaxSmall) {
    if (packet.bytes > 0)
      packet.small.assign(static_cast<const char*>(sending.payload.data()), packet.bytes);
    link.end.Send(std::move(packet), size + sending.payload.bytes);
    return Complete(std::move(sending.done), Status(), later);
  }
  const uint64_t id = ++link.last_transfer;
  packet.kind = Packet::kAnnounce;
  packet.transfer = id;
  sending.transfer = std::make_shared<Transfer>(site_);
  sending.queue = link.told;
  {
    MutexLock transfer(sending.transfer->mutex);
    sending.transfer->payload = std::move(sending.payload);
  }
  const size_t bytes = packet.bytes;
  const Packet content{.kind = Packet::kBytes,
                       .token = link.token,
                       .queue = link.to_queue,
                       .bytes = bytes,
                       .transfer = id,
                       .large = sending.transfer};
  link.end.Send(std::move(packet), size);
  link.end.Send(content, kPacketBytes + bytes, /*lane=*/1);
  link.transfers.emplace(id, std::move(sending));
}

// ---- links, on the loop

std::shared_ptr<Receiver> SimTransport::Accept(const Hello& hello, Network::End end) {
  Later later;
  LinkPtr link;
  {
    MutexLock lock(mutex_);
    if (closed_ || gone_.count(hello.instance) != 0) return nullptr;
    LinkPtr& known = links_[hello.instance];
    if (known != nullptr && known->state != Link::kConnecting) return nullptr;
    if (known == nullptr) {
      known = std::make_shared<Link>();
      known->transport = this;
      known->instance = hello.instance;
    }
    link = known;
    link->token = hello.token;
    link->end = std::move(end);
    OpenLocked(*link, &later);
  }
  Run(std::move(later));
  return link;
}

void SimTransport::Opened(const LinkPtr& link) {
  Later later;
  {
    MutexLock lock(mutex_);
    if (link->state == Link::kConnecting) OpenLocked(*link, &later);
  }
  Run(std::move(later));
}

void SimTransport::OpenLocked(Link& link, Later* later) {
  link.state = Link::kOpen;
  for (Sending& sending : link.queue) Transmit(link, std::move(sending), later);
  link.queue.clear();
}

void SimTransport::Ended(const LinkPtr& link, const Status& why) {
  Later later;
  {
    MutexLock lock(mutex_);
    if (link->state != Link::kLost) Lose(*link, why.message(), &later);
    // A process that was killed in the middle of a write, to the last queue that it knew.
    if (why.message() == kGone && network_->Random(2) == 0)
      blocked_ = std::max(blocked_, link->told);
  }
  Run(std::move(later));
}

void SimTransport::Lose(Link& link, const std::string& why, Later* later) {
  link.state = Link::kLost;
  link.why_lost = why;
  CancelSends(link, nullptr, Unavailable(why), later);
  EndArrivals(link, Unavailable("the connection is lost: " + why), later);
}

void SimTransport::CountReceived(size_t bytes) {
  MutexLock lock(mutex_);
  ++stats_.messages_received;
  stats_.bytes_received += bytes;
}

void SimTransport::Arrived(const LinkPtr& link, const Packet& packet) {
  bool same = false;
  {
    MutexLock lock(mutex_);
    if (link->state == Link::kLost || packet.queue <= blocked_) return;
    same = packet.token == link->token;
  }
  // What is replayed is of another link. Whole messages get through, for the layers above to
  // refuse; nothing else makes sense here.
  if (!same && packet.kind != Packet::kMessage) return;
  if (packet.kind == Packet::kAnnounce || packet.kind == Packet::kBytes) {
    MutexLock lock(mutex_);
    uint64_t& last = packet.kind == Packet::kAnnounce ? link->last_announced : link->last_bytes;
    if (packet.transfer <= last) return;  // it comes twice
    last = packet.transfer;
  }
  switch (packet.kind) {
    case Packet::kMessage: {
      CountReceived(packet.header.size() + packet.bytes);
      if (packet.bytes == 0) return handler_->OnDelivered(packet.header, {});
      PayloadSink sink = handler_->OnMessage(packet.header, packet.bytes);
      if (sink.data == nullptr) return;
      std::memcpy(sink.data, packet.small.data(), packet.bytes);
      return sink.done(Status());
    }
    case Packet::kAnnounce:
      return Announced(link, packet);
    case Packet::kBytes:
      return TakeBytes(link, packet.transfer, packet.large);
    case Packet::kTaken: {
      Done done;
      MutexLock lock(mutex_);
      const auto found = link->transfers.find(packet.transfer);
      if (found == link->transfers.end()) return;
      done = std::move(found->second.done);
      link->transfers.erase(found);
      lock.Unlock();
      if (done) done(Status());
    }
  }
}

void SimTransport::Announced(const LinkPtr& link, const Packet& packet) {
  CountReceived(packet.header.size() + packet.bytes);
  Arrival arrival{handler_->OnMessage(packet.header, packet.bytes), packet.bytes, packet.queue};
  std::shared_ptr<Transfer> bytes;
  MutexLock lock(mutex_);
  if (link->state == Link::kLost) {
    const Status why = Unavailable("the connection is lost: " + link->why_lost);
    lock.Unlock();
    if (arrival.sink.data != nullptr) arrival.sink.done(why);
    return;
  }
  link->arrivals.emplace(packet.transfer, std::move(arrival));
  if (const auto early = link->early.find(packet.transfer); early != link->early.end()) {
    bytes = early->second;
    link->early.erase(early);
  }
  lock.Unlock();
  if (bytes != nullptr) TakeBytes(link, packet.transfer, bytes);
}

void SimTransport::TakeBytes(const LinkPtr& link, uint64_t id,
                             const std::shared_ptr<Transfer>& large) {
  Arrival arrival;
  {
    MutexLock lock(mutex_);
    const auto found = link->arrivals.find(id);
    if (found == link->arrivals.end()) {
      link->early[id] = large;
      return;
    }
    arrival = std::move(found->second);
    link->arrivals.erase(found);
  }
  bool given_up = false;
  {
    MutexLock lock(large->mutex);
    given_up = large->given_up;
    if (!given_up && arrival.sink.data != nullptr)
      std::memcpy(arrival.sink.data, large->payload.data(), arrival.bytes);
    if (!given_up) large->payload = {};
  }
  if (given_up && !network_->Lives(large->from)) {
    // It did not give it up: it is dead. The receiver goes on waiting, or hears of that.
    MutexLock lock(mutex_);
    if (link->state != Link::kLost) {
      link->arrivals.emplace(id, std::move(arrival));
      return;
    }
  }
  if (!given_up) {
    MutexLock lock(mutex_);
    link->end.Send(
        Packet{
            .kind = Packet::kTaken, .token = link->token, .queue = link->to_queue, .transfer = id},
        kPacketBytes);
  }
  if (arrival.sink.data != nullptr)
    arrival.sink.done(given_up ? Unavailable("the sender has given it up") : Status());
}

// ---- the end

void SimTransport::Close() {
  Later later;
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for (const auto& [instance, link] : std::map(links_))
      CloseLink(link, Cancelled("the transport is closed"), &later);
  }
  network_->StopListening(site_, PortOf(instance_));
  Run(std::move(later));
  loop_->Close();
}

void SimTransport::Join() { thread_ = nullptr; }

}  // namespace

std::unique_ptr<Transport> MakeSimTransport(Network* network, const Site& site,
                                            MessageHandler* handler) {
  return std::make_unique<SimTransport>(network, site, handler);
}

}  // namespace monograph::simulation
