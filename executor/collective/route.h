// Route: which way a reduction goes, and what each task does in it. Private to the executor folder.
//
// The elements are dealt out to lanes. In each lane the ranks meet at stations, in rank order: a
// station merges the inputs of its ranks into what the station before it sends (the prefix), and
// sends the result to the next one. The last station has the sum, which goes back from task to
// task. So every element is merge(...merge(merge(r0, r1), r2)..., rN-1) on every route.
//
//   whole    each member sends its input to all; every task is a lane and a station for itself.
//   shares   a lane per task, one station in each: the task, for all ranks.
//
//            task 0   s0 = a0+b0+c0        task 1   s1 = a1+b1+c1        task 2   s2 = a2+b2+c2
//
//   chain    a station per host and lane, one after the other; sums go the other way.
//
//            host 0 (a, b)  ── a+b ──►  host 1 (c, d)  ── a+b+c+d ──►  host 2 (e, f)
//                 ▲────────── sum ───────────┘ ▲──────────── sum ───────────┘
//
//            Tasks of a host (ranks that follow each other and lie on one host) send their inputs
//            to its station by shared memory, and get the sums from it; lane i has its station on
//            the i-th of them.
//
// Floors. B bytes, T tasks on H hosts, K of them on each, a member per task. "Wire" is what one
// host sends to others, "hops" the messages after each other that the first and last byte need.
//
//            wire                     each task sends        hops       peers of a task
//   whole    K (T-K) B                (T-1) B                1          T-1
//   shares   2 K B (T-K)/T            2 B (T-1)/T            2          T-1
//   chain    2 B, B at both ends      at most 2 B + in-host  2 H        2, and those on its host
//
// Choice. Small: whole, as long as what a task sends stays small. On one host, or with few tasks
// that have a host each: shares, which needs the fewest hops. Where tasks share the wire of a host,
// or are many: the chain, once it has so many pieces that filling it takes little of its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/collective/collective.h"

namespace monograph::collective {

inline constexpr size_t kSmallBytes = 64 << 10;       // of a whole input, at most
inline constexpr size_t kSmallSentBytes = 256 << 10;  // of a task's copies of it together, at most
inline constexpr size_t kPieceBytes = 512 << 10;      // what is merged and moved at a time, at most
inline constexpr size_t kChainPieceBytes = 64 << 10;  // in a chain, at least
inline constexpr size_t kChainFill = 4;  // a chain has so many pieces per host and lane, at least
inline constexpr size_t kManyTasks = 8;  // with a host each

struct Station {
  int task = 0;            // index into the members' tasks
  int begin = 0, end = 0;  // merges ranks [begin, end)
};

struct Lane {
  std::vector<Station> stations;            // in rank order
  std::vector<std::vector<int>> passes_on;  // by task: whom it sends each sum to
};

struct Route {
  enum class Way : uint8_t { kWhole, kShares, kChain } way = Way::kShares;
  size_t piece_bytes = kPieceBytes;  // at most
  std::vector<Lane> lanes;           // of kWhole: this task's alone
};

// The route of `bytes` as the task `self` sees it; the choice is the same on all. `hosts` is asked
// if it matters: by task, equal numbers for tasks of one host; 0: not known, taken for one.
Route ChooseRoute(const CollectiveMembers& members, int self, size_t bytes,
                  const std::function<std::vector<uint64_t>()>& hosts);

}  // namespace monograph::collective
