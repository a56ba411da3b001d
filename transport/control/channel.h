// Channel: the calling end of the control plane, one connection to one server.
//
// Threads. Every method may be called from any thread, blocking ones (Connect, Call) not from a
// callback. Callbacks run on the io thread "mg-control" that all channels of the process share;
// they must not block. A callback never runs inside the call that caused it.
//
// Failure. A lost connection completes every pending call with Unavailable naming the peer; a
// channel that is lost stays so, connect again. Whether a silent peer is alive is the
// HeartbeatMonitor's business, which calls Fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "transport/control/hello.h"
#include "transport/control/key_ring.h"

namespace monograph::control {

struct ChannelOptions {
  std::optional<KeyRing> key;  // given: TLS with the first of its keys, and nothing else
  Hello hello;
  // How long Connect tries: a daemon that is not up yet, or whose machine does not answer, is tried
  // again until then.
  std::chrono::milliseconds timeout{30000};
  // The task that the cluster's description names at this address; another one there is
  // FailedPrecondition. Empty: whoever answers. Also names the peer in messages until it has said
  // who it is.
  std::string expected_task;
  // What Connect waits for, in words, first after this interval, then at doubling distances.
  // Without a function the line is logged.
  std::chrono::milliseconds report_after{1000};
  std::function<void(const std::string& line)> on_waiting;
  // Once, when an established channel is lost (not after Close).
  std::function<void(const Status&)> on_lost;
  size_t max_body_bytes = kDefaultMaxBodyBytes;
};

class Channel {
 public:
  using Callback = std::function<void(Result<std::string>)>;
  using ConnectCallback = std::function<void(Result<std::unique_ptr<Channel>>)>;

  // Connects to "host:port" and shakes hands. InvalidArgument for a bad address, NotFound for an
  // unknown host, Unauthenticated for wrong or missing keys and, without one, for another user,
  // FailedPrecondition for another version or task or for what is no Monograph daemon, all at once;
  // Unavailable when the time is up. A failure begins with the peer's name, as peer_name.
  static Result<std::unique_ptr<Channel>> Connect(const std::string& target,
                                                  ChannelOptions options);
  static void ConnectAsync(const std::string& target, ChannelOptions options,
                           ConnectCallback callback);

  ~Channel();  // Close; afterwards no callback runs, unless it is called from one

  // The response, or the status that the handler gave, or: DeadlineExceeded naming method, peer and
  // seconds; Unavailable for a lost peer; Cancelled after Close.
  Result<std::string> Call(const std::string& method, std::string request,
                           std::chrono::milliseconds timeout);
  void CallAsync(const std::string& method, std::string request, std::chrono::milliseconds timeout,
                 Callback callback);

  const Hello& peer() const;  // what the server said of itself
  // "/job:worker/replica:0/task:1 at 127.0.0.1:2222"
  const std::string& peer_name() const;
  // OK while the channel can be used, then why not.
  Status status() const;

  // Declares the peer lost: pending and later calls complete with `why`, and on_lost is called with
  // it.
  void Fail(const Status& why);
  // Pending calls complete with Cancelled. Idempotent; returns at once.
  void Close();

  class Impl;  // private to this folder
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Channel(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace monograph::control
