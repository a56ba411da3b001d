// Tcp: the streams of bytes between simulated machines, as the kernels at both ends have them. What
// descriptors are for it stands in sockets.h; over which roads it goes, and when these are cut, in
// network.h.
//
// Nothing here has a thread. Packets lie at the end to which they are on their way, each with the
// time when it arrives; whoever looks at an end first lets it have what has come until then
// (Settle), and knows from NextChange when to look again. Before a road changes the network lets
// all ends over it settle, so that a cut holds what had not arrived by then, and nothing else.
//
// As on Linux: a segment that comes to a closed end is answered with a reset; closing with unread
// bytes resets; what came before a reset can still be read; a lost SYN is sent again; a sender has
// a window, and hears of room in it from the receiver.
//
// All calls are made under the lock of the network, whose friend this is.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/simulation/network.h"

namespace monograph::simulation {

// A machine and a port.
struct TcpAddress {
  int host = -1;
  uint16_t port = 0;
  friend bool operator==(const TcpAddress&, const TcpAddress&) = default;
};

class TcpEnd;

// Who waits for changes of an end.
class TcpWatcher {
 public:
  virtual ~TcpWatcher() = default;
  // Something has changed, or may change earlier than NextChange said.
  virtual void Look() = 0;
};

class Tcp {
 public:
  using EndPtr = std::shared_ptr<TcpEnd>;

  explicit Tcp(Network* network) : network_(*network) {}

  // ---- what sockets do. Numbers as system calls return them: negative ones are of errno.

  EndPtr Open(int host);
  int Bind(const EndPtr& end, TcpAddress address);
  int Listen(const EndPtr& end);
  int Connect(const EndPtr& end, TcpAddress to);
  // Null: none waits.
  EndPtr Accept(TcpEnd& end);
  int Send(TcpEnd& end, std::string_view bytes);
  int Receive(TcpEnd& end, char* bytes, size_t most);
  int Shutdown(TcpEnd& end, bool reading, bool writing);
  void Close(TcpEnd& end);

  // Lets the end have what has arrived by now.
  void Settle(TcpEnd& end);
  // When it should be looked at again, if nobody calls Look before.
  Clock::time_point NextChange(const TcpEnd& end) const;
  // What poll(2) says: POLLIN and so on.
  unsigned Readiness(const TcpEnd& end) const;
  // The end with these addresses that some descriptor names.
  const TcpEnd* Find(TcpAddress own, TcpAddress peer) const;

  // ---- what happens to machines and roads

  void SettleAll(int a, int b);
  // Those that go over a road that was cut, healed or is about to be watched.
  void LookAll(int a, int b);
  void Heal(int from, int to, Clock::duration pause);
  void Break(int a, int b);
  // The process ends: its kernel closes what it had open. Or the machine does.
  void EndLife(int host, bool told);

 private:
  struct Packet;
  friend class TcpEnd;

  // A packet of so many bytes from `from` to `to`, which it goes to.
  void Push(const Site& from, TcpEnd& to, Packet packet, size_t bytes);
  void Reset(TcpEnd& from, Clock::time_point not_before);
  void Try(const EndPtr& end);
  void Fail(TcpEnd& end, int error);
  bool Cut(int from, int to) const;
  Clock::time_point CutSince(int a, int b) const;  // the earliest; max(): it is not
  size_t Room(const TcpEnd& end) const;
  std::vector<EndPtr> Between(int a, int b);
  uint16_t FreePort(int host);

  Network& network_;
  std::vector<std::weak_ptr<TcpEnd>> ends_;  // in the order in which they were made
  size_t forget_at_ = 64;
  std::map<std::pair<int, uint16_t>, std::weak_ptr<TcpEnd>> listeners_;
  std::map<int, uint16_t> last_port_;
};

// One end of a connection, or what listens for some.
class TcpEnd {
 public:
  TcpAddress own, peer;
  TcpWatcher* watcher = nullptr;
  // Grows when the end becomes readable, writable or broken, as edges of epoll(7) do.
  uint64_t changes = 0;
  int error = 0;  // told once
  bool open() const { return state_ == State::kOpen; }
  bool established() const { return open() && !fin_came_ && !fin_sent_; }
  bool connecting() const { return state_ == State::kConnecting; }

 private:
  friend class Tcp;
  enum class State {
    kFresh,       // neither connected nor listening
    kListening,   //
    kConnecting,  // its SYN, or the answer, is on its way
    kOpen,        // connected; one direction may have ended
    kOver,        // reset, timed out, or closed
  };
  struct Waiting {
    std::shared_ptr<TcpEnd> end;
    Clock::time_point due;
  };

  void Changed() {
    ++changes;
    if (watcher != nullptr) watcher->Look();
  }

  Site site_;
  State state_ = State::kFresh;
  std::weak_ptr<TcpEnd> self_, other_;
  std::deque<Tcp::Packet> coming_;
  Clock::time_point latest_;  // when the last of them arrives
  std::string arrived_;
  size_t read_ = 0;          // of arrived_
  size_t coming_bytes_ = 0;  // in coming_
  bool closed_ = false;      // nobody has it any more
  bool fin_came_ = false, fin_sent_ = false, stopped_reading_ = false;
  bool waits_for_room_ = false;  // a send found its window full
  std::deque<Waiting> backlog_;  // of one that listens
  bool backlog_seen_ = false;    // its front has been told
  Clock::time_point try_at_, dial_until_;
  Clock::time_point gives_up_ = Clock::time_point::max();
};

}  // namespace monograph::simulation
