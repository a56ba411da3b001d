// Network: simulated machines, the links between them, and connections that go over these, in
// memory. The data plane's substitute speaks over it by messages (sim_transport.h), the control
// plane by sockets (sockets.h, tcp.h); a scenario slows, cuts and heals its links and crashes its
// machines.
//
// A connection is what TCP is: messages come in order, each once, or the connection ends; what a
// cut link does not let through is held, and comes after the heal unless the connection has been
// given up before. Each has two lanes, which do not wait for each other.
//
// A machine has a number, as threads that belong to it know it (tests/simulation/host.h), and a
// name, as addresses have it. It lives until it is crashed, and again after a restart; what is of
// an earlier life sends nothing and gets nothing, whatever its objects do.
//
// Threads: any. Receivers run on the loops that they came with. Every choice is drawn from the
// seed, under one lock.
#pragma once

#include <any>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "tests/simulation/loop.h"

namespace monograph::simulation {

class Tcp;

// Why a connection ends whose other side's process was killed.
inline constexpr char kGone[] = "connection reset by the end of its process";

// One direction between two machines.
struct Link {
  std::chrono::nanoseconds delay = std::chrono::microseconds(50);
  std::chrono::nanoseconds jitter = std::chrono::microseconds(30);  // at most so much is added
  double bytes_per_second = 1e9;
};

// A machine in one of its lives.
struct Site {
  int host = 0;
  uint64_t life = 0;
};

// What one end of a connection gets. On its loop.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void OnOpen() {}  // of the end that dialled
  virtual void OnMessage(const std::any& message) = 0;
  // The last call; not after the end's own Close.
  virtual void OnEnd(const Status& why) = 0;
};

class Network {
 private:
  struct Connection;

 public:
  struct Options {
    uint64_t seed = 1;
    Link link = {};
    // How long a connection holds what does not get through, and a dial goes on trying.
    std::chrono::milliseconds patience{10000};
    // Of a stream: so many bytes may be on their way or unread.
    size_t window = size_t{64} << 10;
    // Machines have addresses of loopback, as if they were one, so that no key is needed; or they
    // have not.
    bool loopback = true;
  };

  // One end of a connection. Cheap to copy; sending after its end does nothing.
  class End {
   public:
    End() = default;
    // `lane` is 0 or 1.
    void Send(std::any message, size_t bytes, int lane = 0) const;
    // What was sent on lane 0 still goes; then the other end ends with `why`.
    void Close(const std::string& why) const;
    int peer_host() const;  // REQUIRES: not a default one

   private:
    friend class Network;
    End(std::shared_ptr<Connection> connection, int side)
        : connection_(std::move(connection)), side_(side) {}
    std::shared_ptr<Connection> connection_;
    int side_ = 0;
  };
  // Takes a connection by returning a receiver; refuses it by returning none. On its loop.
  using Accept = std::function<std::shared_ptr<Receiver>(const std::any& hello, End end)>;

  // Becomes Current. Machine 0, "client", is there.
  explicit Network(Options options);
  ~Network();  // REQUIRES: nobody uses it any more
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  // REQUIRES: there is one.
  static Network& Current();
  static bool Exists();

  int AddHost(const std::string& name);
  // Also by its address. -1: there is no such machine.
  int HostNamed(const std::string& name) const;
  const std::string& NameOf(int host) const;
  std::string AddressOf(int host) const;  // "127.1.0.3"
  // The first machine's; the others' follow it.
  uint32_t first_address() const { return options_.loopback ? 0x7F010000 : 0x0A010000; }
  Site SiteOf(int host) const;
  uint64_t Random(uint64_t bound);  // less than bound, which is not 0

  // ---- what a scenario does to it

  void SetLink(int from, int to, const Link& link);
  void CutOneWay(int from, int to);
  void HealOneWay(int from, int to);
  void Cut(int a, int b);
  void Heal(int a, int b);
  void Isolate(int host);  // cuts all its links
  void HealAll();
  // What connections for data bring comes twice in a row, until the road is healed.
  void Repeat(int from, int to);
  // Every connection between them ends at both sides, and what is on its way is lost.
  void Break(int a, int b);
  // What connections for data between them that are over brought last comes again, on those that
  // there are now, as if somebody had kept it. How many messages came so.
  int Replay(int from, int to);
  // The process ends: its peers' connections are reset. Or the machine does: they hear nothing.
  void Kill(int host) { EndLife(host, /*told=*/true); }
  void Crash(int host) { EndLife(host, /*told=*/false); }
  void Restart(int host);
  bool IsUp(int host) const;
  bool Lives(const Site& site) const;

  // ---- what the substitutes use

  // False if the port of that machine is taken, or its life over.
  bool Listen(const Site& site, const std::string& port, std::shared_ptr<Loop> loop, Accept accept);
  void StopListening(const Site& site, const std::string& port);
  // The end can be used at once: what is sent before OnOpen follows the hello. OnEnd with
  // NotFound if there is no such machine, with Unavailable if nobody listens, if the connection is
  // refused, or if the machine is not reached in time. `kept`: what it brings may be replayed.
  End Dial(const Site& from, const std::string& host, const std::string& port, std::any hello,
           std::shared_ptr<Loop> loop, std::shared_ptr<Receiver> receiver, bool kept = false);
  // What a process has one of, made when it is first asked for. It ends with the network.
  std::shared_ptr<void> OfProcess(const Site& site,
                                  const std::function<std::shared_ptr<void>()>& make);

  // Messages that came, by now.
  uint64_t delivered() const;

 private:
  friend class Sockets;
  friend class Tcp;
  struct Item;
  struct Wire;
  struct Listener {
    std::shared_ptr<Loop> loop;
    Accept accept;
    uint64_t life = 0;
  };
  struct Host {
    std::string name;
    uint64_t life = 1;
    bool up = true;
    bool silent = false;  // since the whole machine is down
    std::map<std::string, Listener> ports;
  };
  struct Road {  // one direction between two machines
    Link link;
    bool cut = false, repeats = false;
    uint64_t changes = 0;  // cuts and heals
    Clock::time_point cut_at, busy_until;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  uint64_t RandomLocked(uint64_t bound) MG_REQUIRES(mutex_);
  Clock::duration Within(Clock::duration time) MG_REQUIRES(mutex_);
  bool Alive(const Site& site) const MG_REQUIRES(mutex_);
  Road& RoadOf(int from, int to) MG_REQUIRES(mutex_);
  // When what leaves now arrives.
  Clock::time_point Arrival(Road* road, size_t bytes) MG_REQUIRES(mutex_);

  void Send(const ConnectionPtr& connection, int side, std::any message, size_t bytes, int lane);
  void Close(const ConnectionPtr& connection, int side, const std::string& why);
  void Push(const ConnectionPtr& connection, int to, int lane, Item item, size_t bytes)
      MG_REQUIRES(mutex_);
  void Schedule(const ConnectionPtr& connection, int to, int lane) MG_REQUIRES(mutex_);
  void Arrive(const ConnectionPtr& connection, int to, int lane);
  // What came to a side that is over, for replays.
  void Keep(const ConnectionPtr& connection, int side) MG_REQUIRES(mutex_);
  // Ends one side: its receiver hears of it.
  void EndSide(const ConnectionPtr& connection, int side, const Status& why) MG_REQUIRES(mutex_);
  void TryDial(const ConnectionPtr& connection, const std::string& host, const std::string& port,
               const std::any& hello, Clock::time_point give_up);
  void Open(const ConnectionPtr& connection, const std::any& hello, const Accept& accept);
  // Ends connections over a road that stays as it is for the network's patience.
  void WatchRoad(int from, int to) MG_REQUIRES(mutex_);
  void CutLocked(int from, int to) MG_REQUIRES(mutex_);
  void HealLocked(int from, int to) MG_REQUIRES(mutex_);
  void EndLife(int host, bool told);
  void ForgetEnded() MG_REQUIRES(mutex_);
  std::vector<ConnectionPtr> Between(int a, int b) MG_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  uint64_t random_ MG_GUARDED_BY(mutex_);
  uint64_t delivered_ MG_GUARDED_BY(mutex_) = 0;
  std::deque<Host> hosts_ MG_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, Road> roads_ MG_GUARDED_BY(mutex_);
  // In the order of their dials; those that are over among them until they are forgotten.
  std::vector<ConnectionPtr> connections_ MG_GUARDED_BY(mutex_);
  // What connections that are over brought last, by direction.
  std::map<std::pair<int, int>, std::deque<std::any>> kept_ MG_GUARDED_BY(mutex_);
  std::map<std::pair<int, uint64_t>, std::shared_ptr<void>> of_processes_ MG_GUARDED_BY(mutex_);
  const std::unique_ptr<Tcp> tcp_;  // all of it under mutex_
};

}  // namespace monograph::simulation
