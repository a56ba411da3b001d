// Durations as text.
#pragma once

#include <chrono>
#include <string>

namespace monograph {

std::string Seconds(std::chrono::nanoseconds duration);  // "0.25 s"

}  // namespace monograph
