#include "bench/harness/control.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/futex.h"
#include "runtime/core/status.h"

namespace shunt::bench {

std::string_view Name(Memory memory) {
  switch (memory) {
    case Memory::kHost:
      return "host";
    case Memory::kMalloc:
      return "malloc";
    case Memory::kCuda:
      return "cuda";
    case Memory::kCudaHost:
      return "cuda-host";
  }
  return "?";
}
namespace {

constexpr std::chrono::milliseconds kDoomPoll{200};
constexpr int kSpins = 4000;

}  // namespace

void Control::Fail(std::string_view words, bool cannot) {
  uint32_t expected = 0;
  if (!failed.compare_exchange_strong(expected, 1)) return;
  const size_t length = std::min(words.size(), sizeof(error) - 1);
  std::memcpy(error, words.data(), length);
  error[length] = '\0';
  unsupported = cannot;
  failed.store(2);
  FutexWake(&failed);
  FutexWake(&finished);
  FutexWake(&generation);
}

bool Control::Doomed() const {
  return failed.load() != 0 || (::kill(driver_pid, 0) != 0 && errno == ESRCH);
}

absl::StatusOr<ControlPage> ControlPage::Create(int ranks) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks is ", ranks, ", must be between 1 and ", kMaxRanks));
  }
  // A file on disk would stall ranks in write-back.
  std::string path = "/dev/shm/shunt-bench-XXXXXX";
  UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) {
    path = "/tmp/shunt-bench-XXXXXX";
    fd.Reset(::mkostemp(path.data(), O_CLOEXEC));
  }
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  ControlPage page;
  page.path_ = path;
  if (::ftruncate(fd.get(), sizeof(Control)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("ftruncate of ", path));
  }
  SHUNT_ASSIGN_OR_RETURN(page.mapping_, Mapping::Map(fd.get(), sizeof(Control)));
  Control* control = new (page.mapping_.data()) Control{};
  control->ranks = ranks;
  control->driver_pid = ::getpid();
  control->magic = Control::kMagic;
  return page;
}

absl::StatusOr<ControlPage> ControlPage::Attach(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open control file ", path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || info.st_size != sizeof(Control)) {
    return absl::InvalidArgumentError(absl::StrCat("control file ", path, " has ", info.st_size,
                                                   " bytes, expected ", sizeof(Control)));
  }
  ControlPage page;
  SHUNT_ASSIGN_OR_RETURN(page.mapping_, Mapping::Map(fd.get(), sizeof(Control)));
  if (page.get()->magic != Control::kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("control file ", path, " is of another version of the benchmark"));
  }
  return page;
}

void ControlPage::Unlink() {
  if (!path_.empty()) ::unlink(path_.c_str());
  path_.clear();
}

bool RankBarrier(Control* control) {
  const uint32_t generation = control->generation.load();
  if (control->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(control->ranks)) {
    control->arrived.store(0);
    control->generation.fetch_add(1);
    FutexWake(&control->generation);
    return control->failed.load() == 0;
  }
  static const int cores = UsableCores();
  const int spins = control->ranks <= cores ? kSpins : 50;
  for (int i = 0; i < spins; ++i) {
    if (control->generation.load() != generation) return control->failed.load() == 0;
    __builtin_ia32_pause();
  }
  while (control->generation.load() == generation) {
    if (control->Doomed()) return false;
    FutexWait(&control->generation, generation, kDoomPoll);
  }
  return control->failed.load() == 0;
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace shunt::bench
