// Full disks, files that shrink, memory and kernels that do not do as one would like.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "tests/storage/children.h"
#include "tests/storage/worlds.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;
using Names = std::vector<std::string>;

std::string Words(const Completion& completion) { return std::string(completion.status.message()); }

Completion WaitAlone(Store& store) {
  for (Completion one;;) {
    if (store.Poll(absl::MakeSpan(&one, 1)) == 1) return one;
    pollfd ready{.fd = store.fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, -1);
  }
}

TEMPLATE_LIST_TEST_CASE("a file that shrinks ends a read with words", "", Worlds) {
  TestType world;
  world.Put("a", Pattern(100'000, 1));
  const Completion opened = world.Open("a");
  Buffer memory(100'000);
  const uint64_t token = world.NextToken();
  // Its size is looked at when the read is posted, not when the file was opened...
  REQUIRE(::truncate(world.Path("a").c_str(), 50'000) == 0);
  CHECK(world.Read({{opened.object, 0, absl::MakeSpan(memory)}}).status.code() ==
        StatusCode::kOutOfRange);
  // ... and it may shrink between that and the reading, which is at the next Poll.
  REQUIRE(::truncate(world.Path("a").c_str(), 100'000) == 0);
  world.store().PostRead({.pieces = {{opened.object, 0, absl::MakeSpan(memory)}}}, token);
  REQUIRE(::truncate(world.Path("a").c_str(), 70'000) == 0);
  const Completion read = world.Wait(token);
  CHECK(read.status.code() == StatusCode::kAborted);
  CHECK_THAT(Words(read), Catch::Contains("root/a") && Catch::Contains("ends at byte") &&
                              Catch::Contains("truncated"));
}

TEMPLATE_LIST_TEST_CASE("memory of any alignment does", "", Worlds) {
  TestType world;
  const Buffer data = Pattern(300'000, 1);
  world.Put("a", data);
  const Completion opened = world.Open("a");
  Buffer memory(310'000);
  for (const size_t shift : {0, 1, 2, 8, 511, 4095}) {
    const absl::Span<std::byte> part = absl::MakeSpan(memory).subspan(shift, data.size());
    std::fill(memory.begin(), memory.end(), std::byte{});
    REQUIRE(world.Read({{opened.object, 0, part}}).status.ok());
    CHECK(std::equal(part.begin(), part.end(), data.begin()));
  }
}

TEST_CASE("memory that is not mapped is an error of that transfer only") {
  PosixUringWorld world;
  world.Put("a", Pattern(8192, 1));
  const Completion opened = world.Open("a");
  auto* const nowhere = reinterpret_cast<std::byte*>(4096);
  const Completion read = world.Read({{opened.object, 0, absl::MakeSpan(nowhere, 8192)}});
  CHECK(!read.status.ok());
  CHECK_THAT(Words(read), Catch::Contains("root/a") && Catch::Contains("EFAULT"));
  CHECK(world.Get("a").size() == 8192);
}

TEMPLATE_LIST_TEST_CASE("a file that may not grow so far is an error, not a signal", "", Worlds) {
  TestType world;
  world.Put("old", Pattern(10, 1));
  world.Stop();  // no thread of it is in the child
  CHECK(InChild([&] {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    world.Restart();
    const Completion begun = world.Begin("a", 2 << 20);
    return begun.status.code() == StatusCode::kResourceExhausted &&
           Words(begun).find("root/a") != std::string::npos &&
           Words(begun).find("2097152 bytes") != std::string::npos && world.Names() == Names{"old"};
  }));
}

TEST_CASE("a full disk is an error that leaves nothing") {
  const shunt::testing::TempDir mount;
  CHECK(WithMount(mount.path(), 0, [&] {
    auto store = PosixStore::Make({.roots = {{.name = "root", .path = mount.path()}}});
    if (!store.ok()) return false;
    (*store)->PostBegin({.container = "root", .name = "a", .bytes = 2 << 20}, 1);
    const Completion full = WaitAlone(**store);
    (*store)->PostBegin({.container = "root", .name = "b", .bytes = 700 << 10}, 2);
    const Completion fits = WaitAlone(**store);  // what the first had taken is free again
    return full.status.code() == StatusCode::kResourceExhausted &&
           Words(full).find("ENOSPC") != std::string::npos && fits.status.ok() &&
           std::filesystem::is_empty(mount.path() + "/.shunt-partial");
  }));
}

TEST_CASE(
    "a draft in more pieces than its owner pays for is refused with words, and leaves nothing") {
  PosixUringWorld world;
  uint64_t held = 0;
  const Completion begun = world.Do([&](uint64_t token) {
    BeginRequest begin{.container = "root", .name = "a", .bytes = 1 << 20};
    begin.budget = [&held](uint64_t bytes,
                           std::string_view what) -> absl::StatusOr<std::shared_ptr<void>> {
      if (held + bytes > 64 << 10) {
        return absl::ResourceExhaustedError("no memory for " + std::string(what));
      }
      held += bytes;
      return std::shared_ptr<void>(nullptr, [&held, bytes](void*) { held -= bytes; });
    };
    world.store().PostBegin(std::move(begin), token);
  });
  Buffer byte(1);
  Completion written;
  uint64_t offset = 0;
  for (; written.status.ok() && offset < 1 << 20; offset += 2) {
    written = world.Write(begun.object, byte, offset);
  }
  CHECK(written.status.code() == StatusCode::kResourceExhausted);
  CHECK_THAT(Words(written), Catch::Contains("root/a") && Catch::Contains("separate ranges") &&
                                 Catch::Contains("the notes of a draft"));
  CHECK(offset > 1000);
  CHECK(held > 0);
  CHECK(world.Commit(begun.object).status.code() == StatusCode::kFailedPrecondition);
  CHECK(held == 0);  // its owner may take it again as soon as it knows
  CHECK(world.Names().empty());
}

TEST_CASE("what a draft's notes took is given back when its commit or its abort answers") {
  uint64_t held = 0;
  PosixUringWorld world;
  const auto scattered = [&](const char* name, uint64_t bytes) {
    const Completion begun = world.Do([&](uint64_t token) {
      BeginRequest begin{.container = "root", .name = name, .bytes = bytes};
      begin.budget = [&held](uint64_t more,
                             std::string_view) -> absl::StatusOr<std::shared_ptr<void>> {
        held += more;
        return std::shared_ptr<void>(nullptr, [&held, more](void*) { held -= more; });
      };
      world.store().PostBegin(std::move(begin), token);
    });
    Buffer byte(1);
    for (uint64_t offset = 0; offset < bytes; offset += 2) {
      REQUIRE(world.Write(begun.object, byte, offset).status.ok());
    }
    return begun.object;
  };
  const ObjectId aborted = scattered("aborted", 1000);
  CHECK(held > 0);
  CHECK(world.Abort(aborted).status.ok());
  CHECK(held == 0);
  const ObjectId committed = scattered("committed", 1000);
  Buffer byte(1);
  for (uint64_t offset = 1; offset < 1000; offset += 2) {
    REQUIRE(world.Write(committed, byte, offset).status.ok());
  }
  CHECK(held > 0);
  CHECK(world.Commit(committed).status.ok());
  CHECK(held == 0);
}

TEST_CASE("a read-only file system is refused by name") {
  const shunt::testing::TempDir mount;
  CHECK(WithMount(mount.path(), MS_RDONLY, [&] {
    auto store = PosixStore::Make({.roots = {{.name = "root", .path = mount.path()}}});
    if (!store.ok()) return false;
    (*store)->PostBegin({.container = "root", .name = "a", .bytes = 1}, 1);
    const Completion begun = WaitAlone(**store);
    return begun.status.code() == StatusCode::kPermissionDenied &&
           Words(begun).find("root/") != std::string::npos;
  }));
}

TEST_CASE("a file that may not be written is refused by name") {
  if (::geteuid() == 0) return;  // root may write anywhere
  PosixUringWorld world;
  world.Put("a", Pattern(10, 1));
  REQUIRE(::chmod(world.Path("a").c_str(), 0444) == 0);
  CHECK(world.Open("a", Access::kReadWrite).status.code() == StatusCode::kPermissionDenied);
}

// Ends every call of that number with the error; false if it may not.
bool Forbid(std::initializer_list<unsigned> calls, uint32_t err) {
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const unsigned call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                           .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_CASE("where io_uring is forbidden, threads do the work") {
  CHECK(InChild([] {
    if (!Forbid({SYS_io_uring_setup}, EPERM)) return false;  // as container runtimes' filters do
    PosixUringWorld world;
    if (std::string(world.posix().engine()) != "threads") return false;
    world.Put("a", Pattern(100'000, 1));
    const auto forced = PosixStore::Make({.engine = IoEngine::kUring});
    return world.Get("a") == Pattern(100'000, 1) &&
           forced.status().code() == StatusCode::kUnimplemented;
  }));
}

void TakeAllSignals() {
  sigset_t none;
  ::sigemptyset(&none);
  SHUNT_CHECK(::pthread_sigmask(SIG_SETMASK, &none, nullptr) == 0);
}
bool TakesAllSignals() {
  sigset_t mask;
  SHUNT_CHECK(::pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0);
  return ::sigisemptyset(&mask) == 1;
}

TEST_CASE("where no thread is to be had, a store is an error, and its owner keeps its signals") {
  const IoEngine engine = GENERATE(IoEngine::kAuto, IoEngine::kThreads);
  CHECK(InChild([engine] {
    if (!Forbid({SYS_clone, SYS_clone3}, EAGAIN)) return false;
    TakeAllSignals();
    const auto store = PosixStore::Make({.engine = engine});
    return store.status().code() == StatusCode::kResourceExhausted &&
           store.status().message().find("EAGAIN") != absl::string_view::npos && TakesAllSignals();
  }));
}

TEST_CASE("where no more threads are to be had, those that are there do the work") {
  PosixThreadsWorld world;
  world.Put("a", Pattern(1 << 20, 1));
  world.Stop();  // no thread of it is in the child
  CHECK(InChild([&] {
    world.Restart();
    if (!Forbid({SYS_clone, SYS_clone3}, EAGAIN)) return false;
    TakeAllSignals();
    return world.Get("a") == Pattern(1 << 20, 1) && TakesAllSignals();
  }));
}

TEMPLATE_LIST_TEST_CASE("a write in place beyond the limit of files is an error, not a signal", "",
                        Worlds) {
  TestType world;
  world.Put("old", Pattern(2 << 20, 1));
  world.Stop();
  CHECK(InChild([&] {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    world.Restart();
    const Completion opened = world.Open("old", Access::kReadWrite);
    // Whole blocks, which io_uring writes on this thread where there is O_DIRECT.
    alignas(4096) static std::byte blocks[8192];
    const Completion written =
        world.Write({{opened.object, (1 << 20) + 4096, absl::MakeSpan(blocks)}});
    return written.status.code() == StatusCode::kResourceExhausted &&
           Words(written).find("root/old") != std::string::npos &&
           Words(written).find("EFBIG") != std::string::npos;
  }));
}

// Of this process, in KiB: pages that the kernel keeps in memory for io_uring and the like.
uint64_t PinnedKiB() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t value = 0;
    if (word == "VmPin:" && status >> value) return value;
  }
  return 0;
}

TEST_CASE("memory that is added twice is registered once, and given back at once") {
  PosixUringWorld world;
  const uint64_t before = PinnedKiB();
  Buffer memory(1 << 20);
  const absl::Span<std::byte> whole = absl::MakeSpan(memory);
  world.store().AddMemory(whole);
  const uint64_t once = PinnedKiB();
  if (once == before) return;  // no io_uring, or no memory for it
  world.store().AddMemory(whole);
  world.store().AddMemory(whole.subspan(4096));
  CHECK(PinnedKiB() == once);
  world.store().RemoveMemory(whole);
  CHECK(PinnedKiB() == before);
}

}  // namespace
}  // namespace shunt::storage::testing
