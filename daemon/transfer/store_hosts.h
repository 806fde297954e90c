// The threads of stores: each user's are its own, so that a file system or a server that does not
// answer one user holds up nobody else.
//
//   user 1000: files ──► StoreHost      user 1001: files ──► StoreHost
//              session 7, keys of it ──► StoreHost
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/clock.h"
#include "runtime/memory/region_table.h"
#include "runtime/storage/store_host.h"

namespace shunt::daemon {

// Thread-safe.
class StoreHosts {
 public:
  struct Limits {
    size_t of_user = 64;  // each is a thread, up to a dozen while it works, and connections
    size_t all = 1024;
    // Of one user, that were told to end and have not: what they use does not answer.
    size_t ending_of_user = 16;
    // What a user's sessions share outlives the last of them for so long: the next may be near.
    std::chrono::nanoseconds linger = std::chrono::seconds(5);
  };
  // Calls a closure at that time, on any thread; as EventLoop::At.
  using At = std::function<void(int64_t at_ns, std::function<void()> closure)>;
  struct Name {
    memory::Owner owner;  // session 0: all sessions of the user share it
    std::string key;      // may hold secrets
    std::string words;    // for the log: "files"
  };

  // `tallies`: where stores count, by their words; outlives this.
  // Without `at` those that linger end with what is asked next.
  explicit StoreHosts(Limits limits, At at = {}, storage::StoreTallies* tallies = nullptr)
      : limits_(limits), at_(std::move(at)), tallies_(tallies) {}
  ~StoreHosts();

  // The one of that name, or a new one whose thread makes its store. One that nobody uses makes
  // room. RESOURCE_EXHAUSTED says of what there are too many, UNAVAILABLE after Stop.
  absl::StatusOr<std::shared_ptr<storage::StoreHost>> Get(const Name& name,
                                                          storage::StoreHost::Make make);
  // Ends those of a session; of session 0, those that the user's sessions share, after a while.
  void End(memory::Owner owner);
  // Ends all. Those that have not by then are left behind, and the log says so.
  void Stop(int64_t deadline_ns);

  // That were told to end and have not.
  size_t ending() const;

 private:
  struct Host {
    Name name;
    std::shared_ptr<storage::StoreHost> host;
    bool ending = false;
    int64_t end_at_ns = kNeverNs;  // unless somebody wants it before
    bool unused() const { return !ending && host.use_count() == 1; }
  };
  void Sweep();
  // mutex_ held: ends those whose time has come, forgets those that have ended.
  void Forget();
  void BeginEnd(Host* host);
  bool MakeRoom(bool any_user, uint32_t user);

  const Limits limits_;
  const At at_;
  storage::StoreTallies* const tallies_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  std::vector<Host> hosts_;
};

}  // namespace shunt::daemon
