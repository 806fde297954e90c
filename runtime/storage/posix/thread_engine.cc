// preads and pwrites on threads: for kernels and seccomp filters that forbid io_uring.
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/core/check.h"
#include "runtime/storage/posix/engine.h"
#include "runtime/storage/posix/pool.h"

namespace shunt::storage {
namespace {

int Run(const Io& io) {
  for (;;) {
    const auto offset = static_cast<off_t>(io.offset);
    const ssize_t result = io.write ? ::pwrite(io.fd, io.memory, io.bytes, offset)
                                    : ::pread(io.fd, io.memory, io.bytes, offset);
    if (result >= 0) return static_cast<int>(result);
    if (errno != EINTR) return -errno;
  }
}

class ThreadEngine : public Engine {
 public:
  ThreadEngine(uint32_t threads, int wake_fd) : pool_(threads, wake_fd) {}

  const char* name() const override { return "threads"; }
  void Post(const Io& io) override {
    auto slot = std::make_unique<Slot>(Slot{io, 0});
    Slot* const borrowed = slot.get();
    SHUNT_CHECK(slots_.emplace(io.id, std::move(slot)).second);
    pool_.Post(io.id, [borrowed] { borrowed->result = Run(borrowed->io); });
  }
  void Flush() override {}
  bool Reap(IoResult* result) override {
    if (!pool_.Reap(&result->id)) return false;
    const auto found = slots_.find(result->id);
    result->result = found->second->result;
    slots_.erase(found);
    return true;
  }
  void AddMemory(absl::Span<std::byte>) override {}
  void RemoveMemory(absl::Span<std::byte>) override {}

 private:
  struct Slot {
    Io io;
    int result;
  };
  absl::flat_hash_map<uint64_t, std::unique_ptr<Slot>> slots_;
  Pool pool_;  // ends first
};

}  // namespace

std::unique_ptr<Engine> MakeThreadEngine(uint32_t threads, int wake_fd) {
  return std::make_unique<ThreadEngine>(threads, wake_fd);
}

}  // namespace shunt::storage
