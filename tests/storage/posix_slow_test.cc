// Files that make their users wait: whoever waits, it is not the thread that owns the store.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/storage/children.h"
#include "tests/storage/silent_files.h"
#include "tests/storage/worlds.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;

// Without Catch's macros: for children.
class Waiter {
 public:
  explicit Waiter(Store& store) : store_(store) {}
  bool Ended(uint64_t token) const { return ended_.contains(token); }
  const Completion& Wait(uint64_t token) {
    while (!Ended(token)) {
      Completion one;
      if (store_.Poll(absl::MakeSpan(&one, 1)) == 1) {
        ended_[one.token] = one;
        continue;
      }
      pollfd ready{.fd = store_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, -1);
    }
    return ended_[token];
  }

 private:
  Store& store_;
  std::map<uint64_t, Completion> ended_;
};

TEST_CASE("a file system whose server is silent holds up nothing but what is posted on it") {
  const IoEngine engine = GENERATE(IoEngine::kAuto, IoEngine::kThreads);
  const int flags = GENERATE(0, O_NONBLOCK);
  const shunt::testing::TempDir mount, local;
  std::ofstream(local / "l") << "local";
  CHECK(WithOwnMounts([&] {
    ::alarm(20);  // instead of waiting for ever
    SilentFiles files(mount.path());
    if (!files.mounted()) return kMayNotMount;
    auto store = PosixStore::Make(
        {.roots = {{.name = "root", .path = local.path()}}, .engine = engine, .job_threads = 1});
    if (!store.ok()) return 2;
    Waiter waiter(**store);
    const auto open = [&] {
      return UniqueFd(::open(files.file().c_str(), O_RDONLY | flags | O_CLOEXEC));
    };
    UniqueFd second = open(), third = open(), fourth = open();
    (*store)->PostOpen({.descriptor = open()}, 1);
    (*store)->PostOpen({.container = "root", .name = "l"}, 2);
    const ObjectId silent = waiter.Wait(1).object, quick = waiter.Wait(2).object;
    if (silent == 0 || quick == 0 || waiter.Wait(1).bytes != SilentFiles::kBytes) return 3;

    files.Silence();
    Buffer from_silent(SilentFiles::kBytes), from_quick(5);
    (*store)->PostRead({.pieces = {{silent, 0, absl::MakeSpan(from_silent)}}}, 3);
    (*store)->PostRead({.pieces = {{quick, 0, absl::MakeSpan(from_quick)}}}, 4);
    if (!waiter.Wait(4).status.ok()) return 4;
    // The one thread for such calls is busy with the first, so that the second has not begun.
    (*store)->PostOpen({.descriptor = std::move(second)}, 5);
    (*store)->PostOpen({.descriptor = std::move(third)}, 6);
    (*store)->Cancel(6);
    if (waiter.Wait(6).status.code() != StatusCode::kCancelled) return 5;
    (*store)->PostOpen({.descriptor = std::move(fourth), .container = "root", .name = "l"}, 7);
    if (waiter.Wait(7).status.code() != StatusCode::kInvalidArgument) return 6;
    (*store)->PostRead({.pieces = {{quick, 0, absl::MakeSpan(from_quick)}}}, 8);
    if (!waiter.Wait(8).status.ok() || waiter.Ended(3) || waiter.Ended(5)) return 7;

    files.Speak();
    if (!waiter.Wait(3).status.ok() || !waiter.Wait(5).status.ok()) return 8;
    return from_silent == Buffer(SilentFiles::kBytes, std::byte{'a'}) ? 0 : 9;
  }));
}

TEST_CASE("files that the store opens wait for the disk") {
  PosixUringWorld world;
  world.Put("a", Pattern(100'000, 1));
  REQUIRE(world.Open("a").status.ok());
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != world.Path("a")) continue;
    ++seen;
    CHECK((::fcntl(std::stoi(entry.path().filename()), F_GETFL) & O_NONBLOCK) == 0);
  }
  CHECK(seen >= 1);
}

TEST_CASE("a client's descriptor with O_NONBLOCK is waited for all the same") {
  PosixWorld world({.direct = false});
  const Buffer data = Pattern(4 << 20, 1);
  world.Put("a", data);
  UniqueFd fd(::open(world.Path("a").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
  const Completion opened = world.Do(
      [&](uint64_t token) { world.store().PostOpen({.descriptor = std::move(fd)}, token); });
  Buffer memory(data.size());
  const Completion read = world.Read({{opened.object, 0, absl::MakeSpan(memory)}});
  INFO(read.status);
  CHECK(read.status.ok());
  CHECK((memory == data));
}

TEST_CASE("whoever holds a lease on a file holds up nobody's open") {
  PosixUringWorld world;
  world.Put("a", Pattern(100'000, 1));
  const auto before = ::signal(SIGIO, SIG_IGN);  // it tells of the store's attempt
  UniqueFd fd(::open(world.Path("a").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::fcntl(fd.get(), F_SETLEASE, F_WRLCK) == 0);
  auto passed = Duplicate(fd.get());
  const int64_t start_ns = NowNs();
  const Completion opened = world.Do([&](uint64_t token) {
    world.store().PostOpen({.descriptor = *std::move(passed), .access = Access::kReadWrite}, token);
  });
  CHECK(opened.status.ok());
  CHECK(world.Open("a").status.code() == StatusCode::kUnavailable);
  CHECK(NowNs() - start_ns < 20'000'000'000);  // the kernel ends a lease after 45 s
  REQUIRE(::fcntl(fd.get(), F_SETLEASE, F_UNLCK) == 0);
  ::signal(SIGIO, before);
  CHECK(world.Open("a").status.ok());
}

// Says to each read what it was made to say.
class StubbornEngine : public Engine {
 public:
  explicit StubbornEngine(int result) : result_(result) {}
  const char* name() const override { return "stubborn"; }
  void Post(const Io& io) override {
    ids_.push_back(io.id);
    slow_ = io.slow;
  }
  void Flush() override {}
  bool Reap(IoResult* result) override {
    if (ids_.empty()) return false;
    *result = {.id = ids_.back(), .result = result_};
    ids_.pop_back();
    return true;
  }
  void AddMemory(absl::Span<std::byte>) override {}
  void RemoveMemory(absl::Span<std::byte>) override {}
  bool slow() const { return slow_; }

 private:
  const int result_;
  std::vector<uint64_t> ids_;
  bool slow_ = false;
};

TEST_CASE("a file that says for ever that it is to be tried again is given up") {
  const int err = GENERATE(EAGAIN, EINTR);
  StubbornEngine engine(-err);
  Pump pump(&engine, 4, 4096);
  const auto file = std::make_shared<StoredFile>();
  file->opened.label = "stubborn";
  file->opened.slow = false;
  Buffer memory(10);
  Transfer transfer;
  transfer.pieces = {{file, 0, absl::MakeSpan(memory)}};
  pump.Add(&transfer);
  bool ended = false;
  int rounds = 0;
  for (; !ended && rounds < 1000; ++rounds) {
    pump.Run([&](Transfer*) { ended = true; });
  }
  CHECK(ended);
  CHECK(engine.slow());  // not on this thread any more
  CHECK(!transfer.status.ok());
  CHECK_THAT(std::string(transfer.status.message()), Catch::Contains("stubborn"));
}

// Holds all reads, in their order, until it is told that some have ended.
class HoldingEngine : public Engine {
 public:
  std::vector<Io> held;
  const char* name() const override { return "holding"; }
  void Post(const Io& io) override { held.push_back(io); }
  void Flush() override {}
  bool Reap(IoResult* result) override {
    if (ending_ == 0) return false;
    --ending_;
    *result = {.id = held.front().id, .result = static_cast<int>(held.front().bytes)};
    held.erase(held.begin());
    return true;
  }
  void AddMemory(absl::Span<std::byte>) override {}
  void RemoveMemory(absl::Span<std::byte>) override {}
  void End(size_t count) { ending_ = count; }

 private:
  size_t ending_ = 0;
};

TEST_CASE("the urgent wait for no queue of others, and nobody starves") {
  constexpr uint32_t kDepth = 16;
  HoldingEngine engine;
  Pump pump(&engine, kDepth, 4096);
  const auto file = std::make_shared<StoredFile>();
  Buffer memory(3 << 20);
  std::deque<Transfer> transfers;
  const auto add = [&](Urgency urgency, size_t pieces) {
    Transfer& transfer = transfers.emplace_back();
    transfer.urgency = urgency;
    const size_t at = static_cast<size_t>(urgency) << 20;  // which tells them apart
    transfer.pieces.assign(pieces, {file, 0, absl::MakeSpan(memory).subspan(at, 4096)});
    pump.Add(&transfer);
  };
  const auto urgency_of = [&](const Io& io) {
    return static_cast<Urgency>((io.memory - memory.data()) >> 20);
  };
  size_t ended = 0;
  const auto run = [&] { pump.Run([&](Transfer*) { ++ended; }); };
  for (int i = 0; i < 8; ++i) add(Urgency::kBulk, 200);
  add(Urgency::kBackground, 200);
  run();
  REQUIRE(engine.held.size() == kDepth - 1);  // a place is kept
  add(Urgency::kLatency, 1);
  run();
  REQUIRE(engine.held.size() == kDepth);
  CHECK(urgency_of(engine.held.back()) == Urgency::kLatency);
  // With many of them, too, most places are theirs, and some are the others'.
  add(Urgency::kLatency, 300);
  size_t urgent = 0, background = 0;
  for (int i = 0; i < 200; ++i) {
    engine.End(1);
    run();
    urgent += urgency_of(engine.held.back()) == Urgency::kLatency ? 1 : 0;
    background += urgency_of(engine.held.back()) == Urgency::kBackground ? 1 : 0;
  }
  CHECK(urgent > 170);
  CHECK(background > 2);
  while (!engine.held.empty()) {
    engine.End(engine.held.size());
    run();
  }
  CHECK(ended == transfers.size());
}

}  // namespace
}  // namespace shunt::storage::testing
