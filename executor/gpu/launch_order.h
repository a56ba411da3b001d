// LaunchOrder: in which order the devices of a cluster launch the collectives that they meet in, so
// that any two of them launch those that they share in the same order, whichever comes first where.
// (Two that are launched in different orders would wait for each other on the GPUs for ever.)
//
// Each device proposes the next number of its own clock; the greatest of the proposals is the
// collective's number, and it is launched when no other one here has, or may get, a smaller one
// (Skeen's total order multicast, in Birman and Joseph, "Reliable Communication in the Presence of
// Failures", 1987). What is proposed and not decided holds up all that come after it, so nothing
// that it waits for may wait for one of these. Not thread-safe.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>

namespace monograph {

// The same on all members; different for any two collectives that a device waits with.
struct CollectiveName {
  uint64_t session = 0, step = 0;
  int32_t group = 0, instance = 0;
  friend auto operator<=>(const CollectiveName&, const CollectiveName&) = default;
};

template <typename T>
class LaunchOrder {
 public:
  using Place = std::pair<uint64_t, CollectiveName>;

  // A proposal for the collective `what`.
  Place Propose(const CollectiveName& name, T what) {
    const Place place{++clock_, name};
    waiting_.emplace(place, Entry{std::move(what), false});
    return place;
  }
  // Its number is known. Returns its new place.
  Place Decide(const Place& place, uint64_t number) {
    clock_ = std::max(clock_, number);
    auto node = waiting_.extract(place);
    node.key().first = number;
    node.mapped().decided = true;
    return waiting_.insert(std::move(node)).position->first;
  }
  void Remove(const Place& place) { waiting_.erase(place); }
  // The next one to be launched; nullptr: none can be yet.
  const T* Next() const {
    if (waiting_.empty() || !waiting_.begin()->second.decided) return nullptr;
    return &waiting_.begin()->second.what;
  }

 private:
  struct Entry {
    T what;
    bool decided = false;
  };
  uint64_t clock_ = 0;
  std::map<Place, Entry> waiting_;
};

}  // namespace monograph
