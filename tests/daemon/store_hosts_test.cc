// Who gets a thread for a store, how many there may be, and what becomes of those that hang.
#include "daemon/transfer/store_hosts.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/storage/store.h"

namespace shunt::daemon {
namespace {

using storage::Completion;

// Whoever makes or destroys one while it is closed waits.
class Gate {
 public:
  void Close() { opened_ = std::promise<void>(), open_ = opened_.get_future().share(); }
  void Open() { opened_.set_value(); }
  void Pass() {
    ++guests_;
    open_.wait();
  }
  void AwaitGuest() const {
    while (guests_ == 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> guests_ = 0;
  std::promise<void> opened_;
  std::shared_future<void> open_ = [] {
    std::promise<void> now;
    now.set_value();
    return now.get_future().share();
  }();
};

// Ends what is posted with its number.
class CountingStore : public storage::Store {
 public:
  explicit CountingStore(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  ~CountingStore() override { gate_->Pass(); }
  storage::Features features() const override { return {}; }
  void PostOpen(storage::OpenRequest, uint64_t token) override { ended_.push_back(token); }
  void PostRead(storage::TransferRequest, uint64_t token) override { ended_.push_back(token); }
  void PostWrite(storage::TransferRequest, uint64_t token) override { ended_.push_back(token); }
  void PostSync(storage::ObjectId, int64_t, uint64_t token) override { ended_.push_back(token); }
  void PostBegin(storage::BeginRequest request, uint64_t token) override {
    ended_.push_back(token);
    if (request.budget) paid_ = *request.budget(1, "a draft");
  }
  void PostCommit(storage::ObjectId, int64_t, uint64_t token) override { ended_.push_back(token); }
  void PostAbort(storage::ObjectId, uint64_t token) override { ended_.push_back(token); }
  void Close(storage::ObjectId) override {}
  void Cancel(uint64_t) override {}
  size_t Poll(absl::Span<Completion> out) override {
    size_t count = 0;
    while (count < out.size() && !ended_.empty()) {
      out[count++] = {.token = ended_.back(), .object = ++objects_};
      ended_.pop_back();
    }
    return count;
  }
  int fd() const override { return never_.get(); }

 private:
  const std::shared_ptr<Gate> gate_;
  const UniqueFd never_ = *MakeEventFd();
  std::vector<uint64_t> ended_;
  storage::ObjectId objects_ = 0;
  std::shared_ptr<void> paid_;
};

struct World {
  explicit World(StoreHosts::Limits limits) : hosts(limits) {}
  absl::StatusOr<std::shared_ptr<storage::StoreHost>> Get(uint32_t user, uint64_t session = 0,
                                                          const std::string& key = "k") {
    return hosts.Get({{session, user}, key, "test"},
                     [gate = gate]() -> absl::StatusOr<std::unique_ptr<storage::Store>> {
                       return std::make_unique<CountingStore>(gate);
                     });
  }
  void AwaitEnding(size_t count) {
    while (hosts.ending() != count) std::this_thread::yield();
  }

  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  StoreHosts hosts;
};

absl::Status Open(storage::StoreHost& host) {
  std::promise<absl::Status> promise;
  host.Open(storage::OpenRequest{},
            [&](const Completion& completion) { promise.set_value(completion.status); });
  return promise.get_future().get();
}

// Until a thread that was left behind comes back, or does what it must not.
void AwaitRest(const storage::StoreHost& host, const std::atomic<int>& wrong) {
  while (!host.rests() && wrong == 0) std::this_thread::yield();
}

std::string Words(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("each user, and each session's keys, have a store of their own") {
  World world({.linger = {}});
  const auto files = *world.Get(1), again = *world.Get(1);
  CHECK(files == again);
  CHECK(*world.Get(2) != files);
  CHECK(*world.Get(1, 7) != files);
  CHECK(*world.Get(1, 7) == *world.Get(1, 7));
  CHECK(*world.Get(1, 8) != *world.Get(1, 7));
  CHECK(*world.Get(1, 7, "other") != *world.Get(1, 7));
  CHECK(Open(*files).ok());
  world.hosts.End({.session = 7, .tenant = 1});
  CHECK(files->serves());
  world.hosts.End({.session = 0, .tenant = 1});
  CHECK(!files->serves());
  CHECK(*world.Get(1) != files);
}

TEST_CASE("what a user's sessions share outlives the last of them for a while, and then ends") {
  std::vector<std::pair<int64_t, std::function<void()>>> timers;
  StoreHosts hosts({.linger = std::chrono::milliseconds(1)},
                   [&](int64_t at_ns, std::function<void()> closure) {
                     timers.emplace_back(at_ns, std::move(closure));
                   });
  const auto get = [&] {
    return *hosts.Get({{0, 1}, "k", "test"},
                      []() -> absl::StatusOr<std::unique_ptr<storage::Store>> {
                        return std::make_unique<CountingStore>(std::make_shared<Gate>());
                      });
  };
  const auto await = [&](size_t timer) {
    while (NowNs() < timers[timer].first) std::this_thread::yield();
  };
  const auto host = get();
  hosts.End({.session = 0, .tenant = 1});
  REQUIRE(timers.size() == 1);
  await(0);
  CHECK(host->serves());
  timers[0].second();
  CHECK(!host->serves());
  const auto next = get();
  CHECK(next != host);
  hosts.End({.session = 0, .tenant = 1});
  const bool in_time = get() == next;  // as it is, unless this thread was away for so long
  await(1);
  timers[1].second();
  CHECK(next->serves() == in_time);
}

TEST_CASE("a user has so many stores, all users have so many, and unused ones make room") {
  World world({.of_user = 2, .all = 3});
  auto first = *world.Get(1, 1);
  auto second = *world.Get(1, 2);
  const auto full = world.Get(1, 3);
  CHECK(full.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Words(full.status()), Catch::Contains("user 1 has 2 stores in use"));
  second.reset();
  second = *world.Get(1, 3);
  CHECK(first->serves());
  const auto other = *world.Get(2, 4);
  const auto all = world.Get(3, 5);
  CHECK(all.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Words(all.status()), Catch::Contains("all users together have 3 stores"));
  first.reset();
  CHECK(world.Get(3, 5).ok());
}

TEST_CASE("stores that do not end are counted, to their user alone") {
  World world({.ending_of_user = 2});
  world.gate->Close();
  for (uint64_t session = 1; session <= 2; ++session) {
    REQUIRE(world.Get(1, session).ok());
    world.hosts.End({.session = session, .tenant = 1});
  }
  const auto refused = world.Get(1, 3);
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Words(refused.status()), Catch::Contains("user 1 has 2 stores that are to end"));
  CHECK(world.Get(2, 4).ok());
  world.gate->Open();
  world.AwaitEnding(0);
  CHECK(world.Get(1, 3).ok());
}

TEST_CASE("a store that can't be made fails what is posted, and the next is tried anew") {
  StoreHosts hosts({});
  bool luck = false;
  const auto get = [&] {
    return *hosts.Get({{0, 1}, "k", "test"},
                      [&]() -> absl::StatusOr<std::unique_ptr<storage::Store>> {
                        if (!luck) return absl::NotFoundError("no disk");
                        return std::make_unique<CountingStore>(std::make_shared<Gate>());
                      });
  };
  const auto host = get();
  CHECK(Open(*host) == absl::NotFoundError("no disk"));
  while (host->serves()) std::this_thread::yield();
  CHECK(Open(*host) == absl::NotFoundError("no disk"));
  luck = true;
  CHECK(Open(*get()).ok());
}

TEST_CASE("a stop leaves behind what hangs, which then calls nobody back") {
  auto gate = std::make_shared<Gate>();
  std::atomic<int> called = 0;
  std::shared_ptr<storage::StoreHost> hangs;
  {
    StoreHosts hosts({});
    gate->Close();
    hangs = *hosts.Get({{0, 1}, "k", "test"},
                       [gate]() -> absl::StatusOr<std::unique_ptr<storage::Store>> {
                         gate->Pass();
                         return std::make_unique<CountingStore>(gate);
                       });
    hangs->Open(storage::OpenRequest{}, [&](const Completion&) { ++called; });
    hangs->Run([&] { ++called; });
    const auto fine =
        *hosts.Get({{0, 2}, "k", "test"}, []() -> absl::StatusOr<std::unique_ptr<storage::Store>> {
          return std::make_unique<CountingStore>(std::make_shared<Gate>());
        });
    CHECK(Open(*fine).ok());
    hosts.Stop(DeadlineAfterNs(std::chrono::seconds(1)));
    CHECK(fine->finished());
    CHECK(!hangs->finished());
    CHECK(hosts.Get({{0, 3}, "k", "test"}, {}).status().code() == absl::StatusCode::kUnavailable);
  }
  gate->Open();
  AwaitRest(*hangs, called);
  CHECK(called == 0);
}

TEST_CASE("a store that was left behind gives back nothing that its drafts had paid for") {
  std::atomic<int> given_back = 0;
  World world({});
  world.gate->Close();
  const auto host = *world.Get(1);
  std::promise<absl::Status> begun;
  storage::BeginRequest request;
  request.budget = [&](uint64_t, std::string_view) -> absl::StatusOr<std::shared_ptr<void>> {
    return std::shared_ptr<void>(nullptr, [&](void*) { ++given_back; });
  };
  host->Begin(request, [&](const Completion& completion) { begun.set_value(completion.status); });
  REQUIRE(begun.get_future().get().ok());
  // Its store is being freed, which waits for a disk.
  host->BeginStop();
  world.gate->AwaitGuest();
  world.hosts.Stop(NowNs());
  world.gate->Open();
  AwaitRest(*host, given_back);
  CHECK(given_back == 0);
}

TEST_CASE("one that has ended does not count as one that does not end, whoever has it yet") {
  World world({.ending_of_user = 1});
  const auto host = *world.Get(1, 1);
  world.hosts.End({.session = 1, .tenant = 1});
  while (!host->finished()) std::this_thread::yield();
  CHECK(world.Get(1, 2).ok());
}

}  // namespace
}  // namespace shunt::daemon
