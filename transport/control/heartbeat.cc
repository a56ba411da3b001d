// Two coroutines watch a peer, both on the heartbeat thread. Talk connects, shakes hands and reads
// the answers; Judge sends the pings, and declares the peer lost when the last answer is too old. A
// loss always goes by the channel: Lose ends it, and its end calls on_lost (OnChannelEnd), so that
// the callback runs once, whoever noticed the loss first.
#include "transport/control/heartbeat.h"

#include "base/mutex.h"
#include "transport/asio_token.h"
#include "transport/control/connection.h"
// Keep connection.h before other Asio headers.
#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <map>
#include <thread>

#include "base/duration.h"
#include "base/thread.h"
#include "transport/control/asio_status.h"
#include "transport/control/channel_impl.h"
#include "transport/control/pulse.h"
#include "transport/control/tls.h"

namespace monograph::control {
namespace {

using std::chrono::nanoseconds;

// How much longer peers get after a delay of our own.
constexpr auto kGrace = std::chrono::milliseconds(500);
// The clock offset is taken from the quickest of so many last answers: older ones do not count,
// since clocks drift.
constexpr size_t kSamples = 16;

}  // namespace

class HeartbeatMonitor::Impl : public std::enable_shared_from_this<HeartbeatMonitor::Impl> {
 public:
  explicit Impl(HeartbeatOptions options)
      : options_(std::move(options)), work_(asio::make_work_guard(io_)) {
    thread_ = StartThread("mg-heartbeat", [this] { io_.run(); });
  }

  uint64_t Watch(std::shared_ptr<Channel::Impl> channel, LostCallback on_lost);
  void Unwatch(uint64_t id);
  void Ask();
  std::optional<PeerHealth> Health(uint64_t id) const;
  void Stop();

 private:
  struct Sample {
    nanoseconds round_trip{0}, offset{0};
  };

  // One watched peer. Used on the heartbeat thread only.
  struct Watched {
    Watched(asio::io_context& io, uint64_t number, std::shared_ptr<Channel::Impl> of,
            LostCallback callback, const Pulse::Pace& pace)
        : id(number),
          channel(std::move(of)),
          on_lost(std::move(callback)),
          socket(io),
          timer(io),
          pulse(Clock::now(), pace) {}
    const uint64_t id;
    const std::shared_ptr<Channel::Impl> channel;
    LostCallback on_lost;
    tcp::socket socket;                      // while connecting
    std::shared_ptr<Connection> connection;  // afterwards
    asio::steady_timer timer;
    bool ended = false;
    Pulse pulse;
    uint64_t ping_id = 0;
    std::map<uint64_t, Clock::time_point> sent;  // pings without an answer
    std::array<Sample, kSamples> samples;
    size_t sample_count = 0;
  };
  using WatchedPtr = std::shared_ptr<Watched>;

  asio::awaitable<void> Talk(WatchedPtr peer);
  asio::awaitable<void> Judge(WatchedPtr peer);
  Status OnPong(Watched& peer, const Frame& frame);
  static bool MayAsk(const Watched& peer) {
    return !peer.ended && peer.connection != nullptr && peer.ping_id > 0 && peer.sent.size() < 1000;
  }
  void SendPing(Watched& peer);
  // End ends the watch without calling on_lost. Lose fails the channel; its end then calls on_lost.
  void End(const WatchedPtr& peer);
  void Lose(const WatchedPtr& peer, const std::string& reason);
  void OnChannelEnd(uint64_t id, const Status& why, bool lost);

  const HeartbeatOptions options_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::map<uint64_t, WatchedPtr> watched_;  // used on the heartbeat thread only

  mutable Mutex mutex_;
  uint64_t next_id_ MG_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, PeerHealth> health_ MG_GUARDED_BY(mutex_);
  std::thread thread_;
};

uint64_t HeartbeatMonitor::Impl::Watch(std::shared_ptr<Channel::Impl> channel,
                                       LostCallback on_lost) {
  uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    id = next_id_++;
    PeerHealth& health = health_[id];
    health.last_answer = health.last_progress = Clock::now();
  }
  asio::post(io_, [this, id, channel, on_lost = std::move(on_lost)]() mutable {
    auto peer = std::make_shared<Watched>(io_, id, channel, std::move(on_lost),
                                          Pulse::Pace{options_.interval, options_.timeout, kGrace});
    watched_.emplace(id, peer);
    asio::co_spawn(io_, Talk(peer), asio::detached);
    asio::co_spawn(io_, Judge(peer), asio::detached);
    channel->OnEnd([weak = weak_from_this(), id](const Status& why, bool lost) {
      const auto impl = weak.lock();
      if (impl == nullptr) return;
      asio::post(impl->io_,
                 [impl = impl.get(), id, why, lost] { impl->OnChannelEnd(id, why, lost); });
    });
  });
  return id;
}

void HeartbeatMonitor::Impl::OnChannelEnd(uint64_t id, const Status& why, bool lost) {
  const auto it = watched_.find(id);
  if (it == watched_.end()) return;
  const WatchedPtr peer = it->second;
  const LostCallback on_lost = std::move(peer->on_lost);
  End(peer);
  if (lost && on_lost) on_lost(peer->channel->peer_name(), why);
}

void HeartbeatMonitor::Impl::End(const WatchedPtr& peer) {
  peer->ended = true;
  peer->timer.cancel();
  ErrorCode ignored;
  peer->socket.close(ignored);
  if (peer->connection != nullptr) peer->connection->CloseGracefully(Cancelled("watching ended"));
  watched_.erase(peer->id);
  MutexLock lock(mutex_);
  health_.erase(peer->id);
}

void HeartbeatMonitor::Impl::Lose(const WatchedPtr& peer, const std::string& reason) {
  if (peer->ended) return;
  peer->ended = true;  // no more pings; the channel's end does the rest
  peer->timer.cancel();
  ErrorCode ignored;
  peer->socket.close(ignored);
  const Status why = peer->channel->LostStatus(reason);
  if (peer->connection != nullptr) peer->connection->Close(why);
  peer->channel->End(why, /*lost=*/true);
}

void HeartbeatMonitor::Impl::Unwatch(uint64_t id) {
  auto end = [this, id] {
    const auto it = watched_.find(id);
    if (it != watched_.end()) End(WatchedPtr(it->second));
  };
  if (std::this_thread::get_id() == thread_.get_id()) return end();
  std::promise<void> done;
  asio::post(io_, [&] {
    end();
    done.set_value();
  });
  done.get_future().wait();
}

void HeartbeatMonitor::Impl::Ask() {
  asio::post(io_, [this] {
    for (const auto& [id, peer] : watched_) {
      if (MayAsk(*peer)) SendPing(*peer);
    }
  });
}

std::optional<PeerHealth> HeartbeatMonitor::Impl::Health(uint64_t id) const {
  MutexLock lock(mutex_);
  const auto it = health_.find(id);
  if (it == health_.end()) return std::nullopt;
  return it->second;
}

void HeartbeatMonitor::Impl::Stop() {
  asio::post(io_, [this] {
    while (!watched_.empty()) End(WatchedPtr(watched_.begin()->second));
    work_.reset();
  });
  thread_.join();
}

void HeartbeatMonitor::Impl::SendPing(Watched& peer) {
  Frame ping;
  ping.type = FrameType::kPing;
  ping.id = ++peer.ping_id;
  ping.body = EncodePing({options_.progress ? options_.progress() : 0});
  peer.sent[ping.id] = Clock::now();
  peer.connection->Send(std::move(ping));
}

Status HeartbeatMonitor::Impl::OnPong(Watched& peer, const Frame& frame) {
  const Clock::time_point now = Clock::now();
  const auto sent = peer.sent.find(frame.id);
  if (frame.type != FrameType::kPong || sent == peer.sent.end())
    return InvalidArgument("an answer to no ping");
  MG_ASSIGN_OR_RETURN(const PongBody pong, DecodePong(frame.body));
  // As in NTP; t0 and t3 are by our clock, received and sent by the peer's:
  //   round trip = (t3 - t0) - (sent - received)
  //   offset     = ((received - t0) + (sent - t3)) / 2
  const Clock::time_point asked = sent->second;
  const int64_t t0 = WireTime(asked), t3 = WireTime(now);
  Sample sample;
  sample.round_trip = nanoseconds((t3 - t0) - (pong.sent_ns - pong.received_ns));
  sample.offset = nanoseconds(((pong.received_ns - t0) + (pong.sent_ns - t3)) / 2);
  peer.sent.erase(peer.sent.begin(), std::next(sent));
  peer.samples[peer.sample_count++ % kSamples] = sample;
  peer.pulse.Heard(now);
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

asio::awaitable<void> HeartbeatMonitor::Impl::Talk(WatchedPtr peer) {
  const ChannelOptions& options = peer->channel->options();
  std::shared_ptr<TlsContext> tls;
  if (options.key) {
    auto made = TlsContext::Make(*options.key->Current(), /*server=*/false);
    if (!made.ok()) co_return Lose(peer, made.status().message());
    tls = std::move(made).value();
  }
  const auto [error] = co_await peer->socket.async_connect(peer->channel->remote(), kToken);
  if (peer->ended) co_return;
  if (error) co_return Lose(peer, FromAsio(error, "cannot connect for heartbeats").message());
  PrepareSocket(peer->socket);
  auto connection = std::make_shared<Connection>(std::move(peer->socket), Connection::Side::kClient,
                                                 std::move(tls), kMaxHelloBytes);
  peer->connection = connection;
  Hello hello = options.hello;
  hello.purpose = Hello::Purpose::kHeartbeat;
  Status status = co_await connection->Handshake(std::move(hello), nullptr, options_.timeout);
  if (status.ok() && connection->peer_hello().incarnation != peer->channel->peer().incarnation) {
    status = Unavailable("it was restarted");
  }
  if (status.ok() && !peer->ended) SendPing(*peer);
  while (status.ok() && !peer->ended) {
    Frame frame;
    status = co_await connection->Read(&frame);
    if (peer->ended || !status.ok()) break;
    status = frame.type == FrameType::kGoodbye
                 ? Unavailable("it closed the connection: " + frame.text)
                 : OnPong(*peer, frame);
  }
  if (!peer->ended) Lose(peer, status.message());
  connection->Close(status.ok() ? Cancelled("watching ended") : status);
}

asio::awaitable<void> HeartbeatMonitor::Impl::Judge(WatchedPtr peer) {
  while (!peer->ended) {
    peer->timer.expires_at(peer->pulse.wake());
    const auto [error] = co_await peer->timer.async_wait(kToken);
    (void)error;
    if (peer->ended) co_return;
    const Pulse::Verdict verdict = peer->pulse.Judge(Clock::now());
    if (verdict == Pulse::Verdict::kLost) {
      co_return Lose(peer, "it has not answered heartbeats for " + Seconds(options_.timeout) +
                               "; its process may be stopped or its machine cut off");
    }
    if (verdict == Pulse::Verdict::kAsk && MayAsk(*peer)) SendPing(*peer);
  }
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
