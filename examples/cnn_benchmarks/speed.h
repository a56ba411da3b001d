// The speed of a training, as tf_cnn_benchmarks tells it.
#pragma once

#include <string>
#include <vector>

namespace monograph::examples {

struct Speed {
  double mean = 0;         // images per second of all steps together
  double uncertainty = 0;  // standard error of the mean of the steps' speeds
  double jitter = 0;  // 1.4826 times the median distance of the steps' speeds from their median
};

// Of steps that took so many seconds each. REQUIRES: there is one.
Speed SpeedOf(const std::vector<double>& step_seconds, double images_per_step);

// "images/sec: 12.3 +/- 0.1 (jitter = 0.4)"
std::string ToString(const Speed& speed);

}  // namespace monograph::examples
