#include "tests/board/world.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "runtime/core/check.h"
#include "runtime/core/clock.h"

namespace shunt::testing {
namespace {

constexpr uint64_t kStagingIds = 1000;
constexpr size_t kStagingBytes = 64 << 20;

// One packet of the pipe that stands for all sessions' rings.
struct Notification {
  uint64_t seq;
  int64_t deadline_ns;
  uint32_t channel;
  int32_t rank;
  uint32_t serve;
};

board::BoardShape ShapeOf(const WorldOptions& options) {
  return {.ranks = options.ranks, .world = options.ranks, .device = options.device_board};
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes) : bytes_(bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SHUNT_CHECK(p != MAP_FAILED);
  data_ = static_cast<std::byte*>(p);
}

SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

int64_t Soon(int seconds) { return DeadlineAfterNs(std::chrono::seconds(seconds)); }

std::byte* FakeHost::Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) {
  if (on_resolve) on_resolve();
  return world_->Resolve(rank, region, offset, bytes);
}

absl::Status FakeHost::Notify(uint32_t channel, uint64_t seq, bool serve, int64_t deadline_ns) {
  if (serve && refuse) {
    if (absl::Status s = refuse(); !s.ok()) return s;
  }
  (serve ? serves : kicks).fetch_add(1);
  const Notification n{seq, deadline_ns, channel, rank_, serve ? 1u : 0u};
  if (world_->options_.daemon)
    SHUNT_CHECK(::write(world_->notifications_[1], &n, sizeof(n)) == sizeof(n));
  return absl::OkStatus();
}

absl::StatusOr<board::MemberHost::Staging> FakeHost::AllocateStaging(size_t bytes) {
  auto& used = *reinterpret_cast<std::atomic<uint64_t>*>(world_->staging_.data());
  const uint64_t at = used.fetch_add(bytes) + 4096;
  SHUNT_CHECK(at + bytes <= kStagingBytes);
  return Staging{kStagingIds + at, world_->staging_.data() + at};
}

board::RegionRef FakeHost::Find(const void* p, size_t bytes) {
  const std::byte* data = static_cast<const std::byte*>(p);
  const std::byte* begin = world_->region(rank_);
  if (data < begin || bytes > world_->region_bytes()) return {};
  const uint64_t offset = static_cast<uint64_t>(data - begin);
  if (offset > world_->region_bytes() - bytes) return {};
  return {World::RegionId(rank_), offset};
}

// Queues of served operations, one for each channel, as the real daemon keeps them.
class World::Daemon {
 public:
  explicit Daemon(World* world) : world_(world), thread_([this] { Loop(); }) {}
  ~Daemon() {
    const Notification stop{0, 0, 0, -1, 0};
    SHUNT_CHECK(::write(world_->notifications_[1], &stop, sizeof(stop)) == sizeof(stop));
    thread_.join();
  }

 private:
  struct Served {
    int rank;
    int64_t deadline_ns;
  };

  void Loop() {
    while (true) {
      int64_t wake_ns = kNeverNs;
      for (const auto& [channel, queue] : pending_) {
        for (const auto& [seq, served] : queue) wake_ns = std::min(wake_ns, served.deadline_ns);
      }
      const int64_t wait_ns = wake_ns - NowNs();
      const int timeout_ms =
          wake_ns == kNeverNs
              ? -1
              : static_cast<int>(std::clamp<int64_t>(wait_ns / 1'000'000 + 1, 0, 1000));
      pollfd p{world_->notifications_[0], POLLIN, 0};
      if (::poll(&p, 1, timeout_ms) == 1) {
        Notification n;
        SHUNT_CHECK(::read(world_->notifications_[0], &n, sizeof(n)) == sizeof(n));
        if (n.rank < 0) return;
        if (n.serve != 0) pending_[n.channel][n.seq] = {n.rank, n.deadline_ns};
        RunChannel(n.channel);
      }
      for (auto& [channel, queue] : pending_) {
        for (const auto& [seq, served] : std::map<uint64_t, Served>(queue)) {
          if (served.deadline_ns <= NowNs())
            (void)world_->server_->Expire(channel, seq, served.rank);
        }
        RunChannel(channel);
      }
    }
  }

  void RunChannel(uint32_t channel) {
    std::map<uint64_t, Served>& queue = pending_[channel];
    while (!queue.empty()) {
      const uint64_t seq = queue.begin()->first;
      if (world_->server_->Serve(channel, seq) == board::Service::kPending) return;
      queue.erase(seq);
    }
  }

  World* world_;
  std::map<uint32_t, std::map<uint64_t, Served>> pending_;
  std::thread thread_;
};

World::World(WorldOptions options)
    : options_(options),
      board_memory_(board::Board::BytesFor(ShapeOf(options))),
      arena_(options.region_bytes * static_cast<size_t>(options.ranks)),
      staging_(kStagingBytes),
      board_(board_memory_.data(), ShapeOf(options)),
      members_(static_cast<size_t>(options.ranks)) {
  SHUNT_CHECK(::pipe(notifications_) == 0);
  board_.KeepCalls(options.calls_kept);
  board_.Initialize(1, 1, "test");
  for (int rank = 0; rank < options.ranks; ++rank) {
    board_.row(rank).pid.store(1000 + rank);
    hosts_.push_back(std::make_unique<FakeHost>(this, rank));
  }
  daemon_host_ = std::make_unique<FakeHost>(this, -1);
  server_ = std::make_unique<board::Server>(board_, daemon_host_.get());
}

World::~World() {
  daemon_.reset();
  ::close(notifications_[0]);
  ::close(notifications_[1]);
}

void World::StartDaemon() { daemon_ = std::make_unique<Daemon>(this); }

board::Member& World::member(int rank) {
  std::lock_guard lock(mutex_);
  if (members_[rank] == nullptr) {
    members_[rank] =
        std::make_unique<board::Member>(board_, rank, hosts_[rank].get(), options_.member);
  }
  return *members_[rank];
}

std::byte* World::Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) const {
  if (rank < 0 || rank >= options_.ranks) return nullptr;
  if (region >= kStagingIds) {
    const uint64_t at = region - kStagingIds;
    if (at > kStagingBytes || offset > kStagingBytes - at || bytes > kStagingBytes - at - offset)
      return nullptr;
    return staging_.data() + at + offset;
  }
  if (region != RegionId(rank) || offset > options_.region_bytes ||
      bytes > options_.region_bytes - offset) {
    return nullptr;
  }
  return this->region(rank) + offset;
}

void World::Run(const std::function<void(int rank)>& body) {
  if (options_.daemon && daemon_ == nullptr) StartDaemon();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank) threads.emplace_back(body, rank);
  for (std::thread& t : threads) t.join();
}

void World::Complain(std::string what) {
  std::lock_guard lock(mutex_);
  if (complaints_.size() < 5) complaints_.push_back(std::move(what));
}

std::string World::complaints() {
  std::lock_guard lock(mutex_);
  std::string all;
  for (const std::string& c : complaints_) all += c + "\n";
  return all;
}

}  // namespace shunt::testing
