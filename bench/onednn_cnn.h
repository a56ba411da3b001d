// One training step of the MNIST CNN as oneDNN primitives called back to back, one thread: the
// floor of ours. There is no graph: blocked layouts throughout, ReLU fused, all memory allocated
// before, on huge pages; Adam is one loop per parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace monograph::bench {

// Numbers between -scale and scale that look random.
float CnnPattern(size_t i, float scale);

class OnednnCnn {
 public:
  // With `bfloat16` images, weights and what layers give are that; Adam updates floats.
  OnednnCnn(int64_t batch, int64_t fc, bool bfloat16 = false);
  ~OnednnCnn();
  void Step();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph::bench
