// Drawing from TensorFlow's streams on CPUs: by the stateless ops, and by nodes with seeds in a
// session that asks for it (executor/random_streams.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "executor/kernel.h"
#include "executor/random_streams.h"
#include "ops/random/philox_stream.h"

namespace monograph::ops::random {

// The stream of a node with seeds, as a GuardedPhiloxRandom of TensorFlow.
class SeededStream {
 public:
  // What TensorFlow's distributions and Multinomial set aside for each number that they draw.
  static constexpr uint64_t kBlocksPerNumber = 256;

  explicit SeededStream(const KernelConstruction& k)
      : key_(static_cast<uint64_t>(k.attr<int64_t>("seed"))),
        high_(static_cast<uint64_t>(k.attr<int64_t>("seed2"))),
        taken_(TakenOf(k)) {}

  // False: the node does not draw from such a stream.
  explicit operator bool() const { return taken_ != nullptr; }
  // The next blocks. To be called once in a run, when nothing can fail any more.
  PhiloxStream Take(uint64_t blocks) const {
    return PhiloxStream(key_, 0, high_).After(taken_->fetch_add(blocks, std::memory_order_relaxed));
  }
  PhiloxStream TakeForNumbers(int64_t count) const {
    return Take(static_cast<uint64_t>(count) * kBlocksPerNumber);
  }

 private:
  const uint64_t key_, high_;
  const std::shared_ptr<RandomStreams::Taken> taken_;
};

// Fills `out` by groups, which any thread may compute. T: as wide as the elements.
template <typename T, typename Distribution>
void Draw(KernelContext& c, const PhiloxStream& stream, const Distribution& distribution,
          Tensor* out) {
  constexpr int64_t kGroup = Distribution::template kGroup<T>;
  const int64_t n = out->elements();
  T* const to = out->data<T>();
  c.ParallelFor((n + kGroup - 1) / kGroup, 60, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      T values[kGroup];
      distribution.template Fill<T>(stream, static_cast<uint64_t>(g), values);
      std::copy_n(values, std::min(kGroup, n - g * kGroup), to + g * kGroup);
    }
  });
}

}  // namespace monograph::ops::random
