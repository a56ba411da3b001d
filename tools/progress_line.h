// ProgressLine: on a terminal, a line at the end of what a program prints that rewrites itself:
//
//   step 420/2000  loss 0.412  images/sec 5991.3  ETA 0:26
//
// Nothing where standard output is a pipe or a file: what programs read stays as it is.
#pragma once

#include <chrono>
#include <cstdint>

namespace monograph {

class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  // Rates count from `first`, the step that has been made already, and from now.
  ProgressLine(int64_t first, int64_t last, int64_t images_per_step);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // At most ten times a second, so that it costs nothing.
  void Show(int64_t step, double loss);
  // Before another line is printed.
  void Clear();

 private:
  const int64_t first_, last_, images_per_step_;
  const bool terminal_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_at_;
  bool shown_ = false;
};

}  // namespace monograph
