// An end settles (Settle) before it is looked at: packets that are due become bytes that can be
// read, states and errors. In order: the roads between two machines and what their cuts do to ends
// over them, packets, then what sockets do: connect, accept, send, receive, shut down, close.
#include "tests/simulation/tcp.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace monograph::simulation {
namespace {

constexpr size_t kSegment = size_t{64} << 10;
constexpr size_t kControlBytes = 40;
constexpr std::chrono::milliseconds kSynPause{250};
constexpr uint16_t kFirstFreePort = 40000;

}  // namespace

struct Tcp::Packet {
  enum Kind { kBytes, kFin, kReset, kConnected, kRefused, kRoom };
  Kind kind = kBytes;
  std::string bytes = {};
  Clock::time_point due = {};
};

// ---- roads

bool Tcp::Cut(int from, int to) const {
  network_.mutex_.AssertHeld();
  return network_.RoadOf(from, to).cut;
}

Clock::time_point Tcp::CutSince(int a, int b) const {
  network_.mutex_.AssertHeld();
  Clock::time_point since = Clock::time_point::max();
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    if (const Network::Road& road = network_.RoadOf(from, to); road.cut)
      since = std::min(since, road.cut_at);
  }
  return since;
}

std::vector<Tcp::EndPtr> Tcp::Between(int a, int b) {
  std::vector<EndPtr> found;
  for (const auto& each : ends_) {
    const EndPtr end = each.lock();
    if (end == nullptr || end->closed_ || !(end->open() || end->connecting())) continue;
    const int own = end->site_.host, peer = end->peer.host;
    if ((own == a && peer == b) || (own == b && peer == a)) found.push_back(end);
  }
  return found;
}

void Tcp::SettleAll(int a, int b) {
  for (const EndPtr& end : Between(a, b)) Settle(*end);
}

void Tcp::LookAll(int a, int b) {
  for (const EndPtr& end : Between(a, b))
    if (end->watcher != nullptr) end->watcher->Look();
}

void Tcp::Heal(int from, int to, Clock::duration pause) {
  network_.mutex_.AssertHeld();
  for (const EndPtr& end : Between(from, to)) {
    if (end->peer.host == from && !end->coming_.empty()) {
      const Clock::time_point again = Clock::now() + network_.Within(pause);
      for (Packet& packet : end->coming_) packet.due = std::max(packet.due, again);
      end->latest_ = std::max(end->latest_, again);
    }
    if (end->watcher != nullptr) end->watcher->Look();
  }
}

void Tcp::Break(int a, int b) {
  for (const EndPtr& end : Between(a, b)) {
    Settle(*end);
    Fail(*end, ECONNRESET);
  }
}

void Tcp::EndLife(int host, bool told) {
  network_.mutex_.AssertHeld();
  for (const auto& each : std::vector(ends_)) {
    const EndPtr end = each.lock();
    if (end == nullptr || end->closed_) continue;
    if (end->site_.host == host && network_.Alive(end->site_)) {
      Settle(*end);
      if (told) {
        Close(*end);
        end->closed_ = false;  // what is left of the process still has it
      } else if (const EndPtr other = end->other_.lock(); other != nullptr && !other->closed_) {
        other->gives_up_ = std::min(other->gives_up_, Clock::now() + network_.options_.patience);
        if (other->watcher != nullptr) other->watcher->Look();
      }
      if (end->state_ != TcpEnd::State::kListening) Fail(*end, ENETDOWN);
    }
  }
}

// ---- packets

void Tcp::Push(const Site& from, TcpEnd& to, Packet packet, size_t bytes) {
  network_.mutex_.AssertHeld();
  if (to.closed_ || to.state_ == TcpEnd::State::kOver) return;
  packet.due = std::max({to.latest_, packet.due,
                         network_.Arrival(&network_.RoadOf(from.host, to.site_.host), bytes)});
  to.latest_ = packet.due;
  if (packet.kind == Packet::kBytes) to.coming_bytes_ += packet.bytes.size();
  const bool first = to.coming_.empty();
  to.coming_.push_back(std::move(packet));
  if (first && to.watcher != nullptr) to.watcher->Look();
}

void Tcp::Reset(TcpEnd& from, Clock::time_point not_before) {
  const EndPtr other = from.other_.lock();
  if (other != nullptr)
    Push(from.site_, *other, {.kind = Packet::kReset, .due = not_before}, kControlBytes);
}

void Tcp::Fail(TcpEnd& end, int error) {
  end.state_ = TcpEnd::State::kOver;
  end.error = error;
  end.coming_.clear();
  end.coming_bytes_ = 0;
  end.other_.reset();
  end.Changed();
}

void Tcp::Settle(TcpEnd& end) {
  network_.mutex_.AssertHeld();
  using State = TcpEnd::State;
  if (end.state_ == State::kFresh || end.state_ == State::kOver) return;
  const Clock::time_point now = Clock::now();
  if (end.state_ == State::kListening) {
    if (!end.backlog_.empty() && !end.backlog_seen_ && end.backlog_.front().due <= now) {
      end.backlog_seen_ = true;
      ++end.changes;
    }
    return;
  }
  const EndPtr self = end.self_.lock();  // a failure may take the last reference
  while (!end.coming_.empty() && end.coming_.front().due <= now &&
         !Cut(end.peer.host, end.site_.host)) {
    Packet packet = std::move(end.coming_.front());
    end.coming_.pop_front();
    switch (packet.kind) {
      case Packet::kBytes:
        end.coming_bytes_ -= packet.bytes.size();
        end.arrived_.erase(0, std::exchange(end.read_, 0));
        end.arrived_ += packet.bytes;
        ++network_.delivered_;
        break;
      case Packet::kFin:
        end.fin_came_ = true;
        break;
      case Packet::kReset:
        return Fail(end, end.connecting() ? ECONNREFUSED : end.fin_came_ ? EPIPE : ECONNRESET);
      case Packet::kConnected:
        end.state_ = State::kOpen;
        break;
      case Packet::kRefused:
        return Fail(end, ECONNREFUSED);
      case Packet::kRoom:
        break;
    }
    ++end.changes;
  }
  if (end.connecting() && end.try_at_ <= now) Try(self);
  if (now >= end.gives_up_ || (end.connecting() && now >= end.dial_until_))
    return Fail(end, ETIMEDOUT);
  const Clock::time_point cut = CutSince(end.site_.host, end.peer.host);
  if (end.open() && cut != Clock::time_point::max() && now >= cut + network_.options_.patience)
    Fail(end, ETIMEDOUT);
}

Clock::time_point Tcp::NextChange(const TcpEnd& end) const {
  using State = TcpEnd::State;
  Clock::time_point next = Clock::time_point::max();
  if (end.state_ == State::kFresh || end.state_ == State::kOver) return next;
  if (end.state_ == State::kListening) {
    if (!end.backlog_.empty() && !end.backlog_seen_) next = end.backlog_.front().due;
    return next;
  }
  next = end.gives_up_;
  if (end.connecting()) next = std::min({next, end.try_at_, end.dial_until_});
  if (!end.coming_.empty() && !Cut(end.peer.host, end.site_.host))
    next = std::min(next, end.coming_.front().due);
  if (!end.open()) return next;
  const Clock::time_point cut = CutSince(end.site_.host, end.peer.host);
  if (cut != Clock::time_point::max()) next = std::min(next, cut + network_.options_.patience);
  return next;
}

size_t Tcp::Room(const TcpEnd& end) const {
  const EndPtr other = end.other_.lock();
  if (other == nullptr || other->closed_) return kSegment;
  const size_t held = other->coming_bytes_ + other->arrived_.size() - other->read_;
  const size_t window = network_.options_.window;
  return held < window ? window - held : 0;
}

unsigned Tcp::Readiness(const TcpEnd& end) const {
  using State = TcpEnd::State;
  switch (end.state_) {
    case State::kFresh:
      return POLLOUT | POLLHUP;
    case State::kListening:
      return !end.backlog_.empty() && end.backlog_.front().due <= Clock::now() ? POLLIN : 0u;
    case State::kConnecting:
      return 0;
    case State::kOpen:
    case State::kOver:
      break;
  }
  const bool over = end.state_ == State::kOver;
  unsigned ready = 0;
  if (over || end.fin_came_ || end.stopped_reading_ || end.arrived_.size() > end.read_)
    ready |= POLLIN;
  if (over || end.fin_sent_ || (Room(end) > 0 && !end.waits_for_room_)) ready |= POLLOUT;
  if (over || (end.fin_sent_ && (end.fin_came_ || end.stopped_reading_))) ready |= POLLHUP;
  if (end.error != 0) ready |= POLLERR;
  return ready;
}

const TcpEnd* Tcp::Find(TcpAddress own, TcpAddress peer) const {
  for (const auto& each : ends_) {
    const EndPtr end = each.lock();
    if (end != nullptr && !end->closed_ && end->own == own && end->peer == peer &&
        (end->open() || end->connecting()))
      return end.get();
  }
  return nullptr;
}

// ---- what sockets do

Tcp::EndPtr Tcp::Open(int host) {
  network_.mutex_.AssertHeld();
  auto end = std::make_shared<TcpEnd>();
  end->site_ = {host, network_.hosts_[static_cast<size_t>(host)].life};
  end->own.host = host;
  end->self_ = end;
  if (ends_.size() >= forget_at_) {
    std::erase_if(ends_, [](const auto& each) { return each.expired(); });
    forget_at_ = 2 * ends_.size() + 64;
  }
  ends_.push_back(end);
  return end;
}

uint16_t Tcp::FreePort(int host) {
  uint16_t& last = last_port_.try_emplace(host, kFirstFreePort).first->second;
  do {
    last = last == UINT16_MAX ? kFirstFreePort : static_cast<uint16_t>(last + 1);
  } while (listeners_.count({host, last}) != 0);
  return last;
}

int Tcp::Bind(const EndPtr& end, TcpAddress address) {
  network_.mutex_.AssertHeld();
  if (address.host != end->site_.host) return -EADDRNOTAVAIL;
  if (address.port == 0) address.port = FreePort(address.host);
  const auto found = listeners_.find({address.host, address.port});
  if (found != listeners_.end()) {
    const EndPtr other = found->second.lock();
    if (other != nullptr && !other->closed_ && network_.Alive(other->site_)) return -EADDRINUSE;
  }
  end->own.port = address.port;
  return 0;
}

int Tcp::Listen(const EndPtr& end) {
  network_.mutex_.AssertHeld();
  if (!network_.Alive(end->site_)) return -ENETDOWN;
  end->state_ = TcpEnd::State::kListening;
  listeners_[{end->own.host, end->own.port}] = end;
  return 0;
}

int Tcp::Connect(const EndPtr& end, TcpAddress to) {
  network_.mutex_.AssertHeld();
  if (end->connecting()) return -EALREADY;
  if (end->state_ != TcpEnd::State::kFresh) return -EISCONN;
  if (to.host < 0 || !network_.Alive(end->site_)) return -ENETUNREACH;
  if (end->own.port == 0) end->own.port = FreePort(end->own.host);
  end->peer = to;
  end->state_ = TcpEnd::State::kConnecting;
  end->dial_until_ = Clock::now() + network_.options_.patience;
  end->try_at_ = network_.Arrival(&network_.RoadOf(end->site_.host, to.host), kControlBytes);
  return -EINPROGRESS;
}

// The SYN arrives, or is lost.
void Tcp::Try(const EndPtr& end) {
  network_.mutex_.AssertHeld();
  const int from = end->site_.host, to = end->peer.host;
  const Network::Host& there = network_.hosts_[static_cast<size_t>(to)];
  const Clock::time_point now = Clock::now();
  if ((!there.up && there.silent) || Cut(from, to) || Cut(to, from)) {
    end->try_at_ = now + kSynPause;
    return;
  }
  end->try_at_ = Clock::time_point::max();
  const auto found = listeners_.find({to, end->peer.port});
  const EndPtr listener = found == listeners_.end() ? nullptr : found->second.lock();
  if (listener == nullptr || listener->closed_ || !network_.Alive(listener->site_)) {
    return Push({to, there.life}, *end, {.kind = Packet::kRefused}, kControlBytes);
  }
  const EndPtr taken = Open(to);
  taken->site_ = listener->site_;
  taken->own = end->peer;
  taken->peer = end->own;
  taken->state_ = TcpEnd::State::kOpen;
  taken->other_ = end;
  end->other_ = taken;
  Push(taken->site_, *end, {.kind = Packet::kConnected}, kControlBytes);
  const Clock::time_point due = end->latest_ + network_.RoadOf(from, to).link.delay;
  taken->latest_ = due;
  listener->backlog_.push_back({taken, due});
  if (listener->backlog_.size() == 1) {
    listener->backlog_seen_ = false;
    if (listener->watcher != nullptr) listener->watcher->Look();
  }
}

Tcp::EndPtr Tcp::Accept(TcpEnd& end) {
  network_.mutex_.AssertHeld();
  if (end.backlog_.empty() || end.backlog_.front().due > Clock::now() || !network_.Alive(end.site_))
    return nullptr;
  EndPtr taken = std::move(end.backlog_.front().end);
  end.backlog_.pop_front();
  end.backlog_seen_ = false;
  return taken;
}

int Tcp::Send(TcpEnd& end, std::string_view bytes) {
  network_.mutex_.AssertHeld();
  Settle(end);
  if (end.error != 0) return -std::exchange(end.error, 0);
  if (end.connecting()) return -EAGAIN;
  if (!end.open() || end.fin_sent_) return -EPIPE;
  const size_t take = std::min(bytes.size(), Room(end));
  if (take == 0 && !bytes.empty()) {
    end.waits_for_room_ = true;
    return -EAGAIN;
  }
  // As on Linux a send that takes only a part leaves nothing writable.
  if (take < bytes.size()) end.waits_for_room_ = true;
  const EndPtr other = end.other_.lock();
  const int to = end.peer.host;
  if (other != nullptr && !other->closed_ && other->state_ != TcpEnd::State::kOver) {
    for (size_t sent = 0; sent < take;) {
      size_t step = std::min(take - sent, kSegment);
      // Some come in two pieces.
      if (step > 1 && network_.RandomLocked(8) == 0) step = 1 + network_.RandomLocked(step - 1);
      Push(end.site_, *other, {.bytes = std::string(bytes.substr(sent, step))},
           kControlBytes + step);
      sent += step;
    }
    return static_cast<int>(take);
  }
  // Nobody is there who knows of this connection.
  const Network::Host& there = network_.hosts_[static_cast<size_t>(to)];
  if ((there.up || !there.silent) && !Cut(end.site_.host, to)) {
    const Clock::time_point arrives =
        network_.Arrival(&network_.RoadOf(end.site_.host, to), kControlBytes + take);
    Push({to, there.life}, end, {.kind = Packet::kReset, .due = arrives}, kControlBytes);
  }
  return static_cast<int>(take);
}

int Tcp::Receive(TcpEnd& end, char* bytes, size_t most) {
  network_.mutex_.AssertHeld();
  Settle(end);
  if (const size_t have = end.arrived_.size() - end.read_; have > 0) {
    const size_t take = std::min(have, most);
    std::memcpy(bytes, end.arrived_.data() + end.read_, take);
    end.read_ += take;
    if (end.read_ == end.arrived_.size()) {
      end.arrived_.clear();
      end.read_ = 0;
    }
    const EndPtr other = end.other_.lock();
    if (other != nullptr && other->waits_for_room_ &&
        2 * (end.coming_bytes_ + end.arrived_.size() - end.read_) <= network_.options_.window) {
      other->waits_for_room_ = false;
      Push(end.site_, *other, {.kind = Packet::kRoom}, kControlBytes);
    }
    return static_cast<int>(take);
  }
  if (end.error != 0) return -std::exchange(end.error, 0);
  if (end.state_ == TcpEnd::State::kFresh || end.state_ == TcpEnd::State::kListening)
    return -ENOTCONN;
  if (end.fin_came_ || end.stopped_reading_ || end.state_ == TcpEnd::State::kOver) return 0;
  return -EAGAIN;
}

int Tcp::Shutdown(TcpEnd& end, bool reading, bool writing) {
  network_.mutex_.AssertHeld();
  Settle(end);
  if (!end.open()) return -ENOTCONN;
  if (reading) end.stopped_reading_ = true;
  if (writing && !std::exchange(end.fin_sent_, true) && network_.Alive(end.site_)) {
    if (const EndPtr other = end.other_.lock(); other != nullptr)
      Push(end.site_, *other, {.kind = Packet::kFin}, kControlBytes);
  }
  end.Changed();
  return 0;
}

void Tcp::Close(TcpEnd& end) {
  network_.mutex_.AssertHeld();
  if (end.closed_) return;
  Settle(end);
  end.closed_ = true;
  if (end.state_ == TcpEnd::State::kListening) {
    const auto found = listeners_.find({end.own.host, end.own.port});
    if (found != listeners_.end() && found->second.lock().get() == &end) listeners_.erase(found);
    for (const TcpEnd::Waiting& waiting : end.backlog_) {
      Reset(*waiting.end, {});
      waiting.end->closed_ = true;
    }
    end.backlog_.clear();
    return;
  }
  if ((!end.open() && !end.connecting()) || !network_.Alive(end.site_)) return;
  if (end.arrived_.size() > end.read_) {
    Reset(end, {});
  } else if (const EndPtr other = end.other_.lock(); other != nullptr && !end.fin_sent_) {
    Push(end.site_, *other, {.kind = Packet::kFin}, kControlBytes);
  }
  // What is still on its way here finds nobody.
  for (const Packet& packet : end.coming_) {
    if (packet.kind == Packet::kBytes) return Reset(end, packet.due);
  }
}

}  // namespace monograph::simulation
