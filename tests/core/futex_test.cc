#include "runtime/core/futex.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "runtime/core/clock.h"
#include "runtime/core/fd.h"

namespace shunt {
namespace {

using std::chrono::milliseconds;

TEST_CASE("a wait on a word that has already changed returns at once") {
  const std::atomic<uint32_t> word{1};
  CHECK(FutexWait(&word, 0) == FutexResult::kChanged);
}

TEST_CASE("a wait ends at its timeout and not before") {
  const std::atomic<uint32_t> word{0};
  const int64_t start = NowNs();
  // A signal may end one wait early: look at the clock, as every caller does.
  FutexResult result;
  do {
    result = FutexWait(&word, 0, milliseconds(20));
  } while (result == FutexResult::kWoken);
  CHECK(result == FutexResult::kTimedOut);
  CHECK(NowNs() - start >= 20'000'000);
}

TEST_CASE("a negative timeout does not sleep") {
  const std::atomic<uint32_t> word{0};
  CHECK(FutexWait(&word, 0, milliseconds(-5)) == FutexResult::kTimedOut);
}

TEST_CASE("a wake reaches a sleeper in another process through another mapping") {
  const UniqueFd fd = *MakeSealedMemfd("futex", 4096);
  const Mapping mine = *Mapping::Map(fd.get(), 4096);
  auto* word = new (mine.data()) std::atomic<uint32_t>(0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto theirs = Mapping::Map(fd.get(), 4096);
    auto* w = reinterpret_cast<std::atomic<uint32_t>*>(theirs->data());
    while (w->load() == 0) FutexWait(w, 0);
    ::_exit(w->load() == 7 ? 0 : 1);
  }
  // Whether it sleeps already or not, it must end.
  word->store(7);
  FutexWake(word);
  int exit_status = -1;
  REQUIRE(::waitpid(child, &exit_status, 0) == child);
  CHECK(exit_status == 0);
}

TEST_CASE("a wake returns how many it woke") {
  std::atomic<uint32_t> word{0};
  CHECK(FutexWake(&word) == 0);
  std::thread sleeper([&] {
    while (word.load() == 0) FutexWait(&word, 0);
  });
  // Wakes without a change until the sleeper has been seen asleep.
  while (FutexWake(&word, 1) == 0) std::this_thread::yield();
  word.store(1);
  FutexWake(&word);
  sleeper.join();
}

TEST_CASE("a deadline beyond the clock's range is never, one before it is past") {
  CHECK(DeadlineAfterNs(std::chrono::nanoseconds::max()) == kNeverNs);
  CHECK(DeadlineAfterNs(milliseconds(-1)) < NowNs());
  CHECK(DeadlineAfterNs(milliseconds(1000)) > NowNs());
}

}  // namespace
}  // namespace shunt
