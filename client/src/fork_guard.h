// fork() in a process with sessions: the child closes what would keep its parent's leases alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace shunt::client {

// What a child must not inherit. Registered objects stay at their address until they are removed.
class ForkTarget {
 public:
  // In the child, before fork() returns there, with one thread alive: async-signal-safe things
  // only, no locks. Must not throw.
  virtual void OnForkChild() = 0;

 protected:
  ~ForkTarget() = default;

 private:
  friend class ForkGuard;
  ForkTarget* next_ = nullptr;
  ForkTarget** link_ = nullptr;
};

// Holds back fork() while it lives: for the moment between making a descriptor and registering it.
class ForkGuard {
 public:
  ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  void Add(ForkTarget* target);
  // Does nothing for a target that was never added, or was removed.
  void Remove(ForkTarget* target);

 private:
  static void Prepare();
  static void Parent();
  static void Child();

  std::lock_guard<std::mutex> lock_;
};

namespace internal {
extern std::atomic<uint32_t> fork_generation;
}  // namespace internal

// Changes in each child: a session that was opened in another generation belongs to another
// process.
inline uint32_t ForkGeneration() {
  return internal::fork_generation.load(std::memory_order_relaxed);
}

}  // namespace shunt::client
