// Another process for the driver's tests: gpu_driver_child, which lies beside the test program. It
// is started with exec, as a process that has used CUDA cannot fork one that does.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/core/fd.h"

namespace shunt::gpu::testing {

class Child {
 public:
  // `fd`, if not -1, becomes its descriptor 3. `environment`: changes to this process's; an empty
  // value removes the variable.
  explicit Child(std::vector<std::string> arguments, int fd = -1,
                 std::vector<std::pair<std::string, std::string>> environment = {});
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // The next line of its output, without the end; "" after the last.
  std::string Line();
  void Kill();  // and waits for its end
  // Waits; its exit code, or -1.
  int Wait();

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
  UniqueFd input_;  // its end tells the child to go
};

std::string ToHex(const void* bytes, size_t count);
std::string FromHex(const std::string& text);

}  // namespace shunt::gpu::testing
