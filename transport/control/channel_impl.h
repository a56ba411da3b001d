// The inside of a Channel, shared with the HeartbeatMonitor. Private to this folder.
#pragma once

#include "base/mutex.h"
#include "transport/control/connection.h"
// Keep connection.h before other Asio headers.
#include <map>
#include <unordered_map>
#include <vector>

#include "transport/control/channel.h"

namespace monograph::control {

class ClientIo;

class Channel::Impl : public std::enable_shared_from_this<Channel::Impl> {
 public:
  // `io` runs the connection.
  Impl(ClientIo& io, std::shared_ptr<Connection> connection, ChannelOptions options);

  // On the io thread, once, after construction.
  void Start();

  void CallAsync(const std::string& method, std::string request, std::chrono::milliseconds timeout,
                 Callback callback);
  // Ends the channel. `lost` tells a lost peer from the owner's Close. From any thread.
  void End(const Status& why, bool lost);
  // Ends, and waits until the io thread has delivered everything (not when called on it).
  void EndAndWait(const Status& why);

  // `watcher` runs on the io thread, once, when the channel ends; at once if it has ended. From any
  // thread.
  using Watcher = std::function<void(const Status& why, bool lost)>;
  void OnEnd(Watcher watcher);

  Status status() const;
  bool OnIoThread() const;

  const ChannelOptions& options() const { return options_; }
  const std::string& peer_name() const { return peer_name_; }
  Status LostStatus(const std::string& reason) const {
    return TaskLost(peer().task_name, "lost " + peer_name_ + ": " + reason);
  }
  const Hello& peer() const { return connection_->peer_hello(); }
  tcp::endpoint remote() const { return connection_->remote(); }

 private:
  struct Pending {
    std::string method;
    std::chrono::milliseconds timeout;
    Callback callback;
    std::unique_ptr<asio::steady_timer> timer;
  };

  asio::awaitable<void> ReadLoop(std::shared_ptr<Impl> self);
  void SendCall(uint64_t id, const std::string& method, std::string request,
                std::chrono::milliseconds timeout, Callback callback);
  void Finish(uint64_t id, Result<std::string> result);
  void EndNow(const Status& why, bool lost);

  ClientIo& io_;
  const std::shared_ptr<Connection> connection_;
  const ChannelOptions options_;
  const std::string peer_name_;

  mutable Mutex mutex_;
  Status status_ MG_GUARDED_BY(mutex_);

  // Of the io thread.
  bool ended_ = false;
  bool lost_ = false;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Pending> pending_;
  std::vector<Watcher> watchers_;
};

}  // namespace monograph::control
