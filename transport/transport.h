// Transport: how bytes move between tasks on the data plane. Knows nothing of graphs or tensors.
//
// Each task of a session has one Transport for it, from the session's beginning to its end: what a
// killed or unreachable peer leaves behind (half a transfer, a blocked queue) ends with the
// session, and no other session notices. Peers learn each other's address() over the authenticated
// control plane and Connect. A message is a short header and a payload of any size. The receiver's
// MessageHandler looks at the header and says where the payload goes, so that large payloads land
// in their final buffer (rendezvous) and nothing is copied twice.
//
// Threads. Every method may be called from any thread. Callbacks (MessageHandler's, Done) run on
// the thread that drives the transport: its own progress thread, or a thread inside DriveUntil.
// They must not block. A callback never runs inside the call that caused it; it may itself call
// Send.
//
// Order. Headers of messages to one peer are delivered in the order of Send calls from one thread;
// payload completions of different messages may overtake each other.
//
// Deadlines. Send has no deadline of its own: liveness is the control plane's job, which calls
// Disconnect for a lost peer. Everything pending with that peer then completes with Cancelled, in
// bounded time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/done.h"
#include "base/status.h"

namespace monograph {

using PeerId = uint32_t;

inline constexpr size_t kMaxHeaderBytes = 1024;

// A part of a buffer, kept alive by the reference. An empty payload has no buffer.
struct Payload {
  Buffer buffer;
  size_t offset = 0;
  size_t bytes = 0;
  // The buffer lies in a GPU's memory, where nothing writes to it any more. REQUIRES:
  // TakesGpuMemory of the peer.
  bool on_gpu = false;

  const void* data() const { return static_cast<const char*>(buffer.data()) + offset; }
};

// Where an arriving payload is to be written. The memory must stay valid until `done`, which is
// called exactly once, with OK when the bytes are there or with the reason why they never will be.
// data == nullptr drops the payload (done is then not called). `keep`, if given, is held as long as
// the transport could still write there. That outlasts a `done` with Cancelled when the peer was
// lost in the middle of a transfer: give it whenever the memory may be freed or used again after a
// failure. In answer to OnGpuMessage `data` may lie in a GPU's memory that nothing else uses
// (`on_gpu`).
struct PayloadSink {
  void* data = nullptr;
  std::function<void(const Status&)> done;
  Buffer keep;
  bool on_gpu = false;
};

class MessageHandler {
 public:
  virtual ~MessageHandler() = default;
  // A message with payload_bytes > 0 has arrived or been announced. `header` is valid during the
  // call.
  virtual PayloadSink OnMessage(std::string_view header, size_t payload_bytes) = 0;
  // The same, of a message whose payload may land in a GPU's memory.
  virtual PayloadSink OnGpuMessage(std::string_view header, size_t payload_bytes) {
    return OnMessage(header, payload_bytes);
  }
  // A message that is only a header, or whose payload the transport hands over by reference (within
  // one process, or of a task of this host): nobody may write to that.
  virtual void OnDelivered(std::string_view header, Payload payload) = 0;
};

struct TransportStats {
  uint64_t messages_sent = 0, messages_received = 0;
  uint64_t bytes_sent = 0, bytes_received = 0;  // headers and payloads

  TransportStats& operator+=(const TransportStats& other) {
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    return *this;
  }
};

class Transport {
 public:
  virtual ~Transport() = default;  // REQUIRES: Close and Join were called

  // Opaque bytes by which other transports of the same kind connect to this one.
  virtual std::string address() const = 0;

  // A number that names the host of the transport with this address: those of one host share memory
  // and a loopback device. 0: not known. Equal in all processes.
  virtual uint64_t HostOf(std::string_view /*address*/) const { return 0; }

  // Makes `address` a peer; returns at once. `name` ("/job:worker/replica:0/task:1") is for
  // messages, logs and Status::lost_task. InvalidArgument for bytes that are no address of this
  // kind. Connecting one address twice gives two peers.
  virtual Result<PeerId> Connect(std::string_view address, std::string_view name) = 0;
  // Ends the connection; what is pending with the peer completes with Cancelled. An unknown id is
  // ignored.
  virtual void Disconnect(PeerId peer) = 0;
  // A peer that was lost may have ended in the middle of a write to memory of this transport that
  // others write to as well, which holds up what they send. If the peer was such a one, makes new
  // memory for the others, and retires the old, which they may use for a second more. Returns
  // address(), which may have changed: those who are connected must learn of it (Reconnect), and
  // this transport must Reconnect to them, by whatever address they have then. A few milliseconds.
  // Cancelled after Close.
  virtual Result<std::string> Renew(PeerId /*lost*/) { return address(); }
  // The peer's transport, the same as ever, has this address now; or this one has a new one. What
  // is sent from now on goes by it, and may overtake what was sent before. InvalidArgument if the
  // address is that of another transport.
  virtual Status Reconnect(PeerId /*peer*/, std::string_view /*address*/) { return Status(); }
  // Whether payloads to the peer may lie in a GPU's memory; those from it may land there then.
  // UseGpuMemory, after Connect at both ends, lets them if this transport can. One that chooses a
  // way for each peer decides by itself.
  virtual bool TakesGpuMemory(PeerId /*peer*/) const { return false; }
  virtual void UseGpuMemory(PeerId /*peer*/) {}
  // One line: lanes and expected speed: "shm(posix,cma) ~12 GB/s".
  virtual std::string Describe(PeerId peer) const = 0;

  // Sends a message. `header` (at most kMaxHeaderBytes) is copied. `payload` is kept until `done`,
  // called when the memory may be changed again (OK does not mean that the peer handled it), or
  // with the failure. `done` may be empty. An unknown or disconnected peer: done(Cancelled). Where
  // payloads go by reference (one process; a peer that is this very transport, or that reads large
  // ones where they lie) the receiver shares the buffer: change it only if it is unique().
  virtual void Send(PeerId peer, std::string_view header, Payload payload, Done done) = 0;

  // Drives the transport on the calling thread until ready() is true or the deadline has passed;
  // returns ready(). While a thread is here, the progress thread stands back: a waiting client
  // handles its own answers without a thread switch. ready() is evaluated often and must be cheap.
  // Spins for the configured time, then sleeps until a message comes; Wake() makes it look at
  // ready() again. Several threads may be here: one drives, the others wait. After Close it returns
  // at once. REQUIRES: not called from a callback.
  virtual bool DriveUntil(const std::function<bool()>& ready,
                          std::chrono::steady_clock::time_point deadline) = 0;
  virtual void Wake() = 0;

  virtual TransportStats stats() const = 0;

  // Stops: pending sends and receives complete with Cancelled; later Sends too. Idempotent; returns
  // at once.
  virtual void Close() = 0;
  // Waits, at most a few seconds, until every callback has run and the progress thread has ended.
  // REQUIRES: Close was called; not called from a callback. A Send after Join runs its `done`
  // inside the call, since no thread is left.
  virtual void Join() = 0;
};

// Makes a session's transport. `handler` outlives it. Thread-safe.
using TransportFactory = std::function<Result<std::unique_ptr<Transport>>(MessageHandler* handler)>;

}  // namespace monograph
