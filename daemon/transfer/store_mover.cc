#include "daemon/transfer/store_mover.h"

#include <algorithm>

namespace shunt::daemon {
namespace {

// Enough for a device's queue, little beside what a client may post.
constexpr size_t kBatchesMax = 4;
constexpr size_t kBatchPieces = 512;
constexpr uint64_t kBatchBytes = 8 << 20;

// A piece as it is posted, and as a store keeps it.
constexpr uint64_t kPieceBytes = 80;

}  // namespace

uint64_t StoreMover::HeldBytes(const p2p::TransferPlan& plan) {
  p2p::PlanCursor cursor(plan, 0, plan.bytes());
  size_t pieces = 0;
  for (p2p::CopyRun run; pieces < kBatchesMax * kBatchPieces && cursor.Next(&run);) ++pieces;
  return pieces * kPieceBytes;
}

void StoreMover::Start(Ended ended) {
  const bool runs = setup_.host->Run([self = shared_from_this(), ended] {
    self->ended_ = ended;
    self->Advance();
  });
  if (!runs) ended(absl::CancelledError("the store is being closed"));
}

void StoreMover::Cancel(const absl::Status& why) {
  setup_.host->Run([self = shared_from_this(), why] { self->Stop(why); });
}

void StoreMover::Stop(const absl::Status& why) {
  if (!status_.ok()) return;
  status_ = why;
  for (const auto& [batch, token] : under_way_) setup_.host->Cancel(token);
}

std::vector<storage::Piece> StoreMover::NextBatch() {
  std::vector<storage::Piece> pieces;
  for (uint64_t left = kBatchBytes; left > 0 && pieces.size() < kBatchPieces;) {
    if (rest_.bytes == 0 && !(more_ = cursor_.Next(&rest_))) break;
    const uint64_t bytes = std::min(rest_.bytes, left);
    const uint32_t object = setup_.write ? rest_.destination_region : rest_.source_region;
    const uint32_t region = setup_.write ? rest_.source_region : rest_.destination_region;
    const uint64_t at = setup_.write ? rest_.source_offset : rest_.destination_offset;
    pieces.push_back({.object = setup_.objects[object],
                      .offset = setup_.write ? rest_.destination_offset : rest_.source_offset,
                      .memory = absl::MakeSpan(setup_.bases[region] + at, bytes)});
    rest_.source_offset += bytes;
    rest_.destination_offset += bytes;
    rest_.bytes -= bytes;
    left -= bytes;
  }
  return pieces;
}

void StoreMover::Advance() {
  while (status_.ok() && more_ && under_way_.size() < kBatchesMax) {
    storage::TransferRequest request;
    request.urgency = setup_.urgency;
    request.pieces = NextBatch();
    if (request.pieces.empty()) break;
    const uint64_t batch = next_batch_++;
    auto done = [self = shared_from_this(), batch](const storage::Completion& completion) {
      self->Took(batch, completion);
    };
    // Called back later, never from in here: this is the store's thread.
    const uint64_t token = setup_.write ? setup_.host->Write(std::move(request), std::move(done))
                                        : setup_.host->Read(std::move(request), std::move(done));
    under_way_.emplace_back(batch, token);
  }
  if (!under_way_.empty() || (status_.ok() && more_)) return;
  if (const Ended ended = std::exchange(ended_, nullptr)) ended(status_);
}

void StoreMover::Took(uint64_t batch, const storage::Completion& completion) {
  if (completion.status.ok()) {
    bytes_done_.fetch_add(completion.bytes, std::memory_order_relaxed);
  }
  std::erase_if(under_way_, [batch](const auto& one) { return one.first == batch; });
  if (!completion.status.ok()) Stop(completion.status);
  Advance();
}

}  // namespace shunt::daemon
