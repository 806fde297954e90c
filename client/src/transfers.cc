#include "client/src/transfers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// Enough for some thousand small posts, or 130,000 ids at both sides.
constexpr size_t kArenaRegionBytes = size_t{1} << 20;

}  // namespace

Transfers::Transfers(Session* session)
    : session_(session),
      arena_(
          kArenaRegionBytes,
          [session](size_t bytes) -> absl::StatusOr<PostArena::Region> {
            SHUNT_ASSIGN_OR_RETURN(void* const data, session->Allocate(bytes));
            return PostArena::Region{session->regions().OwnId(data), static_cast<std::byte*>(data),
                                     bytes};
          },
          [session](const PostArena::Region& region) { (void)session->Free(region.data); }) {}

absl::StatusOr<std::shared_ptr<Transfer>> Transfers::Start(const Posting& posting) {
  SHUNT_RETURN_IF_ERROR(Check(posting));
  SHUNT_ASSIGN_OR_RETURN(const PostArena::Block block, arena_.Take(PostedBytes(posting)));
  auto transfer = std::make_shared<Transfer>(session_->shared_from_this(),
                                             session_->ring().NextToken(), posting);
  transfer->block_ = block;
  absl::Status started =
      WritePosting(posting, session_->regions(), block.data, block.offset, &transfer->regions_);
  if (started.ok()) {
    {
      // Before it is submitted: its completion may come at once.
      std::lock_guard lock(mutex_);
      transfers_.emplace(transfer->id(), transfer);
      in_flight_.store(transfers_.size(), std::memory_order_release);
    }
    ring::Submission submission{};
    submission.token = transfer->id();
    submission.opcode = static_cast<uint32_t>(ring::Opcode::kTransfer);
    submission.communicator_id = block.region;
    submission.sequence = block.offset;
    submission.deadline_ns = posting.deadline_ns;
    started = session_->Submit(submission);
    if (started.ok()) return transfer;
    std::lock_guard lock(mutex_);
    transfers_.erase(transfer->id());
    in_flight_.store(transfers_.size(), std::memory_order_release);
  }
  arena_.Give(block);
  return started;
}

absl::StatusOr<TransferExplained> Transfers::Explain(const Posting& posting) {
  SHUNT_RETURN_IF_ERROR(Check(posting));
  ExplainTransfer request{posting.direction, posting.transfer_class, {}, {}};
  SHUNT_ASSIGN_OR_RETURN(request.local, ToMessage(posting.local, "local", session_->regions()));
  SHUNT_ASSIGN_OR_RETURN(request.remote, ToMessage(posting.remote, "remote", session_->regions()));
  SHUNT_ASSIGN_OR_RETURN(const LeaseConnection::Reply reply,
                         session_->lease().Call(request, RequestDeadlineNs()));
  const auto* explained = std::get_if<TransferExplained>(&reply.message.response);
  if (explained == nullptr) {
    return absl::InternalError("shuntd's reply to ExplainTransfer has no explanation");
  }
  return *explained;
}

void Transfers::Ended(const ring::Completion& completion) {
  if (in_flight_.load(std::memory_order_acquire) == 0) return;
  std::shared_ptr<Transfer> transfer;
  {
    std::lock_guard lock(mutex_);
    const auto at = transfers_.find(completion.token);
    if (at == transfers_.end()) return;
    transfer = std::move(at->second);
    transfers_.erase(at);
    in_flight_.store(transfers_.size(), std::memory_order_release);
  }
  arena_.Give(transfer->block_);
  transfer->End(completion.code);
}

void Transfers::ForgetAll() {
  // Dropped after the lock: they let go of lists, and so of sessions.
  std::unordered_map<uint64_t, std::shared_ptr<Transfer>> forgotten;
  std::lock_guard lock(mutex_);
  forgotten.swap(transfers_);
  in_flight_.store(0, std::memory_order_release);
}

bool Transfers::Uses(uint64_t region_id, std::string* what) {
  session_->ring().Collect();
  std::lock_guard lock(mutex_);
  for (const auto& [id, transfer] : transfers_) {
    const std::vector<uint64_t>& spans = transfer->regions_;
    if (transfer->local_->Names(region_id) || transfer->remote_->Names(region_id) ||
        std::find(spans.begin(), spans.end(), region_id) != spans.end()) {
      *what = transfer->Describe();
      return true;
    }
  }
  return false;
}

}  // namespace shunt::client
