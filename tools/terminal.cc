#include "tools/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"

namespace shunt::tools {
namespace {

constexpr std::string_view kGood[] = {"up", "ready", "ok", "connected", "serving"};
constexpr std::string_view kBad[] = {"failed", "down", "refused", "lost"};
constexpr std::string_view kBetween[] = {"joining",  "warning", "draining", "drained",
                                         "stopping", "new",     "calling"};

std::string Dressed(const char* code, std::string_view text) {
  return absl::StrCat("\033[", code, "m", absl::string_view(text.data(), text.size()), "\033[0m");
}

bool Set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

volatile sig_atomic_t g_signalled = 0;
termios g_before;
bool g_has_keys = false;

void Say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

bool StdoutIsTerminal() { return ::isatty(STDOUT_FILENO) == 1; }

Style Style::OfStdout() {
  Style style;
  const char* term = std::getenv("TERM");
  style.color = StdoutIsTerminal() && !Set("NO_COLOR") && term != nullptr &&
                std::string_view(term) != "dumb" && *term != '\0';
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!Set(name)) continue;
    std::string locale = std::getenv(name);
    std::transform(locale.begin(), locale.end(), locale.begin(), ::tolower);
    style.lines =
        locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
    break;
  }
  return style;
}

std::string Style::Bold(std::string_view text) const {
  return color ? Dressed("1", text) : std::string(text);
}

std::string Style::Dim(std::string_view text) const {
  return color ? Dressed("2", text) : std::string(text);
}

std::string Style::State(std::string_view word, std::string_view padded) const {
  const auto is = [word](const auto& words) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
  };
  if (!color) return std::string(padded);
  if (is(kGood)) return Dressed("32", padded);
  if (is(kBad)) return Dressed("31", padded);
  if (is(kBetween)) return Dressed("33", padded);
  return std::string(padded);
}

Screen::Screen() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_signalled = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  if (::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &g_before) == 0) {
    termios keys = g_before;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    g_has_keys = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  Say("\033[?1049h\033[?25l");  // the other page, no cursor
}

Screen::~Screen() {
  Say("\033[?25h\033[?1049l");
  if (g_has_keys) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

void Screen::Draw(std::string_view text) {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size.ws_row = 24;
  std::string page = "\033[H";
  int rows = size.ws_row;
  while (!text.empty() && rows-- > 0) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    // Long lines are cut by the terminal: it does not wrap meanwhile.
    absl::StrAppend(&page, absl::string_view(line.data(), line.size()), "\033[K",
                    rows > 0 ? "\n" : "");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  Say(absl::StrCat("\033[?7l", page, "\033[J\033[?7h"));
}

bool Screen::Wait(double seconds) {
  const int64_t until = NowNs() + static_cast<int64_t>(seconds * 1e9);
  for (int64_t left; g_signalled == 0 && (left = until - NowNs()) > 0;) {
    pollfd keys{g_has_keys ? STDIN_FILENO : -1, POLLIN, 0};
    const int count = ::poll(&keys, 1, static_cast<int>(left / 1'000'000) + 1);
    if (count < 0 && errno != EINTR) return false;
    if (count <= 0) continue;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return false;
  }
  return g_signalled == 0;
}

}  // namespace shunt::tools
