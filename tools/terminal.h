// What the other end of stdout is: a terminal, with colours or without, or a file.
#pragma once

#include <string>
#include <string_view>

namespace shunt::tools {

// How text is dressed up. `color` only on a terminal that has colours, without $NO_COLOR.
struct Style {
  bool color = false;
  bool lines = false;  // box drawing characters: the locale is UTF-8

  static Style OfStdout();
  std::string Bold(std::string_view text) const;
  std::string Dim(std::string_view text) const;
  // By what the word means: "up" is good, "failed" is bad, "joining" is neither yet.
  std::string State(std::string_view word, std::string_view padded) const;
};

bool StdoutIsTerminal();

// A screen that is drawn again and again, on a terminal: its own page, with keys read as they are
// pressed. Gives the terminal back as it was when it is destroyed, and on SIGINT and SIGTERM.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;

  // Cut to the terminal's size.
  void Draw(std::string_view text);
  // False if 'q' was pressed, or a signal came, before so many seconds had passed.
  bool Wait(double seconds);
};

}  // namespace shunt::tools
