// RefusalLog: what is logged of the connections that a listening port turns away. A flood of them
// costs a few lines: within one interval the first refusal of each address is logged at once, the
// later ones are counted and told in one line when the interval ends. Addresses beyond kAddresses
// share one count.
//
// Threads: every call on one thread, the port's. Time is an argument; the owner sets a timer by
// `due`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"

namespace monograph::control {

class RefusalLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kAddresses = 8;
  static constexpr std::chrono::seconds kInterval{10};

  // `port` begins each line, "control: 127.0.0.1:2222". Without a sink the lines are logged as
  // warnings.
  explicit RefusalLog(std::string port, std::function<void(const std::string& line)> sink = {});

  // `peer` is "host:port"; the port does not count.
  void Add(const std::string& peer, const Status& why, Clock::time_point now = Clock::now());
  // When Flush is to be called; none: nothing has been refused.
  std::optional<Clock::time_point> due() const { return due_; }
  // Tells what was held back, and ends the interval if it is over.
  void Flush(Clock::time_point now = Clock::now());

 private:
  struct Held {
    uint64_t count = 0;  // refusals that were not logged
    Status last;
  };

  const std::string port_;
  const std::function<void(const std::string&)> sink_;
  std::optional<Clock::time_point> due_;  // the end of the interval
  std::map<std::string, Held> addresses_;
  Held others_;
};

}  // namespace monograph::control
