// Log lines to standard error: "I 14:03:07.123 message". Thread-safe, a line at a time.
// The level comes from --log_level of the programs or from MONOGRAPH_LOG_LEVEL (debug, info,
// warning, error, off).
#pragma once

#include <string_view>

#include "base/status.h"

namespace monograph {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void SetLogLevel(LogLevel level);
Result<LogLevel> ParseLogLevel(std::string_view name);
bool LogEnabled(LogLevel level);

void LogDebug(std::string_view message);
void LogInfo(std::string_view message);
void LogWarning(std::string_view message);
void LogError(std::string_view message);

}  // namespace monograph
