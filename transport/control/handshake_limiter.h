// HandshakeLimiter: the connections of a listening port whose peers have not yet shown who they
// are. Anybody can open those, so few may wait: in total, from one address (SourceAddress), and of
// the process's descriptors. A new one is never turned away; where it is one too many it ends an
// older one: the oldest of the address that has the most. A true peer needs milliseconds, and tries
// again when it was ended; junk that waits makes room.
//
// Threads: every call on one thread, the port's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/status.h"

namespace monograph::control {

class HandshakeLimiter {
 public:
  struct Limits {
    size_t total = 256;
    size_t per_address = 64;
    // Descriptors that those who wait leave for peers that are known, files and the like; at most
    // a quarter of what the process may open. When fewer are left, half of those who wait have to
    // go, and no more than that may wait until there was a moment without any.
    size_t spare_descriptors = 64;
  };
  // Ends a connection that waits. Called at most once, within a call of the limiter, which it must
  // not call.
  using Close = std::function<void(const Status& why)>;

  explicit HandshakeLimiter(Limits limits) : limits_(limits), most_(limits.total) {}

  // A connection was accepted. `id` is greater than all before; `peer` is "host:port"; `descriptor`
  // the connection's.
  void Begin(uint64_t id, const std::string& peer, int descriptor, Close close);
  // Its handshake is over, well or not. An id that was ended or is unknown is ignored.
  void End(uint64_t id);
  // There was no descriptor for another one: ends one that waits, so that the next accept has its
  // descriptor. False if none waits.
  bool MakeRoom();
  // Ends all, when the port closes.
  void EndAll(const Status& why);

  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    std::string source;
    Close close;
  };
  void Remove(uint64_t id);
  void EndOldest(const std::string& source, const std::string& why);
  void EndOfGreediest(const std::string& why);

  const Limits limits_;
  size_t most_;  // how many may wait: limits_.total, or fewer since descriptors were scarce
  std::map<uint64_t, Waiting> waiting_;                  // the oldest first
  std::map<std::string, std::set<uint64_t>> of_source_;  // none is empty
};

}  // namespace monograph::control
