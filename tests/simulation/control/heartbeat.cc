// The HeartbeatMonitor over the simulated network: what transport/control/heartbeat.cc is over
// sockets, with the same answers. A program that has this one does not link the other.
//
// A loss goes by the channel: Lose ends it, and its end calls on_lost (ChannelEnded), so that the
// callback runs once, whoever noticed the loss first.
#include "transport/control/heartbeat.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/duration.h"
#include "base/mutex.h"
#include "tests/simulation/control/channel_impl.h"
#include "transport/control/pulse.h"

namespace monograph::control {
namespace {

using simulation::Loop;
using simulation::LoopThread;
using simulation::Network;
using simulation::Receiver;
using std::chrono::nanoseconds;

// As in transport/control/heartbeat.cc.
constexpr auto kGrace = std::chrono::milliseconds(500);
constexpr size_t kSamples = 16;

}  // namespace

class HeartbeatMonitor::Impl : public std::enable_shared_from_this<HeartbeatMonitor::Impl> {
 public:
  explicit Impl(HeartbeatOptions options) : options_(std::move(options)) {}

  uint64_t Watch(const std::shared_ptr<Channel::Impl>& channel, LostCallback on_lost);
  void Unwatch(uint64_t id);
  void Ask();
  std::optional<PeerHealth> Health(uint64_t id) const;
  void Stop();

 private:
  struct Sample {
    nanoseconds round_trip{0}, offset{0};
  };
  // One watched peer. Used on the loop only.
  struct Watched : Receiver, std::enable_shared_from_this<Watched> {
    Impl* monitor = nullptr;
    uint64_t id = 0;
    std::shared_ptr<Channel::Impl> channel;
    LostCallback on_lost;
    Network::End end;
    bool open = false, ended = false;
    Loop::Key timer;
    std::optional<Pulse> pulse;  // once it has begun
    uint64_t last_ping = 0;
    std::map<uint64_t, simulation::Clock::time_point> sent;  // pings without an answer
    std::array<Sample, kSamples> samples;
    size_t sample_count = 0;

    void OnMessage(const std::any& message) override {
      if (!ended) monitor->Got(*this, std::any_cast<const Frame&>(message));
    }
    void OnEnd(const Status& why) override { monitor->Lose(*this, why.message()); }
  };
  using WatchedPtr = std::shared_ptr<Watched>;

  void Begin(const WatchedPtr& peer);
  void Got(Watched& peer, const Frame& frame);
  Status GotPong(Watched& peer, const Frame& frame);
  static bool MayAsk(const Watched& peer) {
    return !peer.ended && peer.open && peer.sent.size() < 1000;
  }
  void SendPing(Watched& peer);
  void Judge(const WatchedPtr& peer);
  void Wait(const WatchedPtr& peer);
  // Ends the watch without calling on_lost.
  void EndWatch(const WatchedPtr& peer);
  // Fails the channel; its end then calls on_lost.
  void Lose(Watched& peer, const std::string& reason);
  void ChannelEnded(uint64_t id, const Status& why, bool lost);

  const HeartbeatOptions options_;
  std::map<uint64_t, WatchedPtr> watched_;  // used on the loop only

  mutable Mutex mutex_;
  CondVar unwatched_;
  uint64_t last_id_ MG_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, PeerHealth> health_ MG_GUARDED_BY(mutex_);
  LoopThread io_{"mg-heartbeat"};
};

uint64_t HeartbeatMonitor::Impl::Watch(const std::shared_ptr<Channel::Impl>& channel,
                                       LostCallback on_lost) {
  auto peer = std::make_shared<Watched>();
  {
    MutexLock lock(mutex_);
    peer->id = ++last_id_;
    PeerHealth& health = health_[peer->id];
    health.last_answer = health.last_progress = simulation::Clock::now();
  }
  peer->monitor = this;
  peer->channel = channel;
  peer->on_lost = std::move(on_lost);
  const uint64_t id = peer->id;
  io_.loop()->Post([this, peer] { Begin(peer); });
  return id;
}

void HeartbeatMonitor::Impl::Begin(const WatchedPtr& peer) {
  watched_.emplace(peer->id, peer);
  peer->pulse.emplace(simulation::Clock::now(),
                      Pulse::Pace{options_.interval, options_.timeout, kGrace});
  Frame frame;
  frame.type = FrameType::kHello;
  Hello hello = peer->channel->options().hello;
  hello.purpose = Hello::Purpose::kHeartbeat;
  frame.body = EncodeHello(hello);
  const SimAddress& address = peer->channel->address();
  peer->end = Network::Current().Dial(peer->channel->site(), address.host, address.port, frame,
                                      io_.loop(), peer);
  Wait(peer);
  peer->channel->OnEnd([weak = weak_from_this(), id = peer->id](const Status& why, bool lost) {
    const auto impl = weak.lock();
    if (impl == nullptr) return;
    impl->io_.loop()->Post(
        [impl = impl.get(), id, why, lost] { impl->ChannelEnded(id, why, lost); });
  });
}

void HeartbeatMonitor::Impl::ChannelEnded(uint64_t id, const Status& why, bool lost) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  const WatchedPtr peer = found->second;
  const LostCallback on_lost = std::move(peer->on_lost);
  EndWatch(peer);
  if (lost && on_lost) on_lost(peer->channel->peer_name(), why);
}

void HeartbeatMonitor::Impl::EndWatch(const WatchedPtr& peer) {
  peer->ended = true;
  io_.loop()->Cancel(peer->timer);
  Frame goodbye;
  goodbye.type = FrameType::kGoodbye;
  goodbye.SetStatus(Cancelled("watching ended"));
  peer->end.Send(goodbye, WireBytes(goodbye));
  peer->end.Close("the peer closed the connection");
  watched_.erase(peer->id);
  MutexLock lock(mutex_);
  health_.erase(peer->id);
}

void HeartbeatMonitor::Impl::Lose(Watched& peer, const std::string& reason) {
  if (std::exchange(peer.ended, true)) return;  // the channel's end does the rest
  io_.loop()->Cancel(peer.timer);
  const Status why = peer.channel->LostStatus(reason);
  peer.end.Close("the peer closed the connection");
  peer.channel->End(why, /*lost=*/true);
}

void HeartbeatMonitor::Impl::Unwatch(uint64_t id) {
  const auto end = [this, id] {
    if (const auto found = watched_.find(id); found != watched_.end())
      EndWatch(WatchedPtr(found->second));
  };
  if (io_.loop()->OnThread()) return end();
  bool done = false;
  io_.loop()->Post([&, end] {
    end();
    MutexLock lock(mutex_);
    done = true;
    unwatched_.NotifyAll();
  });
  MutexLock lock(mutex_);
  unwatched_.Wait(mutex_, [&done] { return done; });
}

void HeartbeatMonitor::Impl::Ask() {
  io_.loop()->Post([this] {
    for (const auto& [id, peer] : watched_) {
      if (MayAsk(*peer)) SendPing(*peer);
    }
  });
}

std::optional<PeerHealth> HeartbeatMonitor::Impl::Health(uint64_t id) const {
  MutexLock lock(mutex_);
  const auto found = health_.find(id);
  if (found == health_.end()) return std::nullopt;
  return found->second;
}

void HeartbeatMonitor::Impl::Stop() {
  io_.loop()->Post([this] {
    while (!watched_.empty()) EndWatch(WatchedPtr(watched_.begin()->second));
  });
  io_.Join();
}

void HeartbeatMonitor::Impl::SendPing(Watched& peer) {
  Frame ping;
  ping.type = FrameType::kPing;
  ping.id = ++peer.last_ping;
  ping.body = EncodePing({options_.progress ? options_.progress() : 0});
  peer.sent[ping.id] = simulation::Clock::now();
  peer.end.Send(ping, WireBytes(ping));
}

void HeartbeatMonitor::Impl::Got(Watched& peer, const Frame& frame) {
  Status status;
  if (!peer.open) {
    status = frame.status();
    const Result<Hello> hello = DecodeHello(frame.body);
    if (status.ok()) status = hello.status();
    if (status.ok() && hello->incarnation != peer.channel->peer().incarnation)
      status = Unavailable("it was restarted");
    peer.open = status.ok();
    if (status.ok()) SendPing(peer);
  } else if (frame.type == FrameType::kGoodbye) {
    status = Unavailable("it closed the connection: " + frame.text);
  } else {
    status = GotPong(peer, frame);
  }
  if (!status.ok()) Lose(peer, status.message());
}

Status HeartbeatMonitor::Impl::GotPong(Watched& peer, const Frame& frame) {
  const simulation::Clock::time_point now = simulation::Clock::now();
  const auto sent = peer.sent.find(frame.id);
  if (frame.type != FrameType::kPong || sent == peer.sent.end())
    return InvalidArgument("an answer to no ping");
  MG_ASSIGN_OR_RETURN(const PongBody pong, DecodePong(frame.body));
  // As in transport/control/heartbeat.cc.
  const simulation::Clock::time_point asked = sent->second;
  const int64_t t0 = WireTime(asked), t3 = WireTime(now);
  Sample sample;
  sample.round_trip = nanoseconds((t3 - t0) - (pong.sent_ns - pong.received_ns));
  sample.offset = nanoseconds(((pong.received_ns - t0) + (pong.sent_ns - t3)) / 2);
  peer.sent.erase(peer.sent.begin(), std::next(sent));
  peer.samples[peer.sample_count++ % kSamples] = sample;
  peer.pulse->Heard(now);
  const auto end =
      peer.samples.begin() + static_cast<ptrdiff_t>(std::min(peer.sample_count, kSamples));
  const auto best = std::min_element(
      peer.samples.begin(), end,
      [](const Sample& a, const Sample& b) { return a.round_trip < b.round_trip; });
  MutexLock lock(mutex_);
  PeerHealth& health = health_[peer.id];
  if (health.answers == 0 || health.progress != pong.progress) health.last_progress = now;
  ++health.answers;
  health.last_answer = now;
  health.asked = asked;
  health.progress = pong.progress;
  health.round_trip = best->round_trip;
  health.clock_offset = best->offset;
  return Status();
}

void HeartbeatMonitor::Impl::Wait(const WatchedPtr& peer) {
  peer->timer = io_.loop()->PostAt(peer->pulse->wake(), [this, peer] { Judge(peer); });
}

void HeartbeatMonitor::Impl::Judge(const WatchedPtr& peer) {
  if (peer->ended) return;
  const Pulse::Verdict verdict = peer->pulse->Judge(simulation::Clock::now());
  if (verdict == Pulse::Verdict::kLost) {
    return Lose(*peer, "it has not answered heartbeats for " + Seconds(options_.timeout) +
                           "; its process may be stopped or its machine cut off");
  }
  if (verdict == Pulse::Verdict::kAsk && MayAsk(*peer)) SendPing(*peer);
  Wait(peer);
}

HeartbeatMonitor::HeartbeatMonitor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<HeartbeatMonitor> HeartbeatMonitor::Start(HeartbeatOptions options) {
  return std::unique_ptr<HeartbeatMonitor>(
      new HeartbeatMonitor(std::make_shared<Impl>(std::move(options))));
}

HeartbeatMonitor::~HeartbeatMonitor() { impl_->Stop(); }
uint64_t HeartbeatMonitor::Watch(const Channel& channel, LostCallback on_lost) {
  return impl_->Watch(channel.impl(), std::move(on_lost));
}
void HeartbeatMonitor::Unwatch(uint64_t watch) { impl_->Unwatch(watch); }
void HeartbeatMonitor::Ask() { impl_->Ask(); }
std::optional<PeerHealth> HeartbeatMonitor::Health(uint64_t watch) const {
  return impl_->Health(watch);
}

}  // namespace monograph::control
