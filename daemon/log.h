// Structured log lines: an event in plain words and fields. Text or JSON, to stderr. Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace shunt::daemon {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

struct LogField {
  LogField(const char* key, std::string_view value) : key(key), text(value), quoted(true) {}
  LogField(const char* key, const std::string& value) : LogField(key, std::string_view(value)) {}
  LogField(const char* key, const char* value) : LogField(key, std::string_view(value)) {}
  template <typename T>
  requires std::is_arithmetic_v<T> LogField(const char* key, T value)
      : key(key), text(std::to_string(value)), quoted(false) {}

  const char* key;
  std::string text;
  bool quoted;
};

// `level` and `format` as in Config. Call once, before any thread is started.
void InitLog(std::string_view level, std::string_view format);

// From now on; any thread.
void SetLogLevel(std::string_view level);

bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogError(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, event, fields);
}
inline void LogWarn(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, event, fields);
}

// The last warnings and errors that were logged, newest first.
struct LogRecord {
  double unix_seconds = 0;
  LogLevel level = LogLevel::kWarn;
  std::string line;  // as text, whatever the format of the log
};
std::vector<LogRecord> LastTroubles();

// The line without time and level: what Log writes, for tests.
std::string FormatLogLine(bool json, std::string_view event,
                          std::initializer_list<LogField> fields);

}  // namespace shunt::daemon
