// What is kept of a board's calls, and what its open ones wait for: for people who ask, by the
// daemon. Reads only; nothing of it is trusted, and any answer is bounded.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/board/failure.h"
#include "runtime/board/layout.h"

namespace shunt::board {

// The rank's last calls, oldest first. Without a ring: its last one alone, without times.
std::vector<recorder::Call> CallsOf(const Board& board, int rank, int64_t now_ns);
// For words: failure.h.
inline CallRecord RecordOf(const recorder::Call& call) {
  return {call.sequence, call.words, call.count};
}
// Where the rank's call takes place; false if its words make no sense.
bool SeatOfCall(const Board& board, int rank, const recorder::Call& call, Board::Seat* seat);

// An operation that some rank of this node has called and that has not ended for it.
struct OpenOperation {
  uint32_t channel = 0;
  uint64_t sequence = 0;
  // Of a pair: its ends, by number; else -1.
  int source = -1, destination = -1;
  // It has its outcome: who has it open has not looked yet.
  bool decided = false;
  // Ranks of this node, by their place here: who has called, who has not, who holds a part of the
  // work at this moment.
  std::vector<int> posted, missing, working;
};
// By channel and sequence.
std::vector<OpenOperation> OpenOperations(const Board& board, int64_t now_ns);

// The rank's call of (channel, sequence) has ended, for a rank whose calls the daemon posts.
void NoteEnd(const Board& board, uint32_t channel, uint64_t sequence, int rank, bool succeeded);

}  // namespace shunt::board
