// Both inner transports are made at the start, and a peer's address is the offer of both
// (transport/lanes/offer.h). Only Connect chooses; from then on the lowest bit of a PeerId says
// which transport a call goes to. What TLS delivers passes a relay, which also wakes who drives
// UCX's.
#include "transport/lanes/lanes_transport.h"

#include <array>
#include <atomic>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace monograph {
namespace {

constexpr uint32_t kUcx = 0, kTls = 1;
// No inner transport gives this number; nor does doubling it overflow.
constexpr PeerId kNobody = 0x7fffffff;

class LanesTransport : public Transport {
 public:
  explicit LanesTransport(MessageHandler* handler) : relay_(this, handler) {}

  Status Start(const LanesParts& parts, MessageHandler* handler);

  std::string address() const override {
    MutexLock lock(mutex_);
    return EncodeLanesOffer(offer_);
  }
  uint64_t HostOf(std::string_view address) const override {
    const Result<LanesOffer> offer = DecodeLanesOffer(address);
    return offer.ok() ? offer->host : 0;
  }
  Result<PeerId> Connect(std::string_view address, std::string_view name) override;
  void Disconnect(PeerId peer) override { At(peer)->Disconnect(Inner(peer)); }
  Result<std::string> Renew(PeerId lost) override;
  Status Reconnect(PeerId peer, std::string_view address) override;
  bool TakesGpuMemory(PeerId peer) const override { return At(peer)->TakesGpuMemory(Inner(peer)); }
  std::string Describe(PeerId peer) const override;
  void Send(PeerId peer, std::string_view header, Payload payload, Done done) override {
    const uint32_t way = peer & 1;
    if (way == kTls && mixed() && done) done = Waking(std::move(done));
    ways_[way].transport->Send(peer >> 1 | ways_[way].mask, header, std::move(payload),
                               std::move(done));
  }
  bool DriveUntil(const std::function<bool()>& ready,
                  std::chrono::steady_clock::time_point deadline) override;
  void Wake() override {
    for (const auto& transport : owned_) {
      if (transport != nullptr) transport->Wake();
    }
  }
  TransportStats stats() const override;
  void Close() override {
    for (const auto& transport : owned_) {
      if (transport != nullptr) transport->Close();
    }
  }
  void Join() override {
    for (const auto& transport : owned_) {
      if (transport != nullptr) transport->Join();
    }
  }

 private:
  // Where a way leads. If its transport is absent, to nobody at the other one.
  struct Way {
    Transport* transport = nullptr;
    PeerId mask = 0;
    std::atomic<bool> used{false};  // relaxed: says which transport to drive
  };
  // The TLS transport's handler.
  class Relay : public MessageHandler {
   public:
    Relay(LanesTransport* lanes, MessageHandler* handler) : lanes_(lanes), handler_(handler) {}
    PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override {
      PayloadSink sink = handler_->OnMessage(header, payload_bytes);
      if (lanes_->mixed() && sink.done) sink.done = lanes_->Waking(std::move(sink.done));
      lanes_->WakeGuests();
      return sink;
    }
    void OnDelivered(std::string_view header, Payload payload) override {
      handler_->OnDelivered(header, std::move(payload));
      lanes_->WakeGuests();
    }

   private:
    LanesTransport* const lanes_;
    MessageHandler* const handler_;
  };

  Transport* At(PeerId peer) const { return ways_[peer & 1].transport; }
  PeerId Inner(PeerId peer) const { return peer >> 1 | ways_[peer & 1].mask; }
  bool mixed() const {
    return ways_[kUcx].used.load(std::memory_order_relaxed) &&
           ways_[kTls].used.load(std::memory_order_relaxed);
  }
  // After a callback on the thread of TLS: who drives UCX looks at its ready() again.
  void WakeGuests() {
    if (mixed()) ways_[kUcx].transport->Wake();
  }
  Done Waking(Done done) {
    return [this, done = std::move(done)](const Status& status) {
      done(status);
      WakeGuests();
    };
  }

  Relay relay_;
  std::array<std::unique_ptr<Transport>, 2> owned_;
  std::array<Way, 2> ways_;
  mutable Mutex mutex_;
  LanesOffer offer_ MG_GUARDED_BY(mutex_);
  // LaneChoice's, of the peers that have any.
  std::unordered_map<PeerId, std::string> notes_ MG_GUARDED_BY(mutex_);
  std::unordered_map<PeerId, std::string> gpu_notes_ MG_GUARDED_BY(mutex_);
};

Status LanesTransport::Start(const LanesParts& parts, MessageHandler* handler) {
  LanesOffer offer = parts.offer;
  Status failed;
  const auto make = [&](const TransportFactory& factory, uint32_t way, MessageHandler* to,
                        std::string* address) {
    if (!factory || !failed.ok()) return;
    Result<std::unique_ptr<Transport>> made = factory(to);
    if (!made.ok()) {
      failed = made.status();
      return;
    }
    owned_[way] = std::move(made).value();
    *address = owned_[way]->address();
  };
  make(parts.ucx, kUcx, handler, &offer.ucx);
  make(parts.tls, kTls, &relay_, &offer.tls);
  if (failed.ok() && owned_[kUcx] == nullptr && owned_[kTls] == nullptr)
    failed = InvalidArgument("the data plane has no lane");
  if (!failed.ok()) {
    Close();
    Join();
    return failed;
  }
  for (const uint32_t way : {kUcx, kTls}) {
    const bool here = owned_[way] != nullptr;
    ways_[way].transport = owned_[here ? way : 1 - way].get();
    ways_[way].mask = here ? 0 : kNobody;
  }
  MutexLock lock(mutex_);
  offer_ = std::move(offer);
  return Status();
}

Result<PeerId> LanesTransport::Connect(std::string_view address, std::string_view name) {
  const std::string what = "cannot connect to " + std::string(name);
  Result<LanesOffer> theirs = DecodeLanesOffer(address);
  if (!theirs.ok()) return theirs.status().WithContext(what);
  const Result<LaneChoice> choice = [&] {
    MutexLock lock(mutex_);
    return ChooseLane(offer_, *theirs);
  }();
  if (!choice.ok()) {
    const Status refused = choice.status().WithContext(what);
    LogWarning(refused.message());
    return refused;
  }
  const uint32_t way = choice->way == LaneChoice::Way::kUcx ? kUcx : kTls;
  MG_ASSIGN_OR_RETURN(const PeerId inner,
                      owned_[way]->Connect(way == kUcx ? theirs->ucx : theirs->tls, name));
  if (inner >= kNobody) return ResourceExhausted(what + ": too many peers");
  const PeerId peer = inner << 1 | way;
  ways_[way].used.store(true, std::memory_order_relaxed);
  if (choice->gpu_memory) owned_[way]->UseGpuMemory(inner);
  MutexLock lock(mutex_);
  if (!choice->note.empty()) notes_[peer] = choice->note;
  if (!choice->gpu_note.empty()) gpu_notes_[peer] = choice->gpu_note;
  return peer;
}

Result<std::string> LanesTransport::Renew(PeerId lost) {
  if ((lost & 1) == kUcx) {
    MG_ASSIGN_OR_RETURN(std::string ucx, At(lost)->Renew(Inner(lost)));
    MutexLock lock(mutex_);
    offer_.ucx = std::move(ucx);
  }
  return address();
}

Status LanesTransport::Reconnect(PeerId peer, std::string_view address) {
  const Result<LanesOffer> theirs = DecodeLanesOffer(address);
  if (!theirs.ok()) return theirs.status().WithContext("cannot connect anew");
  return At(peer)->Reconnect(Inner(peer), (peer & 1) == kUcx ? theirs->ucx : theirs->tls);
}

std::string LanesTransport::Describe(PeerId peer) const {
  std::string text = At(peer)->Describe(Inner(peer));
  if (text == "not connected") return text;
  // Without addresses, so that peers of this way are told of in one line.
  if ((peer & 1) == kTls) text = "tls 1.3";
  MutexLock lock(mutex_);
  if (const auto note = notes_.find(peer); note != notes_.end()) text += " (" + note->second + ")";
  if (const auto note = gpu_notes_.find(peer); note != gpu_notes_.end())
    text += ", " + note->second;
  return text;
}

bool LanesTransport::DriveUntil(const std::function<bool()>& ready,
                                std::chrono::steady_clock::time_point deadline) {
  const bool tls = ways_[kTls].used.load(std::memory_order_relaxed) &&
                   !ways_[kUcx].used.load(std::memory_order_relaxed);
  return ways_[tls ? kTls : kUcx].transport->DriveUntil(ready, deadline);
}

TransportStats LanesTransport::stats() const {
  TransportStats sum;
  for (const auto& transport : owned_) {
    if (transport != nullptr) sum += transport->stats();
  }
  return sum;
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeLanesTransport(const LanesParts& parts,
                                                      MessageHandler* handler) {
  auto transport = std::make_unique<LanesTransport>(handler);
  MG_RETURN_IF_ERROR(transport->Start(parts, handler));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace monograph
