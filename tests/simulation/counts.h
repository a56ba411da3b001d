// A graph whose variables say which steps have touched them, and how often.
//
// Each update belongs to a field of four bits of a 64 bit integer, and adds 1 to it in all elements
// of a vector. A value so tells, for every field, how many updates it has seen; elements that
// differ tell of one that was made in part.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "client/session.h"
#include "graph/scope.h"
#include "tests/simulation/draw.h"

namespace monograph::simulation {

class Counts {
 public:
  static constexpr int kFields = 15, kMost = 15;

  // `field` was tried `times` more times; each may have happened or not.
  void Try(int field, int times = 1) { tried_[static_cast<size_t>(field)] += times; }
  // Of these, so many have happened for certain.
  void Confirm(int field, int times = 1) { done_[static_cast<size_t>(field)] += times; }
  // The variable has been set to this value.
  void SetTo(const Tensor& value);
  // All variables are zero again.
  void Forget() { *this = Counts(); }

  // Fails the schedule if `value` cannot be what a variable holds now, or, with `before`, has held
  // at some time. `who` says what was read.
  void Check(const Tensor& value, const std::string& who, bool before = false) const;

 private:
  std::array<int, kFields> tried_{}, done_{};
};

// More steps than there are places for steps in flight.
inline constexpr int64_t kAllPlaces = 80;

// The variable at `variable_device`; for each of the other devices what adds its feed to it, and
// what adds its feed to the value that the variable has at the beginning of the step or later. The
// vectors are short, and go with their headers, or long enough to be transfers of their own.
struct CountingGraph {
  static constexpr int kShort = 8, kLong = 1280;  // 10 KiB are more than what goes with a header

  CountingGraph(const std::string& variable_device, const std::vector<std::string>& devices)
      : CountingGraph(variable_device, devices, Draw(3) == 0 ? kLong : kShort) {}
  CountingGraph(const std::string& variable_device, const std::vector<std::string>& devices,
                int length);
  // What adds `count` to a field.
  Tensor Of(int field, int count = 1) const;

  // Of the variable, as the pool rounds them, at most.
  int64_t bytes() const { return static_cast<int64_t>(sizeof(int64_t)) * elements * 9 / 8 + 64; }

  const int elements;
  Graph graph;
  Output variable, value;
  Operation init;
  struct Member {
    Output feed, sum;
    Operation update;
  };
  std::vector<Member> members;
};

}  // namespace monograph::simulation
