#include "runtime/board/failure.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/board/bell.h"
#include "runtime/core/clock.h"
#include "runtime/core/types.h"
#include "runtime/core/utf8.h"

namespace shunt::board {
namespace {

constexpr uint32_t kWriting = 1;
constexpr uint32_t kReadable = 2;

absl::StatusCode CodeOf(uint32_t reason) {
  switch (static_cast<FailureReason>(reason)) {
    case FailureReason::kMismatch:
      return absl::StatusCode::kFailedPrecondition;
    case FailureReason::kAbsent:
    case FailureReason::kStuck:
      return absl::StatusCode::kDeadlineExceeded;
    case FailureReason::kRankDied:
    case FailureReason::kRankLeft:
    case FailureReason::kDaemonGone:
      return absl::StatusCode::kUnavailable;
    case FailureReason::kAborted:
      return absl::StatusCode::kAborted;
    case FailureReason::kBadMemory:
      return absl::StatusCode::kInvalidArgument;
    case FailureReason::kNone:
      break;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

FailureReason ReasonOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kFailedPrecondition:
      return FailureReason::kMismatch;
    case absl::StatusCode::kDeadlineExceeded:
      return FailureReason::kAbsent;
    case absl::StatusCode::kAborted:
      return FailureReason::kAborted;
    case absl::StatusCode::kInvalidArgument:
      return FailureReason::kBadMemory;
    default:
      return FailureReason::kRankDied;
  }
}

namespace {

std::string CallWords(uint32_t kind, uint32_t dtype, uint32_t redop, int root, int peer,
                      uint64_t seq, uint64_t count) {
  const auto k = static_cast<OpKind>(kind);
  // Debian's absl::string_view is a type of its own.
  const auto word = [](std::string_view s) { return absl::string_view(s.data(), s.size()); };
  std::string text = absl::StrCat(word(Name(k)), " #", seq);
  if (k == OpKind::kBarrier) return text;
  absl::StrAppend(&text, " ", word(Name(static_cast<DataType>(dtype))));
  if (Reduces(k)) absl::StrAppend(&text, " ", word(Name(static_cast<Redop>(redop))));
  if (k != OpKind::kAllToAllV) absl::StrAppend(&text, " count ", count);
  if (HasRoot(k)) absl::StrAppend(&text, " root ", root);
  if (k == OpKind::kSend) absl::StrAppend(&text, " to rank ", peer);
  if (k == OpKind::kRecv) absl::StrAppend(&text, " from rank ", peer);
  return text;
}

}  // namespace

void RecordFailure(const Board& board, FailureReason reason, int rank, std::string_view text) {
  Failure& f = board.header().failure;
  uint32_t none = 0;
  if (f.state.compare_exchange_strong(none, kWriting, std::memory_order_acq_rel)) {
    f.reason = static_cast<uint32_t>(reason);
    f.rank = rank;
    f.text_size = static_cast<uint32_t>(std::min(text.size(), kFailureTextBytes));
    std::memcpy(f.text, text.data(), f.text_size);
    f.state.store(kReadable, std::memory_order_seq_cst);
  }
  RingAll(board);
}

absl::Status FailureStatus(const Board& board) {
  return HasFailed(board) ? AwaitFailure(board) : absl::OkStatus();
}

absl::Status AwaitFailure(const Board& board, int64_t patience_ns) {
  const Failure& f = board.header().failure;
  const int64_t patience = NowNs() + patience_ns;
  while (f.state.load(std::memory_order_acquire) != kReadable) {
    if (NowNs() > patience) {
      return absl::UnavailableError(
          absl::StrCat("communicator ", NameText(board),
                       " failed; the rank that found out died before it said why"));
    }
  }
  const size_t size = std::min<size_t>(f.text_size, kFailureTextBytes);
  return absl::Status(CodeOf(f.reason), Printable(std::string_view(f.text, size)));
}

absl::Status DeadCommunicator(const Board& board, const absl::Status& failure) {
  return absl::Status(
      failure.code(),
      absl::StrCat("communicator ", NameText(board),
                   " has failed and takes no more work: leave it and join again; it failed with: ",
                   failure.message()));
}

std::string RankText(const Board& board, int rank) {
  return absl::StrCat("rank ", board.shape().Number(rank), " (pid ",
                      board.row(rank).pid.load(std::memory_order_relaxed), ")");
}

std::string CallText(const Board& board, uint32_t channel, uint64_t seq, const PostBody& body) {
  int peer = -1;
  if (channel != 0) {
    const Board::Pair pair = board.PairOf(channel);
    peer = static_cast<OpKind>(body.kind) == OpKind::kSend ? pair.destination : pair.source;
  }
  return CallWords(body.kind, body.dtype, body.redop, body.root, peer, seq, body.count);
}

CallRecord LastCallRecord(const Board& board, int rank) {
  const LastCall& last = board.last_call(rank);
  return {last.sequence.load(std::memory_order_relaxed), last.words.load(std::memory_order_relaxed),
          last.count.load(std::memory_order_relaxed)};
}

std::string Text(const CallRecord& call) {
  if (call.sequence == 0) return "";
  const int root_or_peer = static_cast<int16_t>(call.words >> 32);
  return CallWords(call.words & 0xff, (call.words >> 8) & 0xff, (call.words >> 16) & 0xff,
                   root_or_peer, root_or_peer, call.sequence, call.count);
}

std::string LastCallText(const Board& board, int rank) { return Text(LastCallRecord(board, rank)); }

std::string NameText(const Board& board) {
  const Header& h = board.header();
  return absl::StrCat("'", Printable(std::string_view(h.name, ::strnlen(h.name, sizeof(h.name)))),
                      "'");
}

}  // namespace shunt::board
