#include "tests/gpu/driver_child.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/core/check.h"

namespace shunt::gpu::testing {

Child::Child(std::vector<std::string> arguments, int fd,
             std::vector<std::pair<std::string, std::string>> environment) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "gpu_driver_child";
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2], in[2];
  SHUNT_CHECK(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(in, O_CLOEXEC) == 0);
  pid_ = ::fork();
  SHUNT_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    for (const auto& [name, value] : environment) {
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
    // Above 3 first, so that nothing is written over.
    const int kept = fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 10);
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    if (kept >= 0) ::dup2(kept, 3);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(in[0]);
  output_.Reset(out[0]);
  input_.Reset(in[1]);
}

Child::~Child() {
  if (pid_ >= 0) Kill();
}

std::string Child::Line() {
  std::string line;
  for (char c; ::read(output_.get(), &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

void Child::Kill() {
  ::kill(pid_, SIGKILL);
  Wait();
}

int Child::Wait() {
  input_.Reset();
  int status = 0;
  SHUNT_CHECK(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string ToHex(const void* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string FromHex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace shunt::gpu::testing
