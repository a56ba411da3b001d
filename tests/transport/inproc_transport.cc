// Transports of one process. A message is an entry in the receiver's inbox; its completion is an
// entry in the sender's. Endpoints find each other by address in a process-wide registry.
#include "tests/transport/inproc_transport.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "transport/drive/drive_loop.h"

namespace monograph {
namespace {

constexpr std::string_view kAddressPrefix = "inproc:";
// Cross-thread hand-over within a process needs no long spin: a sleeping thread is woken by the
// sender.
constexpr std::chrono::microseconds kSpin{20};

class Endpoint;

// One Connect call.
struct Link {
  std::shared_ptr<Endpoint> to;
  std::string name;
  std::atomic<bool> cut{false};  // default order: read once per message
};

// A message on its way, or (from == nullptr) a completion on its way back.
struct Entry {
  std::shared_ptr<Endpoint> from;
  std::shared_ptr<Link> link;
  std::string header;
  Payload payload;
  Done done;
  Status status;
};

class Endpoint : public std::enable_shared_from_this<Endpoint>, public Driven {
 public:
  Endpoint(uint64_t id, MessageHandler* handler)
      : id_(id), handler_(handler), loop_(this, kSpin, "mg-inproc") {}

  uint64_t id() const { return id_; }
  DriveLoop& loop() { return loop_; }

  // Takes the entry unless this endpoint is closed.
  bool PushMessage(Entry& entry) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      inbox_.push_back(std::move(entry));
      size_.store(inbox_.size());
    }
    loop_.Notify();
    return true;
  }

  // The completion of one of this endpoint's own sends. Every send with a callback is counted until
  // its callback has run.
  void PushCompletion(Done done, Status status) {
    {
      MutexLock lock(mutex_);
      if (finished_) {  // a Send after Join: no thread is left to run this
        lock.Unlock();
        done(status);
        return;
      }
      Entry entry;
      entry.done = std::move(done);
      entry.status = std::move(status);
      inbox_.push_back(std::move(entry));
      size_.store(inbox_.size());
    }
    loop_.Notify();
  }

  void CountSend(bool with_done) {
    if (with_done) open_sends_.fetch_add(1);
  }

  // Takes out of the inbox the messages that `wanted` names.
  template <typename Wanted>
  std::vector<Entry> TakeMessages(Wanted wanted) {
    std::vector<Entry> taken;
    MutexLock lock(mutex_);
    auto keep = inbox_.begin();
    for (Entry& entry : inbox_) {
      if (entry.from != nullptr && wanted(entry)) {
        taken.push_back(std::move(entry));
      } else {
        if (&*keep != &entry) *keep = std::move(entry);
        ++keep;
      }
    }
    inbox_.erase(keep, inbox_.end());
    size_.store(inbox_.size());
    return taken;
  }

  void Close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    for (Entry& entry : TakeMessages([](const Entry&) { return true; })) {
      Complete(entry, Cancelled("the receiving transport was closed"));
    }
    loop_.Stop();
  }

  static void Complete(Entry& entry, Status status) {
    if (entry.done) entry.from->PushCompletion(std::move(entry.done), std::move(status));
  }

  bool Poll() override {
    if (size_.load(std::memory_order_acquire) == 0) return false;
    {
      MutexLock lock(mutex_);
      inbox_.swap(batch_);
      size_.store(0);
    }
    for (Entry& entry : batch_) {
      if (entry.from == nullptr) {
        entry.done(entry.status);
        entry.done = nullptr;
        open_sends_.fetch_sub(1);
        continue;
      }
      if (entry.link->cut.load()) {
        Complete(entry, Cancelled("disconnected from " + entry.link->name));
        continue;
      }
      messages_received.fetch_add(1, std::memory_order_relaxed);
      bytes_received.fetch_add(entry.header.size() + entry.payload.bytes,
                               std::memory_order_relaxed);
      handler_->OnDelivered(entry.header, std::move(entry.payload));
      Complete(entry, Status());
    }
    batch_.clear();
    return true;
  }

  bool Arm() override { return size_.load() == 0; }
  int event_fd() const override { return -1; }
  bool busy() const override { return size_.load() != 0; }

  // The peers that still hold our messages complete them: their own threads drive them.
  void Finish() override {
    while (true) {
      Poll();
      if (open_sends_.load() == 0) {
        MutexLock lock(mutex_);
        if (inbox_.empty()) {
          finished_ = true;
          return;
        }
      }
      std::this_thread::yield();
    }
  }

  std::atomic<uint64_t> messages_received{0}, bytes_received{0};  // relaxed: counters

 private:
  const uint64_t id_;
  MessageHandler* const handler_;
  Mutex mutex_;
  std::vector<Entry> inbox_ MG_GUARDED_BY(mutex_);
  bool closed_ MG_GUARDED_BY(mutex_) = false;
  bool finished_ MG_GUARDED_BY(mutex_) = false;
  // Of inbox_. Sequentially consistent: it is written before Notify and read by Arm, which is
  // called after the sleeper has said that it sleeps (transport/drive/drive_loop.h).
  std::atomic<size_t> size_{0};
  std::atomic<int64_t> open_sends_{0};  // default order: once per message
  std::vector<Entry> batch_;            // the driving thread's
  DriveLoop loop_;
};

struct Registry {
  Mutex mutex;
  uint64_t next_id MG_GUARDED_BY(mutex) = 1;
  std::unordered_map<uint64_t, std::weak_ptr<Endpoint>> endpoints MG_GUARDED_BY(mutex);
};

Registry& GlobalRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

class InprocTransport : public Transport {
 public:
  explicit InprocTransport(MessageHandler* handler) {
    Registry& registry = GlobalRegistry();
    MutexLock lock(registry.mutex);
    const uint64_t id = registry.next_id++;
    endpoint_ = std::make_shared<Endpoint>(id, handler);
    registry.endpoints[id] = endpoint_;
    endpoint_->loop().Start();
  }

  ~InprocTransport() override {
    MG_CHECK(joined_.load());
    Registry& registry = GlobalRegistry();
    MutexLock lock(registry.mutex);
    registry.endpoints.erase(endpoint_->id());
  }

  std::string address() const override {
    return std::string(kAddressPrefix) + std::to_string(endpoint_->id());
  }

  Result<PeerId> Connect(std::string_view address, std::string_view name) override {
    uint64_t id = 0;
    const char* end = address.data() + address.size();
    if (!address.starts_with(kAddressPrefix) ||
        std::from_chars(address.data() + kAddressPrefix.size(), end, id).ptr != end ||
        address.size() == kAddressPrefix.size()) {
      return InvalidArgument("cannot connect to " + std::string(name) +
                             ": its address is not one of an inproc transport");
    }
    auto link = std::make_shared<Link>();
    link->name = name;
    {
      Registry& registry = GlobalRegistry();
      MutexLock lock(registry.mutex);
      auto found = registry.endpoints.find(id);
      if (found != registry.endpoints.end()) link->to = found->second.lock();
    }
    if (link->to == nullptr) {
      return InvalidArgument("cannot connect to " + std::string(name) +
                             ": this process has no transport " + std::string(address));
    }
    MutexLock lock(mutex_);
    links_.push_back(std::move(link));
    return static_cast<PeerId>(links_.size() - 1);
  }

  void Disconnect(PeerId peer) override {
    std::shared_ptr<Link> link;
    {
      MutexLock lock(mutex_);
      if (peer >= links_.size()) return;
      link = std::move(links_[peer]);
    }
    if (link != nullptr) Cut(*link, "disconnected from " + link->name);
  }

  std::string Describe(PeerId peer) const override {
    return Find(peer) != nullptr ? "inproc (by reference)" : "not connected";
  }

  void Send(PeerId peer, std::string_view header, Payload payload, Done done) override {
    endpoint_->CountSend(done != nullptr);
    if (header.size() > kMaxHeaderBytes) {
      Fail(std::move(done),
           InvalidArgument("a message header of " + std::to_string(header.size()) +
                           " bytes; at most " + std::to_string(kMaxHeaderBytes) + " are allowed"));
      return;
    }
    std::shared_ptr<Link> link = Find(peer);
    if (closed_.load() || link == nullptr) {
      Fail(std::move(done),
           Cancelled(closed_.load() ? "the transport is closed" : "the peer is not connected"));
      return;
    }
    Entry entry;
    entry.from = endpoint_;
    entry.header = header;
    entry.payload = std::move(payload);
    entry.done = std::move(done);
    entry.link = link;
    messages_sent_.fetch_add(1, std::memory_order_relaxed);
    bytes_sent_.fetch_add(header.size() + entry.payload.bytes, std::memory_order_relaxed);
    if (!link->to->PushMessage(entry)) {
      Fail(std::move(entry.done), Cancelled("the transport of " + link->name + " is closed"));
    } else if (link->cut.load()) {
      Cut(*link, "disconnected from " +
                     link->name);  // a Disconnect that came meanwhile may have missed this message
    }
  }

  bool DriveUntil(const std::function<bool()>& ready,
                  std::chrono::steady_clock::time_point deadline) override {
    return endpoint_->loop().DriveUntil(ready, deadline);
  }
  void Wake() override { endpoint_->loop().Wake(); }

  TransportStats stats() const override {
    return {messages_sent_.load(), endpoint_->messages_received.load(), bytes_sent_.load(),
            endpoint_->bytes_received.load()};
  }

  void Close() override {
    if (closed_.exchange(true)) return;
    std::vector<std::shared_ptr<Link>> links;
    {
      MutexLock lock(mutex_);
      links.swap(links_);
    }
    for (const auto& link : links) {
      if (link != nullptr) Cut(*link, "the transport is closed");
    }
    endpoint_->Close();
  }

  void Join() override {
    endpoint_->loop().Join();
    joined_.store(true);
  }

 private:
  std::shared_ptr<Link> Find(PeerId peer) const {
    MutexLock lock(mutex_);
    return peer < links_.size() ? links_[peer] : nullptr;
  }

  void Fail(Done done, Status status) {
    if (done) endpoint_->PushCompletion(std::move(done), std::move(status));
  }

  static void Cut(Link& link, const std::string& why) {
    link.cut.store(true);
    for (Entry& entry :
         link.to->TakeMessages([&](const Entry& e) { return e.link.get() == &link; })) {
      Endpoint::Complete(entry, Cancelled(why));
    }
  }

  std::shared_ptr<Endpoint> endpoint_;
  std::atomic<bool> closed_{false}, joined_{false};         // default order: once per message
  std::atomic<uint64_t> messages_sent_{0}, bytes_sent_{0};  // relaxed: counters
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Link>> links_ MG_GUARDED_BY(mutex_);  // by PeerId
};

}  // namespace

std::unique_ptr<Transport> MakeInprocTransport(MessageHandler* handler) {
  return std::make_unique<InprocTransport>(handler);
}

}  // namespace monograph
