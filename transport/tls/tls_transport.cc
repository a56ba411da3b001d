// The TLS transport: one link (transport/tls/tls_link.h) per other transport. One lock guards the
// links and their sockets, and nobody waits for it: who finds it taken leaves what is to be done in
// `submitted_`, which the holder empties after giving the lock back (see Unlock). So a sender that
// gets the lock writes its header to the socket itself, without a thread switch; large payloads,
// everything that is received and all callbacks are the driver's.
#include "transport/tls/tls_transport.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/free_list.h"
#include "base/mutex.h"
#include "base/random.h"
#include "transport/drive/drive_loop.h"
#include "transport/host_number.h"
#include "transport/submissions.h"
#include "transport/tls/tls_address.h"
#include "transport/tls/tls_link.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often deadlines are looked at, while there are any.
constexpr milliseconds kClockTick{10};
// Links that another side opened and nobody here connected.
constexpr size_t kMaxUnasked = 1024;

// A lock that can be tried only.
class MG_CAPABILITY TryOnlyLock {
 public:
  bool TryLock() MG_TRY_ACQUIRE(true) {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true);
  }
  void Unlock() MG_RELEASE() { locked_.store(false); }
  // For the analysis: in callbacks of links, which run under the lock.
  void AssertHeld() const MG_ASSERT_HELD() {}

 private:
  // Sequentially consistent, as the stack of submissions is. The relaxed load is a first guess.
  alignas(64) std::atomic<bool> locked_{false};
};

class TlsTransport : public Transport, private Driven, private TlsLink::Owner {
 public:
  TlsTransport(std::shared_ptr<TlsListener> listener, const TlsOptions& options,
               MessageHandler* handler)
      : listener_(std::move(listener)),
        bulk_streams_(options.bulk_streams),
        patience_(options.patience),
        handler_(handler),
        loop_(this, options.spin, "mg-tls-data"),
        inbox_(std::make_shared<TlsInbox>([this] { NeedDriver(); })) {}
  ~TlsTransport() override { MG_CHECK(!started_ || finished_.load()); }

  Status Start();

  std::string address() const override { return address_; }
  uint64_t HostOf(std::string_view address) const override {
    const Result<TlsAddress> decoded = DecodeTlsAddress(address);
    return decoded.ok() ? decoded->host : 0;
  }
  Result<PeerId> Connect(std::string_view address, std::string_view name) override;
  void Disconnect(PeerId peer) override { SubmitCommand(TlsSend::Kind::kDisconnect, peer); }
  std::string Describe(PeerId peer) const override;
  void Send(PeerId peer, std::string_view header, Payload payload, Done done) override;
  bool DriveUntil(const std::function<bool()>& ready, Clock::time_point deadline) override {
    return loop_.DriveUntil(ready, deadline);
  }
  void Wake() override { loop_.Wake(); }
  TransportStats stats() const override {
    return {messages_sent_.load(), messages_received_.load(), bytes_sent_.load(),
            bytes_received_.load()};
  }
  void Close() override {
    if (closing_.exchange(true)) return;
    SubmitCommand(TlsSend::Kind::kClose, 0);
    loop_.Stop();
  }
  void Join() override { loop_.Join(); }

 private:
  // A peer as callers know it. What the holder of the lock knows of it is in `peer`.
  struct Entry {
    TlsPeer peer;  // written at Connect, then used under the lock; its name never changes
    TlsAddress address;
    std::string text;  // for Describe; guarded by peers_mutex_
  };

  bool Poll() override;
  bool Arm() override;
  int event_fd() const override { return epoll_.get(); }
  bool busy() const override { return false; }  // sockets tell of everything
  void Finish() override;

  MessageHandler* handler() override { return handler_; }
  int epoll_fd() const override { return epoll_.get(); }
  milliseconds patience() const override { return patience_; }
  void FinishSend(TlsSend* send, Status status) override;
  void Complete(Done done, Status status) override;
  void CountReceived(size_t bytes) override {
    messages_received_.fetch_add(1, std::memory_order_relaxed);
    bytes_received_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void NeedsClock() override {
    lock_.AssertHeld();
    timed_ = true;
  }
  void StateChanged(TlsLink* link) override;

  // There is something for the driver. Its thread starts when that happens first: a session whose
  // peers are all met by UCX has none.
  void NeedDriver() {
    loop_.Start();
    loop_.Notify();
  }
  void SubmitCommand(TlsSend::Kind kind, PeerId peer);
  void Push(TlsSend* send);
  // Does what was submitted meanwhile.
  void Unlock() MG_RELEASE(lock_);
  void SubmitAll() MG_REQUIRES(lock_);
  void Submit(TlsSend* send) MG_REQUIRES(lock_);
  // The link that the message is queued at, if any.
  TlsLink* SubmitMessage(TlsSend* send) MG_REQUIRES(lock_);
  void ConnectPeer(PeerId id) MG_REQUIRES(lock_);
  void DisconnectPeer(PeerId id) MG_REQUIRES(lock_);
  void CloseAll() MG_REQUIRES(lock_);
  void CloseLink(TlsLink* link, const Status& status) MG_REQUIRES(lock_);
  void TakeArrivals() MG_REQUIRES(lock_);
  void Adopt(TlsArrival arrival) MG_REQUIRES(lock_);
  TlsLink* MakeLink(uint64_t instance, std::string where) MG_REQUIRES(lock_);
  void Activate(TlsLink* link) MG_REQUIRES(lock_);
  bool DriveLinks() MG_REQUIRES(lock_);
  void CheckClock() MG_REQUIRES(lock_);
  void ForgetLinks() MG_REQUIRES(lock_);
  bool RunReady() MG_REQUIRES(lock_);
  void SetText(const TlsPeer& peer, std::string text);
  Entry* Find(PeerId id);
  void Release(TlsSend* send);

  const std::shared_ptr<TlsListener> listener_;
  const int bulk_streams_;
  const milliseconds patience_;
  MessageHandler* const handler_;
  const Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
  uint64_t instance_ = 0;
  uint64_t host_ = 0;
  std::string address_;
  bool started_ = false;

  TryOnlyLock lock_;
  alignas(64) Submissions<TlsSend> submitted_;
  std::atomic<bool> closing_{false};   // default order: Close was called
  std::atomic<bool> finished_{false};  // default order: no thread drives any more
  // Relaxed: counters.
  std::atomic<uint64_t> messages_sent_{0}, messages_received_{0}, bytes_sent_{0},
      bytes_received_{0};

  mutable Mutex peers_mutex_;
  std::vector<std::unique_ptr<Entry>> peers_ MG_GUARDED_BY(peers_mutex_);  // by PeerId

  std::unordered_map<uint64_t, TlsLink*> link_of_ MG_GUARDED_BY(lock_);  // by the other instance
  std::vector<std::unique_ptr<TlsLink>> links_ MG_GUARDED_BY(lock_);
  std::vector<TlsLink*> active_ MG_GUARDED_BY(lock_);  // that may have work
  size_t turn_ MG_GUARDED_BY(lock_) = 0;               // whose bulk streams are next
  size_t unasked_ MG_GUARDED_BY(lock_) = 0;            // links without a peer, since their start
  uint64_t last_token_ MG_GUARDED_BY(lock_) = 0;
  // Instances that were disconnected and not connected again: they cannot open a link.
  std::unordered_set<uint64_t> gone_ MG_GUARDED_BY(lock_);
  bool closed_ MG_GUARDED_BY(lock_) = false;
  bool polling_ MG_GUARDED_BY(lock_) = false;  // the holder is the driver
  bool needs_drive_ MG_GUARDED_BY(lock_) = false;
  bool timed_ MG_GUARDED_BY(lock_) = false;  // some link has a deadline
  bool check_links_ MG_GUARDED_BY(lock_) = false;
  Clock::time_point next_check_ MG_GUARDED_BY(lock_);
  // Completed; and messages to this transport itself.
  std::vector<TlsSend*> ready_ MG_GUARDED_BY(lock_);
  std::vector<TlsSend*> running_ MG_GUARDED_BY(lock_);  // RunReady's

  FreeList<TlsSend> sends_;
  DriveLoop loop_;
  const std::shared_ptr<TlsInbox> inbox_;
};

Status TlsTransport::Start() {
  if (bulk_streams_ < 1 || bulk_streams_ > kMaxBulkStreams) {
    return InvalidArgument("a TLS transport with " + std::to_string(bulk_streams_) +
                           " streams for large payloads; 1 to " + std::to_string(kMaxBulkStreams) +
                           " are allowed");
  }
  if (epoll_.get() < 0) return ResourceExhausted("there is no descriptor for a TLS transport");
  instance_ = RandomNonZero();
  host_ = HostNumber();
  address_ = EncodeTlsAddress({.tls = listener_->has_key(),
                               .instance = instance_,
                               .host = host_,
                               .port = listener_->port(),
                               .name = listener_->host()});
  listener_->Register(instance_, inbox_);
  started_ = true;
  return Status();
}

// ---- calls from any thread ----

void TlsTransport::Push(TlsSend* send) {
  submitted_.Push(send);
  if (lock_.TryLock()) Unlock();
}

void TlsTransport::Unlock() {
  while (true) {
    if (!submitted_.empty()) SubmitAll();
    const bool notify = needs_drive_ && !polling_;
    needs_drive_ = false;
    lock_.Unlock();
    if (notify) NeedDriver();
    // A sender pushes its message before it tries the lock: either it gets the lock now, or this
    // thread sees the message.
    if (submitted_.empty() || !lock_.TryLock()) return;
  }
}

void TlsTransport::SubmitCommand(TlsSend::Kind kind, PeerId peer) {
  TlsSend* command = sends_.Take();
  command->kind = kind;
  command->to = peer;
  Push(command);
}

Result<PeerId> TlsTransport::Connect(std::string_view address, std::string_view name) {
  const std::string what = "cannot connect to " + std::string(name);
  auto decoded = DecodeTlsAddress(address);
  if (!decoded.ok()) return decoded.status().WithContext(what);
  if (closing_.load()) return Cancelled(what + ": the transport is closed");
  if (decoded->tls != listener_->has_key()) {
    return FailedPrecondition(what + ": " +
                              (decoded->tls ? "it has a key and this process has none"
                                            : "this process has a key and it has none") +
                              "; start every process of the cluster with the same --key_file");
  }
  const bool self = decoded->instance == instance_;
  if (!self && !decoded->listens() && listener_->port() == 0) {
    return FailedPrecondition(what + ": neither it nor this process listens for data connections");
  }
  auto entry = std::make_unique<Entry>();
  entry->peer.name = name;
  entry->peer.self = self;
  entry->address = std::move(decoded).value();
  entry->text = self ? "self (by reference)" : "tls (connecting)";
  PeerId id;
  {
    MutexLock lock(peers_mutex_);
    id = entry->peer.id = static_cast<PeerId>(peers_.size());
    peers_.push_back(std::move(entry));
  }
  SubmitCommand(TlsSend::Kind::kConnect, id);
  return id;
}

std::string TlsTransport::Describe(PeerId id) const {
  MutexLock lock(peers_mutex_);
  return id < peers_.size() ? peers_[id]->text : "not connected";
}

void TlsTransport::Send(PeerId to, std::string_view header, Payload payload, Done done) {
  TlsSend* send = sends_.Take();
  send->kind = TlsSend::Kind::kMessage;
  send->to = to;
  send->payload = std::move(payload);
  send->done = std::move(done);
  send->header_bytes = static_cast<uint32_t>(header.size());
  if (header.size() <= kMaxHeaderBytes) std::memcpy(send->header, header.data(), header.size());
  Push(send);
}

// ---- under the lock, on any thread; calls no handler ----

TlsTransport::Entry* TlsTransport::Find(PeerId id) {
  MutexLock lock(peers_mutex_);
  return id < peers_.size() ? peers_[id].get() : nullptr;
}

void TlsTransport::SetText(const TlsPeer& peer, std::string text) {
  MutexLock lock(peers_mutex_);
  peers_[peer.id]->text = std::move(text);
}

void TlsTransport::StateChanged(TlsLink* link) {
  lock_.AssertHeld();
  check_links_ = needs_drive_ = true;
  const std::string text = link->Describe();
  MutexLock lock(peers_mutex_);
  for (const auto& entry : peers_)
    if (entry->peer.link == link) entry->text = text;
}

void TlsTransport::Release(TlsSend* send) {
  send->payload = {};
  send->done = nullptr;
  send->status = Status();
  send->peer = nullptr;
  sends_.Give(send);
}

void TlsTransport::FinishSend(TlsSend* send, Status status) {
  lock_.AssertHeld();
  if (!send->done) {
    Release(send);
    return;
  }
  if (finished_.load()) {  // after Join: no thread is left to run it
    const Done done = std::move(send->done);
    Release(send);
    done(status);
    return;
  }
  send->payload = {};
  send->peer = nullptr;
  send->status = std::move(status);
  ready_.push_back(send);
  needs_drive_ = true;
}

void TlsTransport::Complete(Done done, Status status) {
  TlsSend* completion = sends_.Take();
  completion->done = std::move(done);
  FinishSend(completion, std::move(status));
}

void TlsTransport::SubmitAll() {
  // Links that another thread's messages were queued at. Their headers go out together.
  std::array<TlsLink*, 16> touched;
  size_t count = 0;
  const auto flush = [&]() MG_REQUIRES(lock_) {
    if (count == 0) return;
    const NoSigpipe no_signal;
    for (size_t i = 0; i < count; ++i) {
      touched[i]->FlushControl();
      Activate(touched[i]);
    }
    count = 0;
  };
  for (TlsSend* send = submitted_.TakeAll(); send != nullptr;) {
    TlsSend* next = send->next;
    if (send->kind == TlsSend::Kind::kMessage) {
      TlsLink* link = SubmitMessage(send);
      const auto end = touched.begin() + static_cast<ptrdiff_t>(count);
      if (link != nullptr && std::find(touched.begin(), end, link) == end) touched[count++] = link;
      if (count == touched.size()) flush();
    } else {
      flush();
      Submit(send);
    }
    send = next;
  }
  flush();
}

void TlsTransport::Submit(TlsSend* command) {
  const TlsSend::Kind kind = command->kind;
  const PeerId peer = command->to;
  Release(command);
  switch (kind) {
    case TlsSend::Kind::kConnect:
      return ConnectPeer(peer);
    case TlsSend::Kind::kDisconnect:
      return DisconnectPeer(peer);
    case TlsSend::Kind::kClose:
      return CloseAll();
    case TlsSend::Kind::kMessage:
      return;
  }
}

TlsLink* TlsTransport::SubmitMessage(TlsSend* send) {
  if (send->header_bytes > kMaxHeaderBytes) {
    FinishSend(send, InvalidArgument("a message header of " + std::to_string(send->header_bytes) +
                                     " bytes; at most " + std::to_string(kMaxHeaderBytes) +
                                     " are allowed"));
    return nullptr;
  }
  Entry* entry = Find(send->to);
  if (closed_ || entry == nullptr || !entry->peer.connected) {
    FinishSend(send, Cancelled(closed_ ? "the transport is closed" : "the peer is not connected"));
    return nullptr;
  }
  send->peer = &entry->peer;
  messages_sent_.fetch_add(1, std::memory_order_relaxed);
  bytes_sent_.fetch_add(send->header_bytes + send->payload.bytes, std::memory_order_relaxed);
  if (entry->peer.self) {  // RunReady delivers it
    ready_.push_back(send);
    needs_drive_ = true;
    return nullptr;
  }
  entry->peer.link->Queue(send);
  return entry->peer.link;
}

TlsLink* TlsTransport::MakeLink(uint64_t instance, std::string where) {
  links_.push_back(std::make_unique<TlsLink>(static_cast<TlsLink::Owner*>(this), instance,
                                             std::move(where), ++last_token_));
  return link_of_[instance] = links_.back().get();
}

void TlsTransport::ConnectPeer(PeerId id) {
  Entry* entry = Find(id);
  TlsPeer& peer = entry->peer;
  if (closed_) {
    peer.connected = false;
    return;
  }
  if (peer.self) return;
  const TlsAddress& address = entry->address;
  gone_.erase(address.instance);
  const auto found = link_of_.find(address.instance);
  TlsLink* link = found != link_of_.end() ? found->second : MakeLink(address.instance, peer.name);
  const bool is_new = found == link_of_.end();
  if (!is_new && link->peers() == 0 && unasked_ > 0) --unasked_;
  link->AddPeer(peer);
  peer.link = link;
  needs_drive_ = true;  // for the link's deadlines
  SetText(peer, link->Describe());
  // Of two sides that listen, the smaller one dials.
  if (!is_new || !address.listens() || (listener_->port() != 0 && instance_ > address.instance)) {
    return;
  }
  link->set_dials();
  const auto count = static_cast<uint8_t>(bulk_streams_ + 1);
  for (uint8_t index = 0; index < count; ++index) {
    listener_->Dial({.host = address.name,
                     .port = address.port,
                     .to = address.instance,
                     .from = instance_,
                     .index = index,
                     .count = count,
                     .token = link->token()},
                    inbox_);
  }
}

void TlsTransport::DisconnectPeer(PeerId id) {
  Entry* entry = Find(id);
  if (entry == nullptr || !entry->peer.connected) return;
  TlsPeer& peer = entry->peer;
  peer.connected = false;
  SetText(peer, "not connected");
  needs_drive_ = true;
  const Status status = Cancelled("disconnected from " + peer.name);
  TlsLink* link = std::exchange(peer.link, nullptr);
  if (link == nullptr) return;
  link->CancelSends(&peer, status);
  link->RemovePeer();
  if (link->peers() == 0) {
    gone_.insert(link->instance());
    CloseLink(link, status);
  }
}

void TlsTransport::CloseLink(TlsLink* link, const Status& status) {
  const auto found = link_of_.find(link->instance());
  if (found != link_of_.end() && found->second == link) link_of_.erase(found);
  const NoSigpipe no_signal;
  link->Close(status);
  Activate(link);
  check_links_ = needs_drive_ = true;
}

void TlsTransport::CloseAll() {
  if (std::exchange(closed_, true)) return;
  const Status status = Cancelled("the transport is closed");
  for (size_t i = 0; i < links_.size(); ++i) CloseLink(links_[i].get(), status);
}

void TlsTransport::Activate(TlsLink* link) {
  if (!link->HasWork()) return;
  if (std::find(active_.begin(), active_.end(), link) == active_.end()) active_.push_back(link);
  needs_drive_ = true;
}

void TlsTransport::TakeArrivals() {
  const NoSigpipe no_signal;
  for (TlsArrival& arrival : inbox_->TakeAll()) Adopt(std::move(arrival));
}

void TlsTransport::Adopt(TlsArrival arrival) {
  const auto found = link_of_.find(arrival.from);
  TlsLink* link = found == link_of_.end() ? nullptr : found->second;
  if (closed_ || (arrival.dialed && (link == nullptr || link->token() != arrival.token))) return;
  if (!arrival.status.ok()) return link->Lose(arrival.status.message());
  if (link == nullptr) {
    if (gone_.contains(arrival.from) || unasked_ >= kMaxUnasked) return;
    ++unasked_;
    link = MakeLink(arrival.from, "the task at " + arrival.where);
  }
  if (!link->usable() || !link->Adopt(&arrival)) return;
  link->FlushControl();
  Activate(link);
}

// ---- the driver ----

bool TlsTransport::Poll() {
  if (!lock_.TryLock()) return false;
  polling_ = true;
  bool any = false;
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    auto* stream = static_cast<TlsLink::Stream*>(events[static_cast<size_t>(i)].data.ptr);
    stream->link->OnReady(stream, events[static_cast<size_t>(i)].events);
    Activate(stream->link);
  }
  if (!inbox_->empty()) {
    TakeArrivals();
    any = true;
  }
  if (!submitted_.empty()) {
    SubmitAll();
    any = true;
  }
  if (!active_.empty()) any |= DriveLinks();
  if (!ready_.empty()) any |= RunReady();
  if (timed_) CheckClock();
  if (check_links_) ForgetLinks();
  polling_ = false;
  needs_drive_ = false;  // the driver looks again before it sleeps
  Unlock();
  return any;
}

bool TlsTransport::DriveLinks() {
  const NoSigpipe no_signal;
  // Headers of all links, then the bulk streams of one.
  for (size_t i = 0; i < active_.size(); ++i) {
    active_[i]->DriveControl();
    if (!submitted_.empty()) SubmitAll();
  }
  active_[++turn_ % active_.size()]->DriveBulk();
  std::erase_if(active_, [](TlsLink* link) { return !link->HasWork(); });
  return true;
}

bool TlsTransport::Arm() {
  if (!lock_.TryLock()) return false;
  const bool quiet =
      submitted_.empty() && ready_.empty() && active_.empty() && inbox_->empty() && !check_links_;
  Unlock();
  return quiet;
}

void TlsTransport::CheckClock() {
  const auto now = Clock::now();
  if (now < next_check_) return;
  next_check_ = now + kClockTick;
  timed_ = false;
  for (size_t i = 0; i < links_.size(); ++i) timed_ |= links_[i]->Expire(now);
  check_links_ = true;
}

// Frees links that are over, and lost ones that nobody here connected.
void TlsTransport::ForgetLinks() {
  check_links_ = false;
  std::erase_if(links_, [&](const std::unique_ptr<TlsLink>& link) MG_REQUIRES(lock_) {
    if (!link->over() && !(link->lost() && link->peers() == 0)) return false;
    if (link->lost()) {
      link_of_.erase(link->instance());
      if (unasked_ > 0) --unasked_;
    }
    std::erase(active_, link.get());
    return true;
  });
}

bool TlsTransport::RunReady() {
  bool any = false;
  while (!ready_.empty()) {
    any = true;
    running_.swap(ready_);
    for (TlsSend* send : running_) {
      if (const TlsPeer* peer = std::exchange(send->peer, nullptr); peer != nullptr) {
        if (peer->connected && !closed_) {  // to this very transport
          CountReceived(send->header_bytes + send->payload.bytes);
          handler_->OnDelivered({send->header, send->header_bytes}, std::move(send->payload));
        } else {
          send->status = Cancelled("disconnected from " + peer->name);
        }
        if (!send->done) {
          Release(send);
          continue;
        }
      }
      const Done done = std::move(send->done);
      const Status status = std::move(send->status);
      Release(send);
      done(status);
    }
    running_.clear();
  }
  return any;
}

void TlsTransport::Finish() {
  listener_->Unregister(instance_);
  inbox_->Close();
  // CloseAll was submitted before this thread was told to end.
  const auto deadline = Clock::now() + patience_ + 2 * kClockTick;
  while (Clock::now() < deadline) {
    if (Poll()) continue;
    if (lock_.TryLock()) {
      const bool over = closed_ && links_.empty() && ready_.empty();
      Unlock();
      if (over) break;
    }
    pollfd ready{epoll_.get(), POLLIN, 0};
    poll(&ready, 1, 1);
  }
  while (!lock_.TryLock()) sched_yield();
  polling_ = true;
  do {
    SubmitAll();
  } while (RunReady());
  links_.clear();
  link_of_.clear();
  active_.clear();
  finished_.store(true);
  polling_ = false;
  Unlock();
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeTlsTransport(std::shared_ptr<TlsListener> listener,
                                                    const TlsOptions& options,
                                                    MessageHandler* handler) {
  auto transport = std::make_unique<TlsTransport>(std::move(listener), options, handler);
  MG_RETURN_IF_ERROR(transport->Start());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace monograph
