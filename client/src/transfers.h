// Transfers in flight: posted on the ring, ended by completions that whoever waits collects for
// all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/post_arena.h"
#include "client/src/posting.h"
#include "client/src/session.h"
#include "runtime/core/fd.h"
#include "runtime/ring/layout.h"

namespace shunt::client {

// One transfer. Thread-safe. Keeps its session.
class Transfer {
 public:
  Transfer(std::shared_ptr<Session> session, uint64_t id, const Posting& posting);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // The token of its submission: the daemon's name for it.
  uint64_t id() const { return id_; }
  Session& session() const { return *session_; }
  // "pull #17".
  std::string Describe() const;

  // True when it has ended. Never waits for it.
  bool Poll();
  // The same, after waiting until `deadline_ns` (CLOCK_MONOTONIC) at most.
  bool Wait(int64_t deadline_ns);
  // Of one that has ended. Words for a failure are fetched from the daemon when they are first
  // asked for.
  absl::Status Outcome();
  // FAILED_PRECONDITION while it has not ended, the outcome if that is a failure.
  absl::StatusOr<TransferReport> Report();
  // See shunt_transfer_fd.
  absl::StatusOr<int> EventFd();
  // OK also if it has ended.
  absl::Status Cancel();

 private:
  friend class Transfers;

  static constexpr int32_t kRunning = -1;

  bool ended() const { return code_.load(std::memory_order_acquire) != kRunning; }
  // False if it had ended.
  bool End(int32_t code);
  void Abandon();
  // What the daemon says of a transfer before it has found it in the ring is NOT_FOUND.
  absl::Status Tell(const LeaseRequest& request, std::span<const int> fds);

  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  const uint8_t direction_;
  // Own ones keep their regions from being freed.
  const std::shared_ptr<const List> local_;
  const std::shared_ptr<const List> remote_;
  std::vector<uint64_t> regions_;
  PostArena::Block block_;
  std::atomic<uint32_t> polls_{0};

  std::atomic<int32_t> code_{kRunning};  // google.rpc.Code once it has ended

  std::mutex mutex_;  // the rest
  std::optional<absl::Status> outcome_;
  std::optional<TransferReport> report_;
  UniqueFd event_;
};

// A session's transfers. Thread-safe.
class Transfers {
 public:
  explicit Transfers(Session* session);

  // RESOURCE_EXHAUSTED if too many are in flight.
  absl::StatusOr<std::shared_ptr<Transfer>> Start(const Posting& posting);
  // What it would do.
  absl::StatusOr<TransferExplained> Explain(const Posting& posting);
  // From the ring; not for a transfer's completion: nothing happens.
  void Ended(const ring::Completion& completion);
  // Of a session that is over: lets go of what no completion will come for.
  void ForgetAll();
  // Whether one in flight uses the session's region, and which.
  bool Uses(uint64_t region_id, std::string* what);

 private:
  Session* const session_;
  PostArena arena_;
  std::atomic<size_t> in_flight_{0};
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Transfer>> transfers_;
};

}  // namespace shunt::client
