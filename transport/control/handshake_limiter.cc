#include "transport/control/handshake_limiter.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "transport/control/source_address.h"

namespace monograph::control {
namespace {

// The kernel gives the lowest free number: one so high says that nearly all below are in use.
bool DescriptorsAreScarce(int descriptor, size_t spare) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  spare = std::min<size_t>(spare, limit.rlim_cur / 4);
  return static_cast<rlim_t>(descriptor) >= limit.rlim_cur - spare;
}

}  // namespace

void HandshakeLimiter::Begin(uint64_t id, const std::string& peer, int descriptor, Close close) {
  const std::string source = SourceAddress(peer);
  const auto of_source = of_source_.find(source);
  if (of_source != of_source_.end() &&
      of_source->second.size() >= std::max<size_t>(1, limits_.per_address)) {
    EndOldest(source, std::to_string(of_source->second.size()) + " connections of " + source +
                          " wait for their handshake");
  }
  std::string why = std::to_string(most_) + " connections wait for their handshake";
  if (DescriptorsAreScarce(descriptor, limits_.spare_descriptors)) {
    most_ = waiting_.size() / 2;
    why = "few of this process's descriptors are left (RLIMIT_NOFILE)";
  }
  while (!waiting_.empty() && waiting_.size() >= most_) EndOfGreediest(why);
  waiting_.emplace(id, Waiting{source, std::move(close)});
  of_source_[source].insert(id);
}

void HandshakeLimiter::End(uint64_t id) {
  Remove(id);
  if (waiting_.empty()) most_ = limits_.total;
}

void HandshakeLimiter::Remove(uint64_t id) {
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  const auto ids = of_source_.find(it->second.source);
  ids->second.erase(id);
  if (ids->second.empty()) of_source_.erase(ids);
  waiting_.erase(it);
}

void HandshakeLimiter::EndOldest(const std::string& source, const std::string& why) {
  const uint64_t id = *of_source_.at(source).begin();
  const Close close = std::move(waiting_.at(id).close);
  Remove(id);
  close(ResourceExhausted("gave its place to a newer connection: " + why));
}

// REQUIRES: one waits.
void HandshakeLimiter::EndOfGreediest(const std::string& why) {
  // Of addresses that have as many, the one whose connection has waited longest.
  const auto greediest =
      std::max_element(of_source_.begin(), of_source_.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : *a.second.begin() > *b.second.begin();
      });
  EndOldest(std::string(greediest->first), why);
}

bool HandshakeLimiter::MakeRoom() {
  if (waiting_.empty()) return false;
  EndOfGreediest("this process has no descriptor left (RLIMIT_NOFILE)");
  return true;
}

void HandshakeLimiter::EndAll(const Status& why) {
  of_source_.clear();
  for (auto& [id, waiting] : std::exchange(waiting_, {})) waiting.close(why);
}

}  // namespace monograph::control
