// The only file that sees spdlog.
#include "daemon/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace shunt::daemon {
namespace {

constexpr size_t kTroublesMax = 50;
constexpr size_t kTroubleBytesMax = 600;

bool g_json = false;  // written before any thread starts
std::mutex g_troubles_mutex;
std::deque<LogRecord> g_troubles;  // oldest first

void Remember(LogLevel level, std::string line) {
  if (line.size() > kTroubleBytesMax) line = line.substr(0, kTroubleBytesMax) + "...";
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::lock_guard lock(g_troubles_mutex);
  g_troubles.push_back({now.count(), level, std::move(line)});
  if (g_troubles.size() > kTroublesMax) g_troubles.pop_front();
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Names and reasons come from clients: nothing in them may end the line or the quotes, or reach a
// terminal.
void AppendQuoted(std::string* line, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  line->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line->push_back('\\');
      line->push_back(c);
    } else if (c == '\n') {
      line->append("\\n");
    } else if (byte < 0x20 || byte == 0x7f) {
      line->append("\\u00");
      line->push_back(kHex[byte >> 4]);
      line->push_back(kHex[byte & 15]);
    } else {
      line->push_back(c);
    }
  }
  line->push_back('"');
}

bool Plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || static_cast<unsigned char>(c) >= 0x7f)
      return false;
  }
  return true;
}

spdlog::level::level_enum LevelOf(std::string_view level) {
  return spdlog::level::from_str(std::string(level == "warn" ? "warning" : level));
}

}  // namespace

void SetLogLevel(std::string_view level) {
  spdlog::default_logger_raw()->set_level(LevelOf(level));
}

void InitLog(std::string_view level, std::string_view format) {
  g_json = format == "json";
  auto logger =
      std::make_shared<spdlog::logger>("shuntd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(LevelOf(level));
  logger->flush_on(spdlog::level::trace);
  logger->set_pattern(g_json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})"
                             : "%Y-%m-%dT%H:%M:%S.%fZ %l %v",
                      spdlog::pattern_time_type::utc);
  spdlog::set_default_logger(std::move(logger));
}

bool LogEnabled(LogLevel level) {
  return spdlog::default_logger_raw()->should_log(ToSpdlog(level));
}

std::string FormatLogLine(bool json, std::string_view event,
                          std::initializer_list<LogField> fields) {
  std::string line;
  if (json) {
    line = "\"event\":";
    AppendQuoted(&line, event);
    for (const LogField& field : fields) {
      line += ",\"";
      line += field.key;
      line += "\":";
      if (field.quoted) {
        AppendQuoted(&line, field.text);
      } else {
        line += field.text;
      }
    }
    return line;
  }
  line = event;
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    if (!field.quoted || Plain(field.text)) {
      line += field.text;
    } else {
      AppendQuoted(&line, field.text);
    }
  }
  return line;
}

std::vector<LogRecord> LastTroubles() {
  const std::lock_guard lock(g_troubles_mutex);
  return {g_troubles.rbegin(), g_troubles.rend()};
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level >= LogLevel::kWarn) Remember(level, FormatLogLine(/*json=*/false, event, fields));
  if (!LogEnabled(level)) return;
  const std::string line = FormatLogLine(g_json, event, fields);
  spdlog::default_logger_raw()->log(ToSpdlog(level),
                                    spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace shunt::daemon
