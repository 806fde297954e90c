#include "runtime/board/records.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/board/arrival.h"
#include "runtime/board/post.h"
#include "runtime/core/clock.h"
#include "runtime/core/types.h"

namespace shunt::board {
namespace {

// Of a communicator, that are looked at: ranks may say that they have any.
constexpr size_t kOpenMax = 4096;

OpKind KindOf(uint64_t words) { return static_cast<OpKind>(words & 0xff); }

// True if every rank of this node has let go of it.
bool AllRetired(const Channel& channel, uint64_t sequence) {
  for (int p = 0; p < channel.participants(); ++p) {
    if (channel.retired(p).sequence.load(std::memory_order_acquire) < sequence) return false;
  }
  return true;
}

OpenOperation Look(const Board& board, uint32_t id, uint64_t sequence) {
  const Channel channel = board.channel(id);
  OpenOperation open;
  open.channel = id;
  open.sequence = sequence;
  if (id != 0) {
    const Board::Pair pair = board.PairOf(id);
    open.source = pair.source;
    open.destination = pair.destination;
  }
  bool off_board = false, later = false;
  for (int p = 0; p < channel.participants(); ++p) {
    const Post& post = channel.post(sequence, p);
    const uint64_t word = post.word.load(std::memory_order_acquire);
    const int rank = board.RankOf(id, p);
    later |= word >> 2 > sequence;
    if (word == PostedWord(sequence)) {
      open.posted.push_back(rank);
      off_board |= ArrivalScan::OffBoard(ReadBody(post));
    } else if (word >> 2 <= sequence) {
      open.missing.push_back(rank);
    }
    if (channel.progress(sequence, p).working.load(std::memory_order_acquire) == sequence) {
      open.working.push_back(rank);
    }
  }
  const uint64_t fate = channel.fate(sequence).outcome.load(std::memory_order_acquire);
  const bool from_board = open.missing.empty() && !off_board && !board.Remote(id);
  open.decided = later || from_board || OutcomeIn(fate, sequence) != 0 || HasFailed(board) ||
                 AllRetired(channel, sequence);
  return open;
}

}  // namespace

std::vector<recorder::Call> CallsOf(const Board& board, int rank, int64_t now_ns) {
  const LastCall& last = board.last_call(rank);
  const recorder::CallRing ring = board.calls(rank);
  if (ring.size() != 0) return ring.ReadAll(last.calls.load(std::memory_order_acquire), now_ns);
  const CallRecord record = LastCallRecord(board, rank);
  if (record.sequence == 0) return {};
  recorder::Call call;
  call.sequence = record.sequence;
  call.words = record.words;
  call.count = record.count;
  return {call};
}

bool SeatOfCall(const Board& board, int rank, const recorder::Call& call, Board::Seat* seat) {
  if ((call.words & 0xff) >= kOpKindCount || (call.words >> 8 & 0xff) >= kDataTypeCount ||
      call.sequence == 0 || call.sequence >= 1ull << 60) {
    return false;
  }
  const OpKind kind = KindOf(call.words);
  *seat = {0, rank};
  if (kind != OpKind::kSend && kind != OpKind::kRecv) return true;
  const int peer = static_cast<int16_t>(call.words >> 32);
  if (peer < 0 || peer >= board.world()) return false;
  *seat = board.SeatOf(rank, peer, kind == OpKind::kSend);
  return true;
}

std::vector<OpenOperation> OpenOperations(const Board& board, int64_t now_ns) {
  std::map<std::pair<uint32_t, uint64_t>, OpenOperation> found;
  for (int rank = 0; rank < board.ranks(); ++rank) {
    for (const recorder::Call& call : CallsOf(board, rank, now_ns)) {
      Board::Seat seat;
      if (call.state != recorder::CallState::kOpen || !SeatOfCall(board, rank, call, &seat)) {
        continue;
      }
      const auto key = std::pair(seat.channel, call.sequence);
      if (found.size() < kOpenMax && !found.contains(key))
        found.emplace(key, Look(board, seat.channel, call.sequence));
    }
  }
  std::vector<OpenOperation> open;
  open.reserve(found.size());
  for (auto& [key, operation] : found) open.push_back(std::move(operation));
  return open;
}

void NoteEnd(const Board& board, uint32_t channel, uint64_t sequence, int rank, bool succeeded) {
  board.calls(rank).EndLast(board.last_call(rank).calls.load(std::memory_order_relaxed), NowNs(),
                            succeeded, [&](const recorder::Call& call) {
                              Board::Seat seat;
                              return call.sequence == sequence &&
                                     call.state == recorder::CallState::kOpen &&
                                     SeatOfCall(board, rank, call, &seat) &&
                                     seat.channel == channel;
                            });
}

}  // namespace shunt::board
