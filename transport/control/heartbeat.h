// HeartbeatMonitor: tells within 3 s that a peer is dead, hung, stopped or cut off, and within 0.2
// s that its process has ended.
//
// Each watched Channel gets a second connection to the same server, which carries nothing but
// pings. A thread of its own, "mg-heartbeat", sends and judges them, so that neither a busy io
// thread, nor a handler, nor a long step or a large message looks like a lost peer; the server
// answers on its io thread, which runs nothing that blocks. A peer that has not answered for
// `timeout` is lost: Channel::Fail is called, which completes its pending calls, and then on_lost.
// If this process itself did not run for a while (it was stopped, or the machine slept), peers get
// a short grace, because their answers may lie unread.
//
// The server side of the same connection notices a dead client and then ends the channel's
// connection (ServerOptions::silence_timeout).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

namespace monograph::control {

class Channel;

struct HeartbeatOptions {
  std::chrono::milliseconds interval{500};
  std::chrono::milliseconds timeout{2500};
  // What pings report to the servers: any number that grows while this process gets on with its
  // work. Called on the heartbeat thread.
  std::function<uint64_t()> progress;
};

struct PeerHealth {
  uint64_t answers = 0;  // so far
  std::chrono::steady_clock::time_point last_answer;
  std::chrono::steady_clock::time_point asked;  // when the ping that it answered was sent
  uint64_t progress = 0;                        // the peer's own counter, as of the last answer
  std::chrono::steady_clock::time_point last_progress;  // when it last changed
  // Of the quickest of the last answers: the round trip, and the peer's steady clock minus ours,
  // right to half a round trip.
  std::chrono::nanoseconds round_trip{0};
  std::chrono::nanoseconds clock_offset{0};
};

class HeartbeatMonitor {
 public:
  // Runs on the heartbeat thread, once, when the watched channel is lost, for whatever reason; not
  // after the channel's own Close, and not after Unwatch has returned. `peer` is
  // Channel::peer_name(). Must not block for more than a tenth of a second.
  using LostCallback = std::function<void(const std::string& peer, const Status& why)>;

  static std::unique_ptr<HeartbeatMonitor> Start(HeartbeatOptions options = {});
  ~HeartbeatMonitor();  // ends all watches. REQUIRES: not called from a LostCallback

  // Watches from now on; returns at once. The number names the watch. The channel need not outlive
  // it.
  uint64_t Watch(const Channel& channel, LostCallback on_lost);
  // The server is told that these heartbeats end on purpose; its connection to the channel stays.
  void Unwatch(uint64_t watch);
  // Asks every peer for an answer now, beside the pings that are due. Returns at once.
  void Ask();
  // Nothing for a watch that has ended.
  std::optional<PeerHealth> Health(uint64_t watch) const;

 private:
  class Impl;
  explicit HeartbeatMonitor(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace monograph::control
