#include "runtime/board/tally.h"

#include <algorithm>

namespace shunt::board {
namespace {

constexpr uint64_t kSequenceMax = 1ull << 60;
// No call takes less, however it ends.
constexpr int64_t kLeastCallNs = 16;
// No rank moves more in a nanosecond (4 TB/s).
constexpr uint64_t kMostBytesANs = 4096;
// The place of an arrival is used again after so many calls; the writer may be at the oldest.
constexpr uint64_t kArrivalsKept = kArrivals - 1;

void Bump(std::atomic<uint64_t>& word, uint64_t by) {
  // One writer: no locked instruction.
  word.store(word.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// What no rank reaches, a hostile one claims: it has not called then.
uint64_t SequenceOf(const Board& board, int rank) {
  const uint64_t seq = board.tally(rank).arrived.load(std::memory_order_acquire);
  return seq > kSequenceMax ? 0 : seq;
}

int64_t ArrivalOf(const Board& board, int rank, uint64_t seq) {
  return board.tally(rank).at_ns[seq % kArrivals].load(std::memory_order_relaxed);
}

}  // namespace

void NoteArrival(const Board& board, int rank, uint64_t seq, int64_t at_ns) {
  Tally& tally = board.tally(rank);
  tally.at_ns[seq % kArrivals].store(at_ns, std::memory_order_relaxed);
  tally.arrived.store(seq, std::memory_order_release);
}

void NoteEnd(const Board& board, int rank, OpKind kind, bool succeeded, uint64_t bytes) {
  Tally::Kind& tally = board.tally(rank).kinds[static_cast<size_t>(kind)];
  if (!succeeded) return Bump(tally.failed, 1);
  Bump(tally.succeeded, 1);
  Bump(tally.bytes, bytes);
}

Totals TotalsOf(const Board& board, int64_t age_ns) {
  const auto age = static_cast<uint64_t>(std::max<int64_t>(age_ns, 0));
  const uint64_t calls_max = age / kLeastCallNs;
  const uint64_t bytes_max = age > ~0ull / kMostBytesANs ? ~0ull : age * kMostBytesANs;
  Totals totals;
  for (int rank = 0; rank < board.ranks(); ++rank) {
    const Tally& tally = board.tally(rank);
    for (size_t kind = 0; kind < totals.size(); ++kind) {
      const Tally::Kind& of = tally.kinds[kind];
      totals[kind].succeeded += std::min(of.succeeded.load(std::memory_order_relaxed), calls_max);
      totals[kind].failed += std::min(of.failed.load(std::memory_order_relaxed), calls_max);
      totals[kind].bytes += std::min(of.bytes.load(std::memory_order_relaxed), bytes_max);
    }
  }
  return totals;
}

std::optional<Lateness> LatenessOf(const Board& board, int64_t now_ns) {
  const int ranks = board.ranks();
  if (ranks < 2) return std::nullopt;
  uint64_t least = ~0ull, most = 0;
  int behind = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const uint64_t seq = SequenceOf(board, rank);
    if (seq < least) {
      least = seq;
      behind = rank;
    }
    most = std::max(most, seq);
  }
  if (least == 0) return std::nullopt;

  // Operations that all have come to, and whose times are still there.
  std::array<double, kMaxLocalRanks> late = {};
  double skew = 0;
  int operations = 0;
  const uint64_t oldest = most > kArrivalsKept ? most - kArrivalsKept + 1 : 1;
  for (uint64_t seq = oldest; seq <= least; ++seq) {
    std::array<int64_t, kMaxLocalRanks> at;  // read once: others may be writing
    for (int rank = 0; rank < ranks; ++rank) at[rank] = ArrivalOf(board, rank, seq);
    const auto [first_at, last_at] = std::minmax_element(at.begin(), at.begin() + ranks);
    const int64_t first = *first_at, last = *last_at;
    // Whoever has gone on meanwhile may have used the place again; nobody comes in the future.
    if (last > now_ns || first <= 0) continue;
    for (int rank = 0; rank < ranks; ++rank) late[rank] += static_cast<double>(at[rank] - first);
    skew += static_cast<double>(last - first);
    ++operations;
  }
  Lateness lateness;
  if (operations > 0) {
    lateness.skew_seconds = 1e-9 * skew / operations;
    lateness.rank =
        static_cast<int>(std::max_element(late.begin(), late.begin() + ranks) - late.begin());
  }
  if (least < most) {
    int64_t first = now_ns;
    for (int rank = 0; rank < ranks; ++rank) {
      const uint64_t seq = SequenceOf(board, rank);
      if (seq <= least) continue;
      // Of one that is far ahead the time of its call is gone: the oldest that is there.
      const uint64_t kept = seq > kArrivalsKept ? seq - kArrivalsKept + 1 : 1;
      const int64_t at = ArrivalOf(board, rank, std::max(least + 1, kept));
      if (at > 0) first = std::min(first, at);
    }
    const double waited = 1e-9 * static_cast<double>(now_ns - first);
    if (waited > lateness.skew_seconds) lateness = {waited, behind, true};
  }
  if (lateness.rank < 0) return std::nullopt;
  return lateness;
}

}  // namespace shunt::board
