// What a store has its daemon do: transfers between the session's memory and a place of a tier.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/kv/region_lists.h"
#include "client/src/list.h"
#include "client/src/posting.h"
#include "client/src/transfers.h"

namespace shunt::client::kv {

enum class Way : uint8_t { kIntoMemory = 0, kOutOfMemory = 1 };  // shunt.v1.TransferDirection

// Thread-safe.
class Mover {
 public:
  explicit Mover(std::shared_ptr<Session> session)
      : session_(std::move(session)), lists_(session_) {}

  // Between equally many places, piece by piece of equal lengths. Returns when it is posted.
  absl::StatusOr<std::shared_ptr<Transfer>> Start(Way way, std::span<const Span> memory,
                                                  std::span<const Span> other, int64_t deadline_ns);
  // The same with places of `list`, which need not be memory.
  absl::StatusOr<std::shared_ptr<Transfer>> Start(Way way, std::span<const Span> memory,
                                                  std::shared_ptr<const List> list,
                                                  std::span<const ring::PostedPiece> pieces,
                                                  int64_t deadline_ns);
  // Waits for the end, which its own deadline brings.
  static absl::Status Finish(const absl::StatusOr<std::shared_ptr<Transfer>>& transfer);

  const std::shared_ptr<Session>& session() const { return session_; }

 private:
  absl::StatusOr<Selection> Select(std::span<const Span> memory);

  const std::shared_ptr<Session> session_;
  RegionLists lists_;
};

}  // namespace shunt::client::kv
