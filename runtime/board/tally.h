// What a rank counts of its own calls, in lines of the board that only it writes: calls never pass
// through the daemon, yet it can say how many there were and who came last.
//
// Writing is a few plain stores to lines that nobody else touches while the rank works. The daemon
// reads them when somebody asks. Like everything on the board they are hostile: a rank may count
// what it likes, so a reader holds each number to what is possible (TotalsOf).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "runtime/board/layout.h"
#include "runtime/core/types.h"

namespace shunt::board {

struct KindTotals {
  uint64_t succeeded = 0, failed = 0;  // calls of ranks
  uint64_t bytes = 0;  // of the larger of each call's two buffers; of those that succeeded
};
using Totals = std::array<KindTotals, kOpKindCount>;

// The caller is the rank's one poster, and holds what keeps others from posting for it.
void NoteArrival(const Board& board, int rank, uint64_t seq, int64_t at_ns);
void NoteEnd(const Board& board, int rank, OpKind kind, bool succeeded, uint64_t bytes);

// All ranks' sums. `age_ns`: how long the board has been there; no rank can have called more often
// than every few nanoseconds since, nor moved more than memory can.
Totals TotalsOf(const Board& board, int64_t age_ns);

// Who comes late to the collectives, of this board's ranks.
struct Lateness {
  double skew_seconds = 0;  // between the first and the last to come
  int rank = -1;            // the last to come, of the board's ranks
  bool missing = false;     // it has not come yet: the skew is what others have waited so far
};
// Of the last few operations that all have come to, on average; or, if that is longer, of one that
// some have come to already. None if there is no operation yet that all have come to, or only one
// rank.
std::optional<Lateness> LatenessOf(const Board& board, int64_t now_ns);

}  // namespace shunt::board
