// A store on a thread of its own: what is posted from any thread ends once, also when it is
// stopped.
#include "runtime/storage/store_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "runtime/storage/posix/posix_store.h"
#include "tests/support/temp_dir.h"

namespace shunt::storage {
namespace {

std::unique_ptr<StoreHost> Host(const std::string& root, PosixOptions options = {}) {
  options.roots = {{.name = "root", .path = root}};
  auto store = PosixStore::Make(std::move(options));
  REQUIRE(store.ok());
  auto host = StoreHost::Start(*std::move(store));
  REQUIRE(host.ok());
  return *std::move(host);
}

// Waits for the callback of what `post` posts.
Completion Do(const std::function<void(StoreHost::Done)>& post) {
  auto promise = std::make_shared<std::promise<Completion>>();
  post([promise](const Completion& completion) { promise->set_value(completion); });
  return promise->get_future().get();
}

void WriteFile(const std::string& path, size_t bytes, char value) {
  std::ofstream(path, std::ios::binary) << std::string(bytes, value);
}

TEST_CASE("a file is opened, read and written from several threads") {
  const shunt::testing::TempDir directory;
  constexpr size_t kBytes = 1 << 20;
  WriteFile(directory / "f", kBytes, 'x');
  const auto host = Host(directory.path());
  const Completion opened = Do([&](StoreHost::Done done) {
    host->Open({.container = "root", .name = "f", .access = Access::kReadWrite}, done);
  });
  REQUIRE(opened.status.ok());
  CHECK(opened.bytes == kBytes);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  constexpr int kThreads = 4;
  constexpr size_t kShare = kBytes / kThreads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto mark = static_cast<std::byte>(i + 1);
      std::vector<std::byte> mine(kShare, mark);
      const uint64_t offset = i * kShare;
      const auto piece = [&] {
        TransferRequest request;
        request.pieces.push_back({opened.object, offset, absl::MakeSpan(mine)});
        return request;
      };
      for (int round = 0; round < 20; ++round) {
        const Completion wrote = Do([&](StoreHost::Done done) { host->Write(piece(), done); });
        std::fill(mine.begin(), mine.end(), std::byte{0});
        const Completion read = Do([&](StoreHost::Done done) { host->Read(piece(), done); });
        const bool same = std::count(mine.begin(), mine.end(), mark) == kShare;
        if (wrote.status.ok() && read.status.ok() && read.bytes == kShare && same) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == kThreads * 20);
}

TEST_CASE("a callback may post the next step") {
  const shunt::testing::TempDir directory;
  const auto host = Host(directory.path());
  std::vector<std::byte> bytes(5000, std::byte{7});
  const Completion committed = Do([&](StoreHost::Done done) {
    host->Begin({.container = "root", .name = "new", .bytes = bytes.size()},
                [&, done](const Completion& begun) {
                  TransferRequest request;
                  request.pieces.push_back({begun.object, 0, absl::MakeSpan(bytes)});
                  host->Write(std::move(request), [&, done, draft = begun.object](auto&) {
                    host->Commit(draft, kNeverNs, done);
                  });
                });
  });
  CHECK(committed.status.ToString() == "OK");
  struct ::stat info {};
  REQUIRE(::stat((directory / "new").c_str(), &info) == 0);
  CHECK(info.st_size == 5000);
}

TEST_CASE("a stop cancels what is under way and what comes later, and tells each once") {
  const shunt::testing::TempDir directory;
  constexpr size_t kBytes = 8 << 20;
  WriteFile(directory / "f", kBytes, 'x');
  auto host = Host(directory.path());
  const Completion opened =
      Do([&](StoreHost::Done done) { host->Open({.container = "root", .name = "f"}, done); });
  std::vector<std::byte> memory(kBytes);
  std::atomic<int> ended = 0;
  constexpr int kReads = 100;
  for (int i = 0; i < kReads; ++i) {
    TransferRequest request;
    request.pieces.push_back({opened.object, 0, absl::MakeSpan(memory)});
    host->Read(std::move(request), [&](const Completion& completion) {
      ++ended;
      if (completion.status.ok()) return;
      CHECK(completion.status.code() == absl::StatusCode::kCancelled);
    });
  }
  host->Stop();
  CHECK(host->finished());
  CHECK(ended == kReads);
  host->Close(opened.object);
  int told = 0;
  host->Sync(opened.object, kNeverNs, [&](const Completion& completion) {
    ++told;
    CHECK(completion.status.code() == absl::StatusCode::kCancelled);
  });
  CHECK(told == 1);
  CHECK(!host->Run([] {}));
  // What a request would have been made of is dropped as it is.
  auto mine = std::make_shared<int>();
  const std::weak_ptr<int> dropped = mine;
  bool made = false;
  host->Open(
      [&made, mine = std::move(mine)] {
        made = true;
        return OpenRequest{};
      },
      [&](const Completion&) { ++told; });
  CHECK(told == 2);
  CHECK(!made);
  CHECK(dropped.expired());
}

TEST_CASE("what posts more while its store stops is told of that too") {
  for (int round = 0; round < 50; ++round) {
    const shunt::testing::TempDir directory;
    auto host = Host(directory.path());
    std::atomic<int> ended = 0;
    host->Run([&] {
      host->BeginStop();
      // Under way, or behind the end: each posts another.
      for (int i = 0; i < 3; ++i) {
        host->Open({.container = "root", .name = "none"}, [&](const Completion&) {
          host->Open({.container = "root", .name = "none"}, [&](const Completion&) { ++ended; });
        });
      }
    });
    host->Stop();
    REQUIRE(ended == 3);
  }
}

TEST_CASE("a draft that is left when the host goes leaves no trace") {
  const shunt::testing::TempDir directory;
  for (const bool unnamed : {true, false}) {
    PosixOptions options;
    options.unnamed_drafts = unnamed;
    auto host = Host(directory.path(), options);
    REQUIRE(Do([&](StoreHost::Done done) {
              host->Begin({.container = "root", .name = "new", .bytes = 4096}, done);
            }).status.ok());
    host.reset();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path())) {
      INFO(entry.path());
      CHECK(entry.is_directory());
    }
  }
}

TEST_CASE("an operation that waits can be cancelled by its token") {
  const shunt::testing::TempDir directory;
  PosixOptions options;
  options.job_threads = 1;
  std::promise<void> reached, go_on;
  options.draft_hook = [&, future = go_on.get_future().share()](DraftStep step) {
    if (step != DraftStep::kOpened) return;
    reached.set_value();
    future.wait();
  };
  const auto host = Host(directory.path(), options);
  std::promise<Completion> first, second;
  host->Begin({.container = "root", .name = "a", .bytes = 1},
              [&](const Completion& completion) { first.set_value(completion); });
  reached.get_future().wait();
  const uint64_t token =
      host->Open({.container = "root", .name = "missing"},
                 [&](const Completion& completion) { second.set_value(completion); });
  host->Cancel(token);
  CHECK(second.get_future().get().status.code() == absl::StatusCode::kCancelled);
  go_on.set_value();
  CHECK(first.get_future().get().status.ok());
}

TEST_CASE("with nothing to do the thread sleeps") {
  const shunt::testing::TempDir directory;
  WriteFile(directory / "f", 4096, 'x');
  const auto host = Host(directory.path());
  REQUIRE(Do([&](StoreHost::Done done) {
            host->Open({.container = "root", .name = "f"}, done);
          }).status.ok());
  // On its thread: what the thread has used so far.
  const auto used = [&] {
    return Do([&](StoreHost::Done done) {
             host->Run([done] {
               timespec time{};
               ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
               done({.bytes = static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
                              static_cast<uint64_t>(time.tv_nsec)});
             });
           })
        .bytes;
  };
  const uint64_t before = used();
  timespec while_idle{.tv_sec = 0, .tv_nsec = 100'000'000};
  ::nanosleep(&while_idle, nullptr);
  CHECK(used() - before < 10'000'000);
}

}  // namespace
}  // namespace shunt::storage
