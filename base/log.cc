#include "base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "base/printable.h"
#include "base/terminal.h"

namespace monograph {
namespace {

// Read and written relaxed: a setting, by which nothing else is published.
std::atomic<int>& Level() {
  static std::atomic<int> level = [] {
    const char* name = std::getenv("MONOGRAPH_LOG_LEVEL");
    if (name == nullptr) return static_cast<int>(LogLevel::kInfo);
    Result<LogLevel> parsed = ParseLogLevel(name);
    return static_cast<int>(parsed.ok() ? parsed.value() : LogLevel::kInfo);
  }();
  return level;
}

void Write(LogLevel level, char mark, std::string_view message) {
  if (!LogEnabled(level)) return;
  timeval now{};
  gettimeofday(&now, nullptr);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char head[32];
  const int length =
      std::snprintf(head, sizeof head, "%c %02d:%02d:%02d.%03d ", mark, parts.tm_hour, parts.tm_min,
                    parts.tm_sec, static_cast<int>(now.tv_usec / 1000));
  // On a terminal: over a line of progress that is there, warnings yellow and errors red.
  static const bool terminal = IsTerminal(STDERR_FILENO), colour = UsesColour(STDERR_FILENO);
  const bool coloured = colour && level >= LogLevel::kWarning;
  std::string line(terminal ? "\r\x1b[K" : "");
  if (coloured) line.append(level == LogLevel::kWarning ? "\x1b[33m" : "\x1b[31m");
  line.append(head, static_cast<size_t>(length));
  line.append(Printable(message));
  line.append(coloured ? "\x1b[0m\n" : "\n");
  // One write call a line: lines of several threads and processes do not mix.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void SetLogLevel(LogLevel level) {
  Level().store(static_cast<int>(level), std::memory_order_relaxed);
}

Result<LogLevel> ParseLogLevel(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return InvalidArgument("unknown log level '" + std::string(name) +
                         "'; known are debug, info, warning, error, off");
}

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= Level().load(std::memory_order_relaxed);
}

void LogDebug(std::string_view message) { Write(LogLevel::kDebug, 'D', message); }
void LogInfo(std::string_view message) { Write(LogLevel::kInfo, 'I', message); }
void LogWarning(std::string_view message) { Write(LogLevel::kWarning, 'W', message); }
void LogError(std::string_view message) { Write(LogLevel::kError, 'E', message); }

}  // namespace monograph
