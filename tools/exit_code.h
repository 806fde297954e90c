// What shuntctl's exit status says: docs/shuntctl.md.
#pragma once

namespace shunt::tools {

enum ExitCode : int {
  kFine = 0,
  kUsage = 1,        // the command line is wrong
  kUnreachable = 2,  // no daemon answers, or this user or certificate may not connect
  kTrouble = 3,      // the answer is bad news
  kRefused = 4,      // the daemon refused the request
};

}  // namespace shunt::tools
