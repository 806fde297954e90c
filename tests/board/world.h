// A whole communicator in one process: a board and every rank's memory in shared mappings, a host
// for each rank, and optionally a daemon. Ranks are threads, or processes forked from here:
// everything that they share is mapped before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/board/layout.h"
#include "runtime/board/member.h"
#include "runtime/board/server.h"

namespace shunt::testing {

// Zeroed shared memory that also forked children share.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  ~SharedMemory();
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

struct WorldOptions {
  int ranks = 2;
  size_t region_bytes = 8 << 20;  // of each rank
  board::MemberOptions member = {.spin_ns = 0, .yield_ns = 50'000};
  // A thread that does what shuntd does with notifications.
  bool daemon = false;
  // Nothing moves until somebody plays the daemon's part.
  bool device_board = false;
  // Of each rank, as the daemon's configuration says; 0: none.
  uint32_t calls_kept = 0;
};

class World;

// One rank's end of the session, as libshunt has it.
class FakeHost : public board::MemberHost {
 public:
  FakeHost(World* world, int rank) : world_(world), rank_(rank) {}

  std::byte* Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) override;
  absl::Status Notify(uint32_t channel, uint64_t seq, bool serve, int64_t deadline_ns) override;
  absl::StatusOr<Staging> AllocateStaging(size_t bytes) override;
  bool DaemonGone() override {
    long_sleeps.fetch_add(1);
    return daemon_gone.load();
  }
  board::RegionRef Find(const void* p, size_t bytes) override;

  std::atomic<bool> daemon_gone{false};
  std::atomic<int> serves{0};
  std::atomic<int> kicks{0};
  std::atomic<int> long_sleeps{0};  // a member slept until it looked for the daemon: nobody woke it
  // What Notify answers to the next kServe.
  std::function<absl::Status()> refuse;
  // Called by every Resolve of this rank's process.
  std::function<void()> on_resolve;

 private:
  World* world_;
  int rank_;
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();

  int ranks() const { return options_.ranks; }
  const board::Board& board() const { return board_; }
  board::Server& server() { return *server_; }
  FakeHost& host(int rank) { return *hosts_[rank]; }
  // Made on first use, in the calling process.
  board::Member& member(int rank);

  // The rank's registered region, id rank + 1.
  std::byte* region(int rank) const { return arena_.data() + rank * options_.region_bytes; }
  size_t region_bytes() const { return options_.region_bytes; }
  static uint64_t RegionId(int rank) { return static_cast<uint64_t>(rank) + 1; }
  std::byte* Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) const;

  // Runs `body` once for each rank, in threads, and waits for all.
  void Run(const std::function<void(int rank)>& body);
  // Notes what went wrong; any thread. The first few are kept.
  void Complain(std::string what);
  std::string complaints();

  // Starts the daemon later, say after forking.
  void StartDaemon();

 private:
  friend class FakeHost;
  class Daemon;

  const WorldOptions options_;
  SharedMemory board_memory_;
  SharedMemory arena_;
  SharedMemory staging_;  // its first line counts what has been given out
  board::Board board_;
  int notifications_[2];
  std::vector<std::unique_ptr<FakeHost>> hosts_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<board::Member>> members_;
  std::vector<std::string> complaints_;
  std::unique_ptr<FakeHost> daemon_host_;
  std::unique_ptr<board::Server> server_;
  std::unique_ptr<Daemon> daemon_;
};

// A deadline that only a hang reaches.
int64_t Soon(int seconds = 20);

}  // namespace shunt::testing
