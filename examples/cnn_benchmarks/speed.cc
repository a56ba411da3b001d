#include "examples/cnn_benchmarks/speed.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace monograph::examples {
namespace {

// Of an even number of values the mean of the two in the middle.
double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Speed SpeedOf(const std::vector<double>& step_seconds, double images_per_step) {
  const auto steps = static_cast<double>(step_seconds.size());
  std::vector<double> speeds;
  for (const double seconds : step_seconds) speeds.push_back(images_per_step / seconds);
  const double mean = std::accumulate(speeds.begin(), speeds.end(), 0.0) / steps;
  const double median = Median(speeds);
  double squares = 0;
  std::vector<double> distances;
  for (const double speed : speeds) {
    squares += (speed - mean) * (speed - mean);
    distances.push_back(std::abs(speed - median));
  }
  return {.mean = images_per_step * steps /
                  std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0),
          .uncertainty = std::sqrt(squares / steps) / std::sqrt(steps),
          .jitter = 1.4826 * Median(std::move(distances))};
}

std::string ToString(const Speed& speed) {
  char text[160];
  std::snprintf(text, sizeof text, "images/sec: %.1f +/- %.1f (jitter = %.1f)", speed.mean,
                speed.uncertainty, speed.jitter);
  return text;
}

}  // namespace monograph::examples
