#include "client/src/fork_guard.h"

#include <pthread.h>

namespace shunt::client {

namespace internal {
std::atomic<uint32_t> fork_generation{0};
}  // namespace internal

namespace {

// Never destroyed: a fork may come while the process exits.
std::mutex& Mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

ForkTarget* head = nullptr;

}  // namespace

ForkGuard::ForkGuard() : lock_(Mutex()) {
  static const int registered = ::pthread_atfork(Prepare, Parent, Child);
  (void)registered;
}

void ForkGuard::Add(ForkTarget* target) {
  target->next_ = head;
  target->link_ = &head;
  if (head != nullptr) head->link_ = &target->next_;
  head = target;
}

void ForkGuard::Remove(ForkTarget* target) {
  if (target->link_ == nullptr) return;
  *target->link_ = target->next_;
  if (target->next_ != nullptr) target->next_->link_ = target->link_;
  target->link_ = nullptr;
  target->next_ = nullptr;
}

void ForkGuard::Prepare() { Mutex().lock(); }

void ForkGuard::Parent() { Mutex().unlock(); }

void ForkGuard::Child() {
  internal::fork_generation.fetch_add(1, std::memory_order_relaxed);
  while (head != nullptr) {
    ForkTarget* const target = head;
    head = target->next_;
    target->link_ = nullptr;
    target->next_ = nullptr;
    target->OnForkChild();
  }
  Mutex().unlock();
}

}  // namespace shunt::client
