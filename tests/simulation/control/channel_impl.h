// The inside of a Channel over the simulated network, shared with the HeartbeatMonitor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "tests/simulation/network.h"
#include "transport/control/channel.h"

namespace monograph::control {

// Where a daemon listens.
struct SimAddress {
  std::string host, port;
  std::string text() const { return host + ":" + port; }
};
// What a frame takes on a link.
size_t WireBytes(const Frame& frame);

class Channel::Impl : public simulation::Receiver,
                      public std::enable_shared_from_this<Channel::Impl> {
 public:
  // `opened` runs once on the io loop: OK when the handshake is complete, else why it is not.
  Impl(const simulation::Site& site, SimAddress address, ChannelOptions options,
       std::function<void(const Status&)> opened);

  // On the io loop, once, after construction.
  void Dial();
  void OnMessage(const std::any& message) override;
  void OnEnd(const Status& why) override;

  void CallAsync(const std::string& method, std::string request, std::chrono::milliseconds timeout,
                 Callback callback);
  // Ends the channel. `lost` tells a lost peer from the owner's Close. From any thread.
  void End(const Status& why, bool lost);
  // Ends, and waits until the io loop has delivered everything (not when called on it).
  void EndAndWait(const Status& why);

  // `watcher` runs on the io loop, once, when the channel ends; at once if it has ended. From any
  // thread.
  using Watcher = std::function<void(const Status& why, bool lost)>;
  void OnEnd(Watcher watcher);

  Status status() const;
  const ChannelOptions& options() const { return options_; }
  const std::string& peer_name() const { return peer_name_; }
  const Hello& peer() const { return peer_; }
  const simulation::Site& site() const { return site_; }
  const SimAddress& address() const { return address_; }
  const std::shared_ptr<simulation::Loop>& io() const { return io_; }
  Status LostStatus(const std::string& reason) const {
    return TaskLost(peer_.task_name, "lost " + peer_name_ + ": " + reason);
  }

 private:
  struct Pending {
    std::string method;
    std::chrono::milliseconds timeout;
    Callback callback;
    simulation::Loop::Key timer;
  };

  void OnHello(const Frame& frame);
  void SendCall(const std::string& method, std::string request, std::chrono::milliseconds timeout,
                Callback callback);
  void Finish(uint64_t id, Result<std::string> result);
  void EndNow(const Status& why, bool lost);

  const simulation::Site site_;
  const SimAddress address_;
  ChannelOptions options_;
  const std::shared_ptr<simulation::Loop> io_;

  mutable Mutex mutex_;
  Status status_ MG_GUARDED_BY(mutex_);

  // Of the io loop; the first two do not change once the channel is open.
  Hello peer_;
  std::string peer_name_;
  std::function<void(const Status&)> opened_;
  simulation::Network::End end_;
  bool ended_ = false, lost_ = false;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, Pending> pending_;
  std::vector<Watcher> watchers_;
};

}  // namespace monograph::control
