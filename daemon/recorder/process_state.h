// What a process is doing, as /proc tells: for people who ask what it is that holds others up.
#pragma once

#include <cstdint>
#include <string>

namespace shunt::daemon {

struct ProcessState {
  // "R", "S", "D", "T", "t", "Z" as in proc(5), of its first thread, or "D" if any thread is in
  // that state; "gone"; empty if it can't be seen (another PID namespace).
  std::string state;
  // What one of its threads waits for in the file system: "read of /data/x (request_wait_answer)".
  // How much of that can be seen depends on the daemon's rights.
  std::string file;
};

// A snapshot; never waits for the process or for what it waits for.
ProcessState LookAtProcess(int32_t pid);

}  // namespace shunt::daemon
