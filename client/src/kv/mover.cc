#include "client/src/kv/mover.h"

#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client::kv {

absl::StatusOr<Selection> Mover::Select(std::span<const Span> memory) {
  Selection selection;
  SHUNT_ASSIGN_OR_RETURN(selection.list, lists_.For(memory));
  selection.form = ring::PostedForm::kRaw;
  selection.spans = true;
  selection.data = memory.data();
  selection.count = memory.size();
  return selection;
}

absl::StatusOr<std::shared_ptr<Transfer>> Mover::Start(Way way, std::span<const Span> memory,
                                                       std::span<const Span> other,
                                                       int64_t deadline_ns) {
  Posting posting;
  posting.direction = static_cast<uint8_t>(way);
  posting.deadline_ns = deadline_ns;
  SHUNT_ASSIGN_OR_RETURN(posting.local, Select(memory));
  SHUNT_ASSIGN_OR_RETURN(posting.remote, Select(other));
  return session_->transfers().Start(posting);
}

absl::StatusOr<std::shared_ptr<Transfer>> Mover::Start(Way way, std::span<const Span> memory,
                                                       std::shared_ptr<const List> list,
                                                       std::span<const ring::PostedPiece> pieces,
                                                       int64_t deadline_ns) {
  Posting posting;
  posting.direction = static_cast<uint8_t>(way);
  posting.deadline_ns = deadline_ns;
  SHUNT_ASSIGN_OR_RETURN(posting.local, Select(memory));
  posting.remote.list = std::move(list);
  posting.remote.form = ring::PostedForm::kRaw;
  posting.remote.data = pieces.data();
  posting.remote.count = pieces.size();
  return session_->transfers().Start(posting);
}

absl::Status Mover::Finish(const absl::StatusOr<std::shared_ptr<Transfer>>& transfer) {
  SHUNT_RETURN_IF_ERROR(transfer.status());
  (*transfer)->Wait(kNeverNs);
  return (*transfer)->Outcome();
}

}  // namespace shunt::client::kv
