#include "tools/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/terminal.h"

namespace monograph {
namespace {

constexpr auto kBetween = std::chrono::milliseconds(100);

// "0:26", "1:02:03"
std::string TimeLeft(double seconds) {
  const auto whole = static_cast<long long>(std::min(seconds, 1e9));
  char text[48];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  }
  return text;
}

}  // namespace

ProgressLine::ProgressLine(int64_t first, int64_t last, int64_t images_per_step)
    : first_(first),
      last_(last),
      images_per_step_(images_per_step),
      terminal_(IsTerminal(STDOUT_FILENO)) {}

void ProgressLine::Show(int64_t step, double loss) {
  if (!terminal_ || step <= first_) return;
  const Clock::time_point now = Clock::now();
  if (shown_at_ != Clock::time_point() && now - shown_at_ < kBetween) return;
  shown_at_ = now;
  const double seconds = std::max(1e-9, std::chrono::duration<double>(now - begin_).count());
  const double per_second = static_cast<double>(step - first_) / seconds;
  char text[160];
  std::snprintf(
      text, sizeof text, "step %lld/%lld  loss %.3f  images/sec %.1f  ETA %s",
      static_cast<long long>(step), static_cast<long long>(last_), loss,
      per_second * static_cast<double>(images_per_step_),
      TimeLeft(static_cast<double>(std::max<int64_t>(0, last_ - step)) / per_second).c_str());
  // A line that wraps could not be rewritten.
  const int columns = TerminalColumns(STDOUT_FILENO, 80) - 1;
  const bool colour = UsesColour(STDOUT_FILENO);
  std::printf("\r\x1b[K%s%.*s%s", colour ? "\x1b[36m" : "", columns, text, colour ? "\x1b[0m" : "");
  std::fflush(stdout);
  shown_ = true;
}

void ProgressLine::Clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stdout);
  std::fflush(stdout);
  shown_ = false;
}

}  // namespace monograph
