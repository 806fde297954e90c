// Lists over whole regions of a session, so that transfers can name any place in them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "client/src/list.h"
#include "client/src/posting.h"
#include "client/src/session.h"

namespace shunt::client::kv {

// Thread-safe.
class RegionLists {
 public:
  explicit RegionLists(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  // A list of the regions of `spans` and no others: a region that a transfer's list names cannot be
  // freed. Kept for the next calls. INVALID_ARGUMENT: a span that lies in no region, or spans in
  // too many.
  absl::StatusOr<std::shared_ptr<const List>> For(std::span<const Span> spans);

 private:
  using Lists = std::map<std::set<uint64_t>, std::shared_ptr<const List>>;

  const std::shared_ptr<Session> session_;
  std::mutex mutex_;
  Lists lists_;
};

}  // namespace shunt::client::kv
