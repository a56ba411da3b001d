// The UCX transport: a ucp worker, active messages (their bytes: transport/ucx/ucx_header.h). The
// worker has one lock. A sender that gets it sends at once, from its own thread. One that does not
// leaves the message in `submitted_`, which whoever holds the lock empties after giving it back
// (see Unlock), so that no message waits for a wake-up. Callbacks run under the lock: a Send inside
// a callback finds that its thread holds it. A peer that ends while it writes to the worker's queue
// in shared memory leaves that blocked for all who write there: Renew makes another worker,
// Reconnect tells of it, and the old one is looked at for a moment more.
#include "transport/ucx/ucx_transport.h"

#include <pthread.h>
#include <sched.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/free_list.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "transport/drive/drive_loop.h"
#include "transport/host_number.h"
#include "transport/reference/references.h"
#include "transport/submissions.h"
#include "transport/ucx/ucx_address.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_guard.h"
#include "transport/ucx/ucx_header.h"
#include "transport/ucx/ucx_status.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr unsigned kHeaderOnly = 1;
constexpr unsigned kWithPayload = 2;
constexpr unsigned kWithReference = 3;
// After a Disconnect, how long a payload that is still arriving may take.
constexpr milliseconds kReceiveGrace{250};
// As for TLS (transport/tls/tls_listener.cc): that there is no way to a host, or that a device is
// not there, may be what is left of a cut that is healed. Linux tells of a carrier within a second.
constexpr milliseconds kNoWayFor{2000}, kNoWayPause{100};
// At Join: for peers to fetch what was sent, and for endpoints to flush.
constexpr milliseconds kFinishGrace{250};
constexpr milliseconds kFlushGrace{100};
// And for copies from and to GPUs' memory, as long as they go on; they stand still where the peer
// is lost.
constexpr milliseconds kGpuGrace{4000}, kGpuStill{250};
// After a Renew, how long what is on its way by the old worker may take.
constexpr milliseconds kRetiredGrace{1000};

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

class UcxTransport;
struct Peer;

// A worker of UCX. The last one is in use; those before it were given up when a peer was lost.
struct UcxWorker {
  UcxTransport* transport = nullptr;
  ucp_worker_h handle = nullptr;
  int event_fd = -1;
  std::string address = {};      // by which others reach it
  std::string lost = {};         // whose loss ended its use
  Clock::time_point until = {};  // from then on it is polled no more
  bool silent = false;           // that time is over
};

// One message from Send to Done. Recycled. Its life:
//
//   Submit --completes at once--> in `ready_` --driver--> Done
//      \--UCX's request, in Peer::held--OnSent----------> Done
//                  \--Disconnect--> Done(Cancelled) by `ready_`; the context and its payload stay
//                                   until UCX is through with the memory, or Join
struct SendContext {
  SendContext* next = nullptr;   // in submitted_
  SendContext* newer = nullptr;  // in Peer::held
  SendContext* older = nullptr;
  Peer* peer = nullptr;
  PeerId to = 0;
  void* request = nullptr;            // UCX's, while it holds this context
  const UcxWorker* worker = nullptr;  // whose request it is
  bool open = false;                  // in Peer::held and counted in in_flight_: not cancelled
  Payload payload;
  Done done;
  Status status;
  uint32_t header_bytes = 0;
  Reference reference;  // in place of the payload
  struct {
    uint64_t instance;
    char bytes[kMaxHeaderBytes];
  } header;
};

// A payload that is arriving by rendezvous. Recycled.
struct ReceiveContext {
  ReceiveContext* newer = nullptr;
  ReceiveContext* older = nullptr;
  bool open = false;       // done is still to be called
  bool cancelled = false;  // open, but only until `deadline`
  Clock::time_point deadline;
  void* request = nullptr;
  uint64_t source = 0;  // the sender's instance
  const UcxWorker* worker = nullptr;
  PayloadSink sink;
};

template <typename T>
void Link(T*& first, T* item) {
  item->older = first;
  item->newer = nullptr;
  if (first != nullptr) first->newer = item;
  first = item;
}

template <typename T>
void Unlink(T*& first, T* item) {
  (item->newer != nullptr ? item->newer->older : first) = item->older;
  if (item->older != nullptr) item->older->newer = item->newer;
}

// UCX's way to another transport. Peers with one address share one, since UCX pairs the endpoints
// of two workers in the order in which they were made and refuses a rendezvous whose partner is
// closed.
//
// Endpoints are closed with the worker, which gives back what a dead peer never answered. Before
// that UCX can tear one down only by force, in its error mode PEER (in UCX 1.13 that mode takes
// shared memory away): if the endpoint is sending by TCP then, and the peer closes its own, UCX
// uses the connection after it has freed it.
struct Endpoint {
  std::string name;     // of the first peer that was connected by it
  std::string address;  // UCX's, of the other worker
  UcxWorker* worker = nullptr;
  ucp_ep_h handle = nullptr;  // nullptr: closed
  bool watched = false;       // by UCX (UCP_ERR_HANDLING_MODE_PEER), which excludes shared memory
  bool lost = false;          // UCX says that the connection has broken off
};

struct Peer {
  UcxTransport* transport = nullptr;
  std::string name;
  uint64_t instance = 0;
  Endpoint* endpoint = nullptr;     // nullptr for the transport itself
  const UcxWorker* told = nullptr;  // the last one whose address it may have
  uint64_t process = 0;             // that may read payloads where they lie; 0: none
  bool reads = false;               // its own are read here
  bool self = false;
  bool connected = true;
  bool gpu_memory = false;  // may send from GPUs' memory, and to it
  SendContext* held =
      nullptr;  // contexts that UCX holds, also those whose Done has run; newest first
};

// Why a message could not be sent. A connection that broke off means that the peer is lost.
Status SendFailure(ucs_status_t status, const Peer& peer) {
  const Status failure = FromUcx(status, "sending to " + peer.name);
  return failure.code() == Code::kUnavailable ? TaskLost(peer.name, failure.message()) : failure;
}

class UcxTransport : public Transport, private Driven {
 public:
  UcxTransport(const TransportOptions& options, MessageHandler* handler, bool by_reference)
      : handler_(handler),
        references_(by_reference ? &References::Get() : nullptr),
        loop_(this, options.spin, "mg-ucx") {}

  ~UcxTransport() override { MG_CHECK(worker_ == nullptr || finished_); }

  Status Start(const TransportOptions& options);

  std::string address() const override {
    auto* self = const_cast<UcxTransport*>(this);
    Guard guard(self);
    return self->workers_.back()->address;
  }
  uint64_t HostOf(std::string_view address) const override {
    const Result<UcxAddress> decoded = DecodeUcxAddress(address);
    return decoded.ok() ? decoded->host : 0;
  }
  Result<PeerId> Connect(std::string_view address, std::string_view name) override;
  void Disconnect(PeerId peer) override;
  Result<std::string> Renew(PeerId lost) override;
  Status Reconnect(PeerId peer, std::string_view address) override;
  bool TakesGpuMemory(PeerId peer) const override;
  void UseGpuMemory(PeerId peer) override;
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
  void Close() override;
  void Join() override { loop_.Join(); }

 private:
  bool Poll() override;
  bool Arm() override;
  int event_fd() const override { return event_fd_.load(std::memory_order_relaxed); }
  bool busy() const override {
    return in_flight_.load(std::memory_order_relaxed) > 0 ||
           retired_.load(std::memory_order_relaxed) > 0;
  }
  void Finish() override;

  // The worker's lock: a spin lock that knows its holder.
  class MG_CAPABILITY WorkerLock {
   public:
    bool TryLock() MG_TRY_ACQUIRE(true) {
      if (locked_.load(std::memory_order_relaxed) || locked_.exchange(true)) return false;
      holder_.store(pthread_self(), std::memory_order_relaxed);
      return true;
    }
    void Lock() MG_ACQUIRE() {
      for (int spins = 0; !TryLock();) {
        Pause();
        if (++spins % 64 == 0) sched_yield();
      }
    }
    void Unlock() MG_RELEASE() {
      holder_.store(pthread_t{}, std::memory_order_relaxed);
      locked_.store(false);
    }
    // Only this thread writes its own id, and takes it away before it unlocks.
    bool HeldHere() const {
      return pthread_equal(holder_.load(std::memory_order_relaxed), pthread_self()) != 0;
    }
    // For the analysis: in callbacks, which UCX and this transport call under the lock.
    void AssertHeld() const MG_ASSERT_HELD() {}

   private:
    // Sequentially consistent, as the stack of submissions is. The relaxed load keeps who waits
    // from writing to the cache line.
    alignas(64) std::atomic<bool> locked_{false};
    std::atomic<pthread_t> holder_{};  // relaxed: a thread looks for its own id only
  };
  // Sends what was submitted meanwhile.
  void Unlock() MG_RELEASE(lock_);
  // Locks unless this thread holds the lock already (a call from a callback).
  class MG_SCOPED_CAPABILITY Guard {
   public:
    explicit Guard(UcxTransport* transport) MG_ACQUIRE(transport->lock_)
        : transport_(transport->lock_.HeldHere() ? nullptr : transport) {
      if (transport_ != nullptr) transport_->lock_.Lock();
    }
    ~Guard() MG_RELEASE() {
      if (transport_ != nullptr) transport_->Unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    UcxTransport* const transport_;
  };

  Result<std::unique_ptr<UcxWorker>> OpenWorker();
  void Use(std::unique_ptr<UcxWorker> worker) MG_REQUIRES(lock_);
  // What goes by it has a moment from now on.
  void Retire(UcxWorker* worker) MG_REQUIRES(lock_);
  void SubmitAll() MG_REQUIRES(lock_);
  void Submit(SendContext* context) MG_REQUIRES(lock_);
  // Done comes from the driver, later.
  void FinishSend(SendContext* context, Status status) MG_REQUIRES(lock_);
  bool RunReady() MG_REQUIRES(lock_);
  bool CheckGrace() MG_REQUIRES(lock_);
  bool PollRetired() MG_REQUIRES(lock_);
  void Abandon(const UcxWorker& worker) MG_REQUIRES(lock_);
  Result<Endpoint*> EndpointTo(const UcxAddress& address, std::string_view name, bool* no_way)
      MG_REQUIRES(lock_);
  PeerId Add(std::unique_ptr<Peer> peer) MG_REQUIRES(lock_);
  void CloseEndpoint(Endpoint* endpoint) MG_REQUIRES(lock_);
  void FlushEndpoint(const Endpoint& endpoint) MG_REQUIRES(lock_);
  bool CheckClosing() MG_REQUIRES(lock_);
  // Whether UCX holds a payload from or to a GPU's memory, or one that may be such to the peer.
  bool MovesGpuMemory() const MG_REQUIRES(lock_);
  // `of`: of this worker only.
  void CancelSends(Peer* peer, const Status& status, const UcxWorker* of = nullptr)
      MG_REQUIRES(lock_);
  void CancelReceives(uint64_t source, Clock::time_point deadline) MG_REQUIRES(lock_);
  void CompleteReceive(ReceiveContext* context, const Status& status) MG_REQUIRES(lock_);
  void CountReceived(size_t bytes) MG_REQUIRES(lock_) {
    messages_received_.store(messages_received_.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
    bytes_received_.store(bytes_received_.load(std::memory_order_relaxed) + bytes,
                          std::memory_order_relaxed);
  }

  void Release(SendContext* context) MG_REQUIRES(lock_);
  void Release(ReceiveContext* context) MG_REQUIRES(lock_);

  static ucs_status_t OnHeader(void* worker, const void* header, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnPayload(void* worker, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnReference(void* worker, const void* header, size_t header_bytes, void* data,
                                  size_t bytes, const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* context);
  static void OnReceived(void* request, ucs_status_t status, size_t bytes, void* context);
  static void OnEndpointError(void* endpoint, ucp_ep_h handle, ucs_status_t status);

  // Lets go what was lent and got, and is over: before whatever comes is handled, and before a
  // payload leaves, so that who gets it finds its own memory free.
  void Look() {
    if (references_ != nullptr) references_->Look();
  }

  MessageHandler* const handler_;
  References* references_;  // nullptr: payloads are copied
  UcxContext context_;
  bool shared_memory_ = true;
  uint64_t instance_ = 0;
  uint64_t host_ = 0;
  std::atomic<int> event_fd_{-1};  // relaxed: a change is told by Notify
  std::atomic<int> retired_{0};    // workers in their last moment; relaxed, as in_flight_

  WorkerLock lock_;
  alignas(64) Submissions<SendContext> submitted_;
  alignas(64) std::atomic<int> in_flight_{0};  // relaxed: tells the driver how long to sleep
  // Relaxed: counters. Written under the lock, so without a read-modify-write.
  std::atomic<uint64_t> messages_sent_{0}, messages_received_{0}, bytes_sent_{0},
      bytes_received_{0};

  std::vector<std::unique_ptr<UcxWorker>> workers_ MG_GUARDED_BY(lock_);
  UcxWorker* worker_ MG_GUARDED_BY(lock_) = nullptr;  // the last one; nullptr: none any more
  std::vector<std::unique_ptr<Peer>> peers_ MG_GUARDED_BY(lock_);  // by PeerId
  // Instances that were disconnected and not met again.
  std::unordered_set<uint64_t> gone_ MG_GUARDED_BY(lock_);
  // Instances of peers whose payloads may land in GPUs' memory.
  std::unordered_set<uint64_t> gpu_sources_ MG_GUARDED_BY(lock_);
  bool polling_ MG_GUARDED_BY(lock_) = false;  // the holder is the driver: it will look at ready_
  bool needs_drive_ MG_GUARDED_BY(lock_) = false;
  bool progressed_ MG_GUARDED_BY(lock_) = false;  // UCX, since Finish last looked
  bool closed_ MG_GUARDED_BY(lock_) = false;
  bool finished_ MG_GUARDED_BY(lock_) = false;
  // Completed; and messages to this transport itself.
  std::vector<SendContext*> ready_ MG_GUARDED_BY(lock_);
  std::vector<SendContext*> running_ MG_GUARDED_BY(lock_);  // RunReady's
  std::vector<std::unique_ptr<Endpoint>> endpoints_ MG_GUARDED_BY(lock_);
  ReceiveContext* receives_ MG_GUARDED_BY(lock_) = nullptr;  // that UCX still holds, newest first
  int receives_cancelled_ MG_GUARDED_BY(lock_) = 0;          // of them, those in their grace
  // UCX's requests to flush or close endpoints.
  std::vector<void*> closing_ MG_GUARDED_BY(lock_);

  FreeList<SendContext> send_contexts_;
  FreeList<ReceiveContext> receive_contexts_;

  DriveLoop loop_;
};

Status UcxTransport::Start(const TransportOptions& options) {
  MG_ASSIGN_OR_RETURN(context_, SharedUcxContext(options));
  shared_memory_ = context_.lanes.shared_memory;
  // A device for RDMA might refuse what this process may only read, and is to send on.
  if (!shared_memory_ || context_.lanes.rdma) references_ = nullptr;
  instance_ = RandomNonZero();
  host_ = HostNumber();
  MG_ASSIGN_OR_RETURN(std::unique_ptr<UcxWorker> worker, OpenWorker());
  {
    Guard guard(this);
    Use(std::move(worker));
  }
  loop_.Start();
  return Status();
}

Result<std::unique_ptr<UcxWorker>> UcxTransport::OpenWorker() {
  auto worker = std::make_unique<UcxWorker>();
  worker->transport = this;
  ucs_status_t status = UCS_OK;
  const auto open = [&] {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    // What peers never answered is dropped with the worker. UCX 1.22 would describe each such
    // request, and ends the process when it comes to one from a GPU's memory.
    params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
    status = ucp_worker_create(context_.handle, &params, &worker->handle);
    return FromUcx(status, "creating a UCX worker");
  };
  const auto close = [&] { ucp_worker_destroy(std::exchange(worker->handle, nullptr)); };
  const auto no_device_until = Clock::now() + kNoWayFor;
  for (;; std::this_thread::sleep_for(kNoWayPause)) {
    const Status opened =
        context_.lanes.tcp
            ? OpenGuarded(context_.lanes.trusted, !context_.lanes.shared_memory, open, close)
            : open();
    if (opened.ok()) break;
    if (status != UCS_ERR_NO_DEVICE || Clock::now() >= no_device_until) return opened;
  }
  const auto fail = [&](const char* what) {
    close();
    return FromUcx(status, what);
  };
  status = ucp_worker_get_efd(worker->handle, &worker->event_fd);
  if (status != UCS_OK) return fail("asking UCX for its event descriptor");
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {
      {kHeaderOnly, OnHeader}, {kWithPayload, OnPayload}, {kWithReference, OnReference}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = callback;
    handler.arg = worker.get();
    status = ucp_worker_set_am_recv_handler(worker->handle, &handler);
    if (status != UCS_OK) return fail("setting UCX's message handler");
  }
  ucp_address_t* bytes = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker->handle, &bytes, &length);
  if (status != UCS_OK) return fail("asking UCX for its address");
  worker->address =
      EncodeUcxAddress({instance_, host_, references_ == nullptr ? "" : references_->address(),
                        std::string(reinterpret_cast<char*>(bytes), length)});
  ucp_worker_release_address(worker->handle, bytes);
  return worker;
}

void UcxTransport::Use(std::unique_ptr<UcxWorker> worker) {
  worker_ = worker.get();
  event_fd_.store(worker->event_fd, std::memory_order_relaxed);
  workers_.push_back(std::move(worker));
  needs_drive_ = true;
}

void UcxTransport::Retire(UcxWorker* worker) {
  const bool in_use = worker->until == Clock::time_point();
  worker->until = Clock::now() + kRetiredGrace;
  if (in_use || std::exchange(worker->silent, false))
    retired_.fetch_add(1, std::memory_order_relaxed);
  needs_drive_ = true;
}

void UcxTransport::Unlock() {
  while (true) {
    if (!submitted_.empty()) SubmitAll();
    const bool notify = needs_drive_ && !polling_;
    needs_drive_ = false;
    lock_.Unlock();
    if (notify) loop_.Notify();
    // A sender pushes its message before it tries the lock: either it gets the lock now, or this
    // thread sees the message.
    if (submitted_.empty() || !lock_.TryLock()) return;
  }
}

void UcxTransport::Release(SendContext* context) {
  context->payload = {};
  context->done = nullptr;
  context->status = Status();
  send_contexts_.Give(context);
}

void UcxTransport::Release(ReceiveContext* context) {
  context->sink = {};
  receive_contexts_.Give(context);
}

Result<PeerId> UcxTransport::Connect(std::string_view address, std::string_view name) {
  const std::string what = "cannot connect to " + std::string(name);
  auto decoded = DecodeUcxAddress(address);
  if (!decoded.ok()) return decoded.status().WithContext(what);
  auto peer = std::make_unique<Peer>();
  peer->transport = this;
  peer->name = name;
  peer->instance = decoded->instance;
  peer->self = decoded->instance == instance_;
  if (references_ != nullptr && !peer->self && host_ != 0 && decoded->host == host_) {
    peer->process = References::ProcessOf(decoded->reference);
    peer->reads = references_->Meet(decoded->reference);
  }
  const auto no_way_until = std::chrono::steady_clock::now() + kNoWayFor;
  bool no_way = false;  // to the host
  for (;; std::this_thread::sleep_for(kNoWayPause)) {
    Guard guard(this);
    if (closed_) return Cancelled(what + ": the transport is closed");
    if (!peer->self) {
      const Result<Endpoint*> endpoint = EndpointTo(*decoded, name, &no_way);
      if (no_way && std::chrono::steady_clock::now() < no_way_until) continue;
      if (!endpoint.ok()) return endpoint.status();
      peer->endpoint = *endpoint;
    }
    peer->told = worker_;
    return Add(std::move(peer));
  }
}

PeerId UcxTransport::Add(std::unique_ptr<Peer> peer) {
  needs_drive_ = true;
  gone_.erase(peer->instance);
  peers_.push_back(std::move(peer));
  return static_cast<PeerId>(peers_.size() - 1);
}

Result<Endpoint*> UcxTransport::EndpointTo(const UcxAddress& address, std::string_view name,
                                           bool* no_way) {
  const UcxWorker* const worker = worker_;
  const auto found = std::find_if(endpoints_.begin(), endpoints_.end(), [&](const auto& endpoint) {
    return endpoint->worker == worker && endpoint->address == address.worker_address &&
           !endpoint->lost;
  });
  if (found != endpoints_.end()) return found->get();
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->name = name;
  endpoint->address = address.worker_address;
  endpoint->worker = worker_;
  endpoint->watched = !shared_memory_ || host_ == 0 || address.host != host_;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.worker_address.data());
  params.err_mode = endpoint->watched ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  // Needed in mode NONE, too: without a handler UCX ends this process when it fails, for example
  // when it reads the memory of a process that was killed.
  params.err_handler.cb = OnEndpointError;
  params.err_handler.arg = endpoint.get();
  SilenceUcx(true);  // it would print what the status says, on standard output
  const ucs_status_t status = ucp_ep_create(worker_->handle, &params, &endpoint->handle);
  SilenceUcx(false);
  *no_way = status == UCS_ERR_UNREACHABLE;
  std::string what = "cannot connect to " + std::string(name);
  if (status == UCS_ERR_SHMEM_SEGMENT) what += ", which has ended or has closed the session";
  MG_RETURN_IF_ERROR(FromUcx(status, what));
  endpoints_.push_back(std::move(endpoint));
  return endpoints_.back().get();
}

void UcxTransport::OnEndpointError(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* endpoint = static_cast<Endpoint*>(arg);
  endpoint->lost = true;
  LogDebug("UCX lost " + endpoint->name + ": " + ucs_status_string(status));
}

void UcxTransport::CloseEndpoint(Endpoint* endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = endpoint->watched ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  const ucs_status_ptr_t request =
      ucp_ep_close_nbx(std::exchange(endpoint->handle, nullptr), &param);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

void UcxTransport::FlushEndpoint(const Endpoint& endpoint) {
  const ucp_request_param_t param{};
  const ucs_status_ptr_t request = ucp_ep_flush_nbx(endpoint.handle, &param);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

bool UcxTransport::CheckClosing() {
  return std::erase_if(closing_, [](void* request) {
           if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
           ucp_request_free(request);
           return true;
         }) != 0;
}

void UcxTransport::CancelSends(Peer* peer, const Status& status, const UcxWorker* of) {
  SendContext* oldest = peer->held;
  while (oldest != nullptr && oldest->older != nullptr) oldest = oldest->older;
  for (SendContext* context = oldest; context != nullptr; context = context->newer) {
    if ((of != nullptr && context->worker != of) || !std::exchange(context->open, false)) continue;
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    if (!context->done) continue;
    SendContext* completion = send_contexts_.Take();
    completion->peer = nullptr;
    completion->done = std::exchange(context->done, nullptr);
    FinishSend(completion, status);
  }
}

void UcxTransport::CancelReceives(uint64_t source, Clock::time_point deadline) {
  for (ReceiveContext* receive = receives_; receive != nullptr; receive = receive->older) {
    if (!receive->open || receive->cancelled || receive->source != source) continue;
    receive->cancelled = true;
    receive->deadline = deadline;
    ++receives_cancelled_;
    needs_drive_ = true;
  }
}

void UcxTransport::Disconnect(PeerId id) {
  Guard guard(this);
  SubmitAll();
  if (id >= peers_.size() || !peers_[id]->connected) return;
  Peer* peer = peers_[id].get();
  peer->connected = false;
  CancelSends(peer, Cancelled("disconnected from " + peer->name));
  if (references_ != nullptr) references_->Revoke(this, id);
  const bool last = std::none_of(peers_.begin(), peers_.end(), [&](const auto& other) {
    return other->connected && other->instance == peer->instance;
  });
  if (last) {
    gone_.insert(peer->instance);
    CancelReceives(peer->instance, Clock::now() + kReceiveGrace);
  }
  needs_drive_ = true;
}

Result<std::string> UcxTransport::Renew(PeerId lost) {
  {
    Guard guard(this);
    if (closed_) return Cancelled("the transport is closed");
    if (lost >= peers_.size()) return worker_->address;
    const Peer& peer = *peers_[lost];
    if (peer.self || peer.endpoint->watched || peer.told != worker_) return worker_->address;
  }
  MG_ASSIGN_OR_RETURN(std::unique_ptr<UcxWorker> worker, OpenWorker());
  Guard guard(this);
  if (closed_) {
    ucp_worker_destroy(worker->handle);
    return Cancelled("the transport is closed");
  }
  if (peers_[lost]->told == worker_) {
    worker_->lost = peers_[lost]->name;
    Retire(worker_);
    Use(std::move(worker));
  } else {  // another thread was faster
    ucp_worker_destroy(worker->handle);
  }
  return worker_->address;
}

Status UcxTransport::Reconnect(PeerId id, std::string_view address) {
  const auto decoded = DecodeUcxAddress(address);
  Guard guard(this);
  if (closed_) return Cancelled("the transport is closed");
  if (id >= peers_.size()) return InvalidArgument("nobody to connect to anew");
  Peer& peer = *peers_[id];
  const std::string what = "cannot connect to " + peer.name + " anew";
  if (!decoded.ok()) return decoded.status().WithContext(what);
  if (decoded->instance != peer.instance)
    return InvalidArgument(what + ": the address is that of another transport");
  peer.told = worker_;
  if (peer.self || !peer.connected) return Status();
  SubmitAll();
  // What was sent up to now goes by that worker, which may have fallen silent.
  if (peer.endpoint->worker != worker_) Retire(peer.endpoint->worker);
  bool no_way = false;
  MG_ASSIGN_OR_RETURN(peer.endpoint, EndpointTo(*decoded, peer.name, &no_way));
  return Status();
}

bool UcxTransport::TakesGpuMemory(PeerId id) const {
  auto* self = const_cast<UcxTransport*>(this);
  Guard guard(self);
  return id < self->peers_.size() && self->peers_[id]->gpu_memory;
}

// Within a transport there is nothing to copy, and no way for UCX to.
void UcxTransport::UseGpuMemory(PeerId id) {
  Guard guard(this);
  if (!context_.lanes.gpu_memory || id >= peers_.size() || peers_[id]->self) return;
  peers_[id]->gpu_memory = true;
  gpu_sources_.insert(peers_[id]->instance);
}

std::string UcxTransport::Describe(PeerId id) const {
  auto* self = const_cast<UcxTransport*>(this);
  Guard guard(self);
  if (id >= self->peers_.size()) return "not connected";
  const Peer& peer = *self->peers_[id];
  if (!peer.connected || self->closed_) return "not connected";
  if (peer.self) return "self (by reference)";
  return DescribeEndpoint(peer.endpoint->handle) +
         (peer.reads ? ", 1 MiB or more read in place" : "");
}

void UcxTransport::Send(PeerId to, std::string_view header, Payload payload, Done done) {
  SendContext* context = send_contexts_.Take();
  context->to = to;
  context->payload = std::move(payload);
  context->done = std::move(done);
  context->header_bytes = static_cast<uint32_t>(header.size());
  context->header.instance = instance_;
  if (header.size() <= kMaxHeaderBytes)
    std::memcpy(context->header.bytes, header.data(), header.size());
  if (lock_.HeldHere()) {
    lock_.AssertHeld();
    SubmitAll();
    Submit(context);
    return;
  }
  if (lock_.TryLock()) {
    SubmitAll();
    Submit(context);
    Unlock();
    return;
  }
  submitted_.Push(context);
  if (lock_.TryLock()) Unlock();
}

void UcxTransport::SubmitAll() {
  if (submitted_.empty()) return;
  for (SendContext* context = submitted_.TakeAll(); context != nullptr;) {
    SendContext* next = context->next;
    Submit(context);
    context = next;
  }
}

void UcxTransport::Submit(SendContext* context) {
  context->peer = nullptr;
  const size_t header_bytes = context->header_bytes;
  if (header_bytes > kMaxHeaderBytes) {
    FinishSend(context, InvalidArgument("a message header of " + std::to_string(header_bytes) +
                                        " bytes; at most " + std::to_string(kMaxHeaderBytes) +
                                        " are allowed"));
    return;
  }
  if (closed_ || context->to >= peers_.size() || !peers_[context->to]->connected) {
    FinishSend(context,
               Cancelled(closed_ ? "the transport is closed" : "the peer is not connected"));
    return;
  }
  Peer* peer = peers_[context->to].get();
  const size_t payload_bytes = context->payload.bytes;
  messages_sent_.store(messages_sent_.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + header_bytes + payload_bytes,
                    std::memory_order_relaxed);
  if (peer->self) {
    context->peer = peer;  // tells RunReady to deliver it
    ready_.push_back(context);
    needs_drive_ = true;
    return;
  }
  const bool on_gpu = context->payload.on_gpu;
  if (on_gpu && !peer->gpu_memory) {
    FinishSend(context,
               InvalidArgument("memory of a GPU for " + peer->name + ", which does not take it"));
    return;
  }
  std::optional<Reference> reference;
  if (!on_gpu && references_ != nullptr && payload_bytes >= References::kLeast) {
    references_->Look();
    if (peer->process != 0)
      reference = references_->Lend(peer->process, context->payload, this, context->to);
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = OnSent;
  param.user_data = context;
  if (context_.lanes.gpu_memory) {  // or UCX asks CUDA's driver where each message lies
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = on_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  }
  ucs_status_ptr_t request;
  if (payload_bytes == 0) {
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    request = ucp_am_send_nbx(peer->endpoint->handle, kHeaderOnly, nullptr, 0,
                              context->header.bytes, header_bytes, &param);
  } else if (reference) {
    context->payload = {};  // the lease keeps it
    context->reference = *reference;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    request =
        ucp_am_send_nbx(peer->endpoint->handle, kWithReference, &context->reference,
                        sizeof context->reference, context->header.bytes, header_bytes, &param);
  } else {
    // An eager send would copy here and now, and the receiver from its queue.
    if (on_gpu) param.flags = UCP_AM_SEND_FLAG_RNDV;
    request = ucp_am_send_nbx(peer->endpoint->handle, kWithPayload, &context->header,
                              sizeof(uint64_t) + header_bytes, context->payload.data(),
                              payload_bytes, &param);
  }
  if (request == nullptr) {
    FinishSend(context, Status());
  } else if (UCS_PTR_IS_ERR(request)) {
    FinishSend(context, SendFailure(UCS_PTR_STATUS(request), *peer));
  } else {
    context->peer = peer;
    context->open = true;
    context->request = request;
    context->worker = peer->endpoint->worker;
    Link(peer->held, context);
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    needs_drive_ = true;
  }
}

void UcxTransport::FinishSend(SendContext* context, Status status) {
  if (!context->done) {
    Release(context);
    return;
  }
  if (finished_) {  // after Join: no thread is left to run it
    const Done done = std::move(context->done);
    Release(context);
    done(status);
    return;
  }
  context->status = std::move(status);
  ready_.push_back(context);
  needs_drive_ = true;
}

void UcxTransport::OnSent(void* request, ucs_status_t status, void* arg) {
  auto* context = static_cast<SendContext*>(arg);
  Peer* peer = context->peer;
  UcxTransport* self = peer->transport;
  self->lock_.AssertHeld();
  if (self->worker_ == nullptr) return;  // it ends: Finish has given the request back
  ucp_request_free(request);
  context->peer = nullptr;
  if (context->open) {
    context->open = false;
    self->in_flight_.fetch_sub(1, std::memory_order_relaxed);
  }
  Unlink(peer->held, context);
  self->FinishSend(context, status == UCS_OK ? Status() : SendFailure(status, *peer));
}

bool UcxTransport::RunReady() {
  bool any = false;
  while (!ready_.empty()) {
    any = true;
    running_.swap(ready_);
    for (SendContext* context : running_) {
      if (context->peer != nullptr) {  // to this very transport
        const Peer* peer = context->peer;
        context->peer = nullptr;
        if (peer->connected && !closed_) {
          CountReceived(context->header_bytes + context->payload.bytes);
          handler_->OnDelivered({context->header.bytes, context->header_bytes},
                                std::move(context->payload));
        } else {
          context->status = Cancelled("disconnected from " + peer->name);
        }
        if (!context->done) {
          Release(context);
          continue;
        }
      }
      const Done done = std::move(context->done);
      const Status status = std::move(context->status);
      Release(context);
      done(status);
    }
    running_.clear();
  }
  return any;
}

bool UcxTransport::CheckGrace() {
  if (receives_cancelled_ == 0) return false;
  const auto now = Clock::now();
  for (ReceiveContext* receive = receives_; receive != nullptr; receive = receive->older) {
    if (!receive->open || !receive->cancelled || receive->deadline > now) continue;
    CompleteReceive(receive, Cancelled("disconnected before the payload had arrived"));
    return true;  // its callback may have changed the list
  }
  return false;
}

// The workers that were retired: what they still bring, and the end of their time.
bool UcxTransport::PollRetired() {
  bool any = false;
  for (size_t i = 0; i + 1 < workers_.size(); ++i) {  // callbacks may add one
    UcxWorker& worker = *workers_[i];
    if (worker.silent) continue;
    any |= ucp_worker_progress(worker.handle) != 0;
    if (Clock::now() < worker.until) continue;
    worker.silent = true;
    retired_.fetch_sub(1, std::memory_order_relaxed);
    Abandon(worker);
  }
  return any;
}

// What has not left by now, and what has not come, never will.
void UcxTransport::Abandon(const UcxWorker& worker) {
  const Status why =
      TaskLost(worker.lost, "held up by " + worker.lost + ", which was lost in shared memory");
  for (const auto& peer : peers_)
    CancelSends(peer.get(), why.WithContext("sending to " + peer->name), &worker);
  const auto arriving = [&]() MG_REQUIRES(lock_) -> ReceiveContext* {
    ReceiveContext* receive = receives_;
    while (receive != nullptr && (!receive->open || receive->worker != &worker))
      receive = receive->older;
    return receive;
  };
  // Its callback may change the list.
  while (ReceiveContext* const receive = arriving())
    CompleteReceive(receive, why.WithContext("receiving a payload"));
}

// Calls the sink's done; UCX may still hold the context.
void UcxTransport::CompleteReceive(ReceiveContext* receive, const Status& status) {
  receive->open = false;
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  if (std::exchange(receive->cancelled, false)) --receives_cancelled_;
  const auto done = std::move(receive->sink.done);
  receive->sink.done = nullptr;
  if (status.ok())
    receive->sink.keep = Buffer();  // UCX is done with it, and its reader may want it alone
  if (done) done(status);
}

bool UcxTransport::Poll() {
  if (!lock_.TryLock()) return false;
  if (worker_ == nullptr) {
    Unlock();
    return false;
  }
  polling_ = true;
  Look();
  // First, since what they bring was sent before.
  bool any = retired_.load(std::memory_order_relaxed) > 0 && PollRetired();
  any |= ucp_worker_progress(worker_->handle) != 0;
  progressed_ |= any;
  if (!submitted_.empty()) {
    SubmitAll();
    any = true;
  }
  if (!ready_.empty()) any |= RunReady();
  if (receives_cancelled_ != 0) any |= CheckGrace();
  if (!closing_.empty()) any |= CheckClosing();
  polling_ = false;
  needs_drive_ = false;  // the driver looks again before it sleeps
  Unlock();
  return any;
}

bool UcxTransport::Arm() {
  lock_.Lock();
  const bool quiet =
      submitted_.empty() && ready_.empty() && ucp_worker_arm(worker_->handle) == UCS_OK;
  Unlock();
  return quiet;
}

ucs_status_t UcxTransport::OnHeader(void* arg, const void*, size_t, void* data, size_t bytes,
                                    const ucp_am_recv_param_t* param) {
  UcxTransport* const self = static_cast<UcxWorker*>(arg)->transport;
  self->lock_.AssertHeld();
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || bytes > kMaxHeaderBytes) {
    LogWarning("dropped a message with a header of " + std::to_string(bytes) + " bytes");
    return UCS_OK;
  }
  self->CountReceived(bytes);
  self->Look();
  self->handler_->OnDelivered({static_cast<const char*>(data), bytes}, {});
  return UCS_OK;
}

ucs_status_t UcxTransport::OnPayload(void* arg, const void* header, size_t header_bytes, void* data,
                                     size_t bytes, const ucp_am_recv_param_t* param) {
  UcxTransport* const self = static_cast<UcxWorker*>(arg)->transport;
  self->lock_.AssertHeld();
  const auto read = DecodeUcxHeader({static_cast<const char*>(header), header_bytes});
  if (!read) {
    LogWarning("dropped a message with a header of " + std::to_string(header_bytes) + " bytes");
    return UCS_OK;
  }
  self->CountReceived(read->text.size() + bytes);
  self->Look();
  const bool announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool for_gpus = announced && self->gpu_sources_.contains(read->source);
  PayloadSink sink = for_gpus ? self->handler_->OnGpuMessage(read->text, bytes)
                              : self->handler_->OnMessage(read->text, bytes);
  if (sink.data == nullptr) return UCS_OK;
  if (!announced) {
    std::memcpy(sink.data, data, bytes);
    sink.keep = Buffer();  // whoever gets the memory now is its only owner
    if (sink.done) sink.done(Status());
    return UCS_OK;
  }
  ReceiveContext* receive = self->receive_contexts_.Take();
  receive->source = read->source;
  receive->worker = static_cast<UcxWorker*>(arg);
  receive->sink = std::move(sink);
  ucp_request_param_t options{};
  options.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  options.cb.recv_am = OnReceived;
  options.user_data = receive;
  if (self->context_.lanes.gpu_memory) {
    options.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    options.memory_type = receive->sink.on_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  }
  receive->open = true;
  self->in_flight_.fetch_add(1, std::memory_order_relaxed);
  Link(self->receives_, receive);
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(receive->worker->handle, data, receive->sink.data, bytes, &options);
  if (UCS_PTR_IS_PTR(request)) {
    receive->request = request;
    // Announced before the sender was disconnected, read from the queue after.
    if (self->closed_ || self->gone_.contains(read->source))
      self->CancelReceives(read->source, Clock::now() + kReceiveGrace);
    return UCS_INPROGRESS;
  }
  Unlink(self->receives_, receive);
  Status status;
  if (request != nullptr) {
    status = FromUcx(UCS_PTR_STATUS(request),
                     "receiving a payload of " + std::to_string(bytes) + " bytes");
  }
  self->CompleteReceive(receive, status);
  self->Release(receive);
  return UCS_OK;
}

ucs_status_t UcxTransport::OnReference(void* arg, const void* header, size_t header_bytes,
                                       void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  UcxTransport* const self = static_cast<UcxWorker*>(arg)->transport;
  self->lock_.AssertHeld();
  Reference reference;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || bytes > kMaxHeaderBytes ||
      header_bytes != sizeof reference || self->references_ == nullptr) {
    LogWarning("dropped a message with a header of " + std::to_string(bytes) + " bytes");
    return UCS_OK;
  }
  std::memcpy(&reference, header, sizeof reference);
  self->Look();
  std::optional<Payload> payload = self->references_->Take(reference);
  if (!payload) {
    LogDebug("dropped a message whose sender has taken its payload back");
    return UCS_OK;
  }
  self->CountReceived(bytes + payload->bytes);
  self->handler_->OnDelivered({static_cast<const char*>(data), bytes}, std::move(*payload));
  return UCS_OK;
}

void UcxTransport::OnReceived(void* request, ucs_status_t status, size_t bytes, void* arg) {
  auto* receive = static_cast<ReceiveContext*>(arg);
  UcxTransport* self = receive->worker->transport;
  self->lock_.AssertHeld();
  if (self->worker_ == nullptr) return;  // as in OnSent
  ucp_request_free(request);
  Unlink(self->receives_, receive);
  if (receive->open) {
    self->CompleteReceive(receive, status == UCS_OK
                                       ? Status()
                                       : FromUcx(status, "receiving a payload of " +
                                                             std::to_string(bytes) + " bytes"));
  }
  self->Release(receive);
}

void UcxTransport::Close() {
  {
    Guard guard(this);
    if (closed_) return;
    SubmitAll();
    closed_ = true;
    const auto deadline = Clock::now() + kReceiveGrace;
    for (const auto& peer : peers_) {
      if (!peer->connected) continue;
      CancelSends(peer.get(), Cancelled("the transport is closed"));
      CancelReceives(peer->instance, deadline);
    }
    needs_drive_ = true;
  }
  loop_.Stop();
}

bool UcxTransport::MovesGpuMemory() const {
  if (gpu_sources_.empty()) return false;
  for (const ReceiveContext* receive = receives_; receive != nullptr; receive = receive->older) {
    if (gpu_sources_.contains(receive->source)) return true;
  }
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->gpu_memory && peer->held != nullptr; });
}

void UcxTransport::Finish() {
  const auto poll_until = [&](milliseconds grace, auto quiet) {
    const auto over = [&] {
      Guard guard(this);
      return quiet();
    };
    for (const auto deadline = Clock::now() + grace; !over() && Clock::now() < deadline;) {
      if (!Poll()) sched_yield();
    }
  };
  // Peers that were connected to the end may still be reading payloads whose Done has run: wait for
  // them, for a short time. What the others have not answered they never will.
  poll_until(kFinishGrace, [&]() MG_REQUIRES(lock_) {
    for (const ReceiveContext* receive = receives_; receive != nullptr; receive = receive->older) {
      if (!gone_.contains(receive->source)) return false;
    }
    return ready_.empty() &&
           std::all_of(
               peers_.begin(), peers_.end(),
               [](const auto& peer) { return peer->held == nullptr || !peer->connected; }) &&
           (references_ == nullptr || !references_->IsAwaited(this));
  });
  // UCX 1.22 ends the process if a worker ends in the middle of such a copy.
  Clock::time_point moved = Clock::now();
  poll_until(kGpuGrace, [&]() MG_REQUIRES(lock_) {
    const auto now = Clock::now();
    if (std::exchange(progressed_, false)) moved = now;
    return !MovesGpuMemory() || now - moved > kGpuStill;
  });
  if (references_ != nullptr) references_->Revoke(this, std::nullopt);
  SilenceUcx(true);  // it would name each request that a dead peer never answered
  lock_.Lock();
  retired_.store(static_cast<int>(workers_.size()) - 1, std::memory_order_relaxed);
  for (const auto& worker : workers_) {  // until their endpoints are closed
    worker->until = Clock::time_point::max();
    worker->silent = false;
  }
  for (const auto& endpoint : endpoints_) {
    if (endpoint->handle == nullptr) continue;
    endpoint->watched ? FlushEndpoint(*endpoint) : CloseEndpoint(endpoint.get());
  }
  Unlock();
  poll_until(kFlushGrace, [&]() MG_REQUIRES(lock_) { return closing_.empty(); });
  lock_.Lock();
  polling_ = true;
  // UCX insists that a watched endpoint has nothing pending when its worker ends.
  for (const auto& endpoint : endpoints_) {
    if (endpoint->watched && endpoint->handle != nullptr) CloseEndpoint(endpoint.get());
  }
  // Requests that peers never answered: UCX drops them when the worker ends.
  for (void* request : closing_) ucp_request_free(request);
  closing_.clear();
  std::vector<SendContext*> abandoned;
  for (const auto& peer : peers_) {
    for (SendContext* context = peer->held; context != nullptr; context = context->older) {
      abandoned.push_back(context);
      ucp_request_free(context->request);
    }
    peer->held = nullptr;
  }
  for (ReceiveContext* receive = receives_; receive != nullptr; receive = receive->older) {
    ucp_request_free(receive->request);
  }
  worker_ = nullptr;
  for (const auto& worker : workers_) ucp_worker_destroy(worker->handle);
  SilenceUcx(false);
  for (SendContext* context : abandoned) Release(context);
  while (receives_ != nullptr) {  // UCX writes nowhere any more
    ReceiveContext* receive = receives_;
    Unlink(receives_, receive);
    if (receive->open)
      CompleteReceive(receive,
                      Cancelled("the transport was closed before the payload had arrived"));
    Release(receive);
  }
  do {
    SubmitAll();
  } while (RunReady());
  finished_ = true;
  polling_ = false;
  Unlock();
  if (references_ != nullptr) references_->LookWithoutTransports();
}

}  // namespace

Result<UcxLanes> PrepareUcx(const TransportOptions& options) {
  MG_ASSIGN_OR_RETURN(UcxContext context, SharedUcxContext(options));
  return std::move(context.lanes);
}

std::pair<uint8_t, uint8_t> UcxVersion() {
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  return {static_cast<uint8_t>(major), static_cast<uint8_t>(minor)};
}

Result<std::unique_ptr<Transport>> MakeUcxTransport(const TransportOptions& options,
                                                    MessageHandler* handler, bool by_reference) {
  auto transport = std::make_unique<UcxTransport>(options, handler, by_reference);
  MG_RETURN_IF_ERROR(transport->Start(options));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace monograph
