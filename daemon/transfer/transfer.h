// One transfer in flight: between mapped regions, with another node, with a store, or on a GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/event_loop.h"
#include "daemon/session.h"
#include "daemon/transfer/agent_table.h"
#include "runtime/memory/region_table.h"
#include "runtime/p2p/copier.h"
#include "runtime/p2p/work_pool.h"

namespace shunt::daemon {

// What moves it. Each has a pace of its own.
enum class Route : uint8_t { kCopy, kPull, kPush, kRead, kWrite, kGpu };
inline constexpr size_t kRoutes = 6;
const char* RouteName(Route route);

struct TransferReport {
  absl::Status outcome;
  uint64_t bytes = 0;
  Route route = Route::kCopy;
  uint64_t waited_ns = 0;
  uint64_t moved_ns = 0;
};

// Thread-safe.
class Transfer final : public p2p::Work {
 public:
  struct Setup {
    uint64_t id = 0;
    std::shared_ptr<Session> session;
    bool on_ring = false;          // its completion goes to the session's ring
    uint64_t counterpart = 0;      // the session whose memory the remote side is; 0: elsewhere
    std::string counterpart_text;  // for its death
    uint64_t bytes = 0;
    Route route = Route::kCopy;
    p2p::Priority priority = p2p::Priority::kBulk;
    // Either a copy here, and every region that it touches; or what ends it on another thread,
    // which then calls Finish.
    std::vector<memory::RegionUse> uses;
    std::unique_ptr<p2p::Copier> copier;
    std::function<void(const absl::Status&)> cancel;
    std::shared_ptr<void> charge;  // what it takes of the session's memory
    std::shared_ptr<Inbox> inbox;  // a place is reserved; null: no notification from here
    Notification notification;
    // Once, on whichever thread finds that it is over.
    std::function<void(Transfer&)> ended;
  };
  explicit Transfer(Setup setup) : setup_(std::move(setup)), posted_ns_(NowNs()) {}

  bool Step() override;
  // Ends it soon, for that reason, unless it has all been moved. The first reason counts.
  void Cancel(const absl::Status& why);
  // Instead of beginning: nothing of it happens.
  void GiveUp();
  // Of one without a copier: it is over. Once.
  void Finish(const absl::Status& outcome);

  // Why it is to end; OK if it is not.
  absl::Status cancelled();

  uint64_t id() const { return setup_.id; }
  Session& session() const { return *setup_.session; }
  bool on_ring() const { return setup_.on_ring; }
  uint64_t counterpart() const { return setup_.counterpart; }
  const std::string& counterpart_text() const { return setup_.counterpart_text; }
  uint64_t bytes() const { return setup_.bytes; }
  p2p::Priority priority() const { return setup_.priority; }
  uint64_t chunks() const { return setup_.copier->chunks(); }
  bool is_copy() const { return setup_.route == Route::kCopy; }

  // In `ended` and after it.
  TransferReport report() const;

  // Of the table.
  EventLoop::TimerId timer = 0;
  std::vector<UniqueFd> events;
  std::function<void(const TransferReport&)> waiter;

 private:
  void TellIfOver();

  Setup setup_;
  const int64_t posted_ns_;
  std::atomic<int64_t> began_ns_ = 0;
  int64_t ended_ns_ = 0;
  std::mutex mutex_;
  absl::Status cancelled_;
  absl::Status outcome_;
  std::atomic<bool> told_ = false;
};

}  // namespace shunt::daemon
