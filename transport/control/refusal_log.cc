#include "transport/control/refusal_log.h"

#include <utility>

#include "base/log.h"
#include "transport/control/source_address.h"

namespace monograph::control {
namespace {

std::string Times(uint64_t count, const std::string& more) {
  return std::to_string(count) + more + (count == 1 ? " connection" : " connections");
}

}  // namespace

RefusalLog::RefusalLog(std::string port, std::function<void(const std::string&)> sink)
    : port_(std::move(port)),
      sink_(sink ? std::move(sink) : [](const std::string& line) { LogWarning(line); }) {}

void RefusalLog::Add(const std::string& peer, const Status& why, Clock::time_point now) {
  Flush(now);
  if (!due_) due_ = now + kInterval;
  const std::string source = SourceAddress(peer);
  const auto known = addresses_.find(source);
  if (known == addresses_.end() && addresses_.size() < kAddresses) {
    addresses_.emplace(source, Held{});
    sink_(port_ + " refused a connection: " + why.ToString());
    return;
  }
  Held& held = known == addresses_.end() ? others_ : known->second;
  ++held.count;
  held.last = why;
}

void RefusalLog::Flush(Clock::time_point now) {
  if (!due_ || now < *due_) return;
  due_.reset();
  for (const auto& [source, held] : std::exchange(addresses_, {})) {
    if (held.count == 0) continue;
    sink_(port_ + " refused " + Times(held.count, " more") + " of " + source + " within " +
          std::to_string(kInterval.count()) + " s; the last: " + held.last.ToString());
  }
  if (const Held held = std::exchange(others_, {}); held.count > 0) {
    sink_(port_ + " refused " + Times(held.count, "") + " of other addresses within " +
          std::to_string(kInterval.count()) + " s; the last: " + held.last.ToString());
  }
}

}  // namespace monograph::control
