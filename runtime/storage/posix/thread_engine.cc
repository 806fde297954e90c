// preads and pwrites on threads: for kernels and seccomp filters that forbid io_uring.
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/storage/posix/engine.h"
#include "runtime/storage/posix/pool.h"

namespace shunt::storage {
namespace {

int Run(const Io& io) {
  const auto offset = static_cast<off_t>(io.offset);
  const ssize_t result = io.write ? ::pwrite(io.fd, io.memory, io.bytes, offset)
                                  : ::pread(io.fd, io.memory, io.bytes, offset);
  return result >= 0 ? static_cast<int>(result) : -errno;
}

class ThreadEngine : public Engine {
 public:
  explicit ThreadEngine(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}

  const char* name() const override { return "threads"; }
  void Post(const Io& io) override {
    auto slot = std::make_unique<Slot>(Slot{io, 0});
    Slot* const borrowed = slot.get();
    SHUNT_CHECK(slots_.emplace(io.id, std::move(slot)).second);
    pool_->Post(io.id, [borrowed] { borrowed->result = Run(borrowed->io); });
  }
  void Flush() override {}
  bool Reap(IoResult* result) override {
    if (!pool_->Reap(&result->id)) return false;
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
  std::unique_ptr<Pool> pool_;  // ends first
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeThreadEngine(uint32_t threads, int wake_fd) {
  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<Pool> pool, Pool::Make(threads, wake_fd));
  return std::make_unique<ThreadEngine>(std::move(pool));
}

}  // namespace shunt::storage
