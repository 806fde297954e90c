// A transfer with a store, as the store sees it: batches, and how it ends.
#include "daemon/transfer/store_mover.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "daemon/transfer/store_regions.h"
#include "runtime/core/fd.h"

namespace shunt::daemon {
namespace {

// Keeps what is posted until it is told how it ends. All on its host's thread.
class HeldStore : public storage::Store {
 public:
  struct Held {
    uint64_t token;
    std::vector<storage::Piece> pieces;
    storage::Urgency urgency;
  };
  std::vector<Held> held;
  std::vector<storage::Piece> moved;
  size_t cancels = 0;

  void End(size_t index, absl::Status status) {
    const Held one = held[index];
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
    if (status.ok()) moved.insert(moved.end(), one.pieces.begin(), one.pieces.end());
    ended_.push_back({.token = one.token, .status = std::move(status)});
  }

  storage::Features features() const override { return {}; }
  void PostRead(storage::TransferRequest request, uint64_t token) override {
    held.push_back({token, std::move(request.pieces), request.urgency});
  }
  void PostWrite(storage::TransferRequest request, uint64_t token) override {
    held.push_back({token, std::move(request.pieces), request.urgency});
  }
  void Cancel(uint64_t token) override {
    ++cancels;
    for (size_t i = 0; i < held.size(); ++i) {
      if (held[i].token == token) return End(i, absl::CancelledError("read: cancelled"));
    }
  }
  size_t Poll(absl::Span<storage::Completion> out) override {
    const size_t count = std::min(out.size(), ended_.size());
    std::move(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count), out.begin());
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  int fd() const override { return never_.get(); }

  void PostOpen(storage::OpenRequest, uint64_t) override {}
  void PostSync(storage::ObjectId, int64_t, uint64_t) override {}
  void PostBegin(storage::BeginRequest, uint64_t) override {}
  void PostCommit(storage::ObjectId, int64_t, uint64_t) override {}
  void PostAbort(storage::ObjectId, uint64_t) override {}
  void Close(storage::ObjectId) override {}

 private:
  const UniqueFd never_ = *MakeEventFd();
  std::vector<storage::Completion> ended_;
};

constexpr storage::ObjectId kObject = 77;

struct World {
  // `pieces` of `length` bytes, which lie backwards in memory.
  World(uint64_t pieces, uint64_t length, storage::Urgency urgency = storage::Urgency::kBulk)
      : bytes(pieces * length), memory(std::make_unique_for_overwrite<std::byte[]>(bytes)) {
    auto owned = std::make_unique<HeldStore>();
    store = owned.get();
    host = *storage::StoreHost::Start(std::move(owned));
    const auto list = [&](p2p::Space space) {
      p2p::Section section;
      section.name = "x";
      section.regions = {{1, bytes}};
      section.sets = {{1, 0, length, {{{pieces, static_cast<int64_t>(length)}}}}};
      return *p2p::PreparedList::Prepare(std::move(section), space);
    };
    std::vector<uint64_t> backwards(pieces);
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    StoreMover::Setup setup;
    setup.plan = plan = *p2p::TransferPlan::Make(*p2p::Selection::All(list(kStoreSpace)),
                                                 *p2p::Selection::Ids(list(0), backwards));
    setup.host = host;
    setup.urgency = urgency;
    setup.bases = {memory.get()};
    setup.objects = {kObject};
    mover = std::make_shared<StoreMover>(std::move(setup));
  }
  void OnThread(const std::function<void()>& f) {
    std::promise<void> done;
    host->Run([&] {
      f();
      done.set_value();
    });
    done.get_future().get();
  }
  // What was posted on the thread before has reached the store.
  void Settle() {
    for (int i = 0; i < 3; ++i) OnThread([] {});
  }
  void Start() {
    mover->Start([this](const absl::Status& status) { ended.push_back(status); });
    Settle();
  }
  void End(size_t index, const absl::Status& status) {
    OnThread([&] { store->End(index, status); });
    Settle();
  }

  const uint64_t bytes;
  const std::unique_ptr<std::byte[]> memory;
  std::shared_ptr<const p2p::TransferPlan> plan;
  HeldStore* store = nullptr;
  std::shared_ptr<storage::StoreHost> host;
  std::shared_ptr<StoreMover> mover;
  std::vector<absl::Status> ended;
};

TEST_CASE("a few batches are under way at a time, and each byte is moved once") {
  constexpr uint64_t kPieces = 10'000, kLength = 512;
  World world(kPieces, kLength);
  world.Start();
  size_t rounds = 0;
  for (; world.ended.empty(); ++rounds) {
    REQUIRE(world.store->held.size() <= 4);
    REQUIRE_FALSE(world.store->held.empty());
    for (const HeldStore::Held& held : world.store->held) CHECK(held.pieces.size() <= 512);
    // Not in their order.
    world.End(rounds % world.store->held.size(), absl::OkStatus());
  }
  CHECK(world.ended == std::vector<absl::Status>{absl::OkStatus()});
  CHECK(rounds >= kPieces / 512);
  std::vector<storage::Piece>& moved = world.store->moved;
  std::sort(moved.begin(), moved.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  uint64_t next = 0;
  bool right = true;
  for (const storage::Piece& piece : moved) {
    const uint64_t number = next / kLength;
    right = right && piece.object == kObject && piece.offset == next &&
            piece.memory.data() == world.memory.get() + (kPieces - 1 - number) * kLength;
    next += piece.memory.size();
  }
  CHECK(right);
  CHECK(next == world.bytes);
}

TEST_CASE("every batch of a transfer tells its store how urgent it is") {
  for (const auto urgency : {storage::Urgency::kLatency, storage::Urgency::kBackground}) {
    World world(3000, 512, urgency);
    world.Start();
    while (world.ended.empty()) {
      for (const HeldStore::Held& held : world.store->held) CHECK(held.urgency == urgency);
      world.End(0, absl::OkStatus());
    }
  }
}

TEST_CASE("what a transfer has under way does not grow with it") {
  const auto held = [](uint64_t pieces) {
    const World world(pieces, 512);
    return StoreMover::HeldBytes(*world.plan);
  };
  CHECK(held(10) == 10 * held(1));
  CHECK(held(10'000) == 2048 * held(1));
  CHECK(held(100'000) == held(10'000));
}

TEST_CASE("a long piece is cut into batches") {
  World world(1, 100 << 20);
  world.Start();
  CHECK(world.store->held.size() == 4);
  while (world.ended.empty()) {
    for (const auto& held : world.store->held) CHECK(held.pieces[0].memory.size() <= 8 << 20);
    world.End(0, absl::OkStatus());
  }
  CHECK(world.store->moved.size() == 13);
}

TEST_CASE("what goes wrong first ends it, once nothing touches its memory any more") {
  World world(10'000, 512);
  world.Start();
  world.End(1, absl::DataLossError("the disk"));
  CHECK(world.store->cancels == 3);
  CHECK(world.store->held.empty());
  CHECK(world.ended == std::vector<absl::Status>{absl::DataLossError("the disk")});
  // The last batch of all.
  World last(1, 512);
  last.Start();
  last.End(0, absl::DataLossError("the disk"));
  CHECK(last.ended == std::vector<absl::Status>{absl::DataLossError("the disk")});
}

TEST_CASE("a cancel tells its reason, also before the start") {
  World world(10'000, 512);
  world.Start();
  world.mover->Cancel(absl::UnavailableError("first"));
  world.mover->Cancel(absl::CancelledError("second"));
  world.Settle();
  CHECK(world.ended == std::vector<absl::Status>{absl::UnavailableError("first")});
  World early(10, 512);
  early.mover->Cancel(absl::UnavailableError("first"));
  early.Start();
  CHECK(early.ended == std::vector<absl::Status>{absl::UnavailableError("first")});
  CHECK(early.store->held.empty());
  CHECK(early.store->moved.empty());
}

TEST_CASE("a transfer ends also when its store goes") {
  World world(10'000, 512);
  world.Start();
  world.host->Stop();
  REQUIRE(world.ended.size() == 1);
  CHECK(world.ended[0].code() == absl::StatusCode::kCancelled);
  World late(10, 512);
  late.host->Stop();
  late.mover->Start([&](const absl::Status& status) { late.ended.push_back(status); });
  REQUIRE(late.ended.size() == 1);
  CHECK(late.ended[0].code() == absl::StatusCode::kCancelled);
}

TEST_CASE("a start, a cancel and a stop at the same moment end a transfer once") {
  World world(10'000, 512);
  // All three are there before the thread looks.
  world.host->Run([&] {
    world.mover->Start([&](const absl::Status& status) { world.ended.push_back(status); });
    world.mover->Cancel(absl::UnavailableError("the agent has ended"));
    world.host->BeginStop();
  });
  world.host->Stop();
  REQUIRE(world.ended.size() == 1);
  CHECK(!world.ended[0].ok());
}

}  // namespace
}  // namespace shunt::daemon
