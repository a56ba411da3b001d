// Distributions over the classes [0, range), for the kernels of candidate samplers. From the same
// words of a random stream they draw what TensorFlow's samplers draw.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "executor/kernel.h"
#include "ops/random/philox_stream.h"

namespace monograph::ops::candidate_sampler {

inline constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();

// Numbers of the words of a stream, one behind the other.
class Numbers {
 public:
  explicit Numbers(const random::PhiloxStream& stream) : words_(stream) {}

  float Float() { return random::UnitValue<float>(words_.Next(), 0); }
  double Double() {
    const uint32_t first = words_.Next(), second = words_.Next();
    return random::UnitValue<double>(first, second);
  }
  // Below n, all alike: a word that would make small ones more frequent is drawn again.
  template <typename U>
  U Below(U n) {
    U drawn = Bits<U>();
    if ((n & (n - 1)) == 0) return drawn & (n - 1);
    for (const U surplus = std::numeric_limits<U>::max() % n + 1; drawn < surplus;)
      drawn = Bits<U>();
    return drawn % n;
  }

 private:
  template <typename U>
  U Bits() {
    if constexpr (sizeof(U) == 4) return words_.Next();
    const U low = words_.Next();
    return low | U{words_.Next()} << (sizeof(U) * 4);
  }

  random::PhiloxWords words_;
};

class RangeSampler {
 public:
  virtual ~RangeSampler() = default;

  // Before the first draw. Cancelled once the step is aborted; it is then called again.
  virtual Status Prepare(const KernelContext&) { return Status(); }
  // How many classes can be drawn.
  virtual int64_t drawable() const = 0;
  virtual int64_t Draw(Numbers* numbers) const = 0;
  // That one draw gives this class.
  virtual float Probability(int64_t value) const = 0;
  // These classes were true; some of them only, once the step is aborted.
  virtual void Learn(const KernelContext&, std::span<const int64_t>) {}
};

// The sampler of the node's op and attributes.
Result<std::unique_ptr<RangeSampler>> MakeRangeSampler(const KernelConstruction& construction);

}  // namespace monograph::ops::candidate_sampler
