// silent-files DIRECTORY: mounts a file system there whose server falls silent when it is told to,
// for tests that are no C++. It is mounted for this process alone: /proc/PID/root/DIRECTORY/a is
// its one file. Prints "mounted", then does what it reads: a line "silence" or "speak", answered by
// the same. Ends, and its server with it, at the end of its input. Exits with 77 where it may not
// mount.
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include <iostream>
#include <string>

#include "tests/storage/silent_files.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return 77;
  }
  shunt::storage::testing::SilentFiles files(argv[1]);
  if (!files.mounted()) return 77;
  std::cout << "mounted" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "silence") files.Silence();
    if (line == "speak") files.Speak();
    std::cout << line << std::endl;
  }
  return 0;
}
