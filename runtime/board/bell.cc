#include "runtime/board/bell.h"

#include "runtime/core/futex.h"

namespace shunt::board {

void Ring(const Board& board, int rank) {
  Bell& bell = board.bell(rank);
  if (bell.sleeping.load(std::memory_order_seq_cst) == 0) return;
  // One waker is enough: the exchange gives the job to the first.
  if (bell.sleeping.exchange(0, std::memory_order_seq_cst) == 0) return;
  bell.count.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(&bell.count);
}

void RingChannel(const Board& board, const Channel& channel, int self) {
  for (int p = 0; p < channel.participants(); ++p) {
    const int rank = board.RankOf(channel.id(), p);
    if (rank != self) Ring(board, rank);
  }
}

void RingAll(const Board& board) {
  for (int rank = 0; rank < board.ranks(); ++rank) Ring(board, rank);
}

uint32_t PrepareToSleep(const Board& board, int rank) {
  Bell& bell = board.bell(rank);
  const uint32_t ticket = bell.count.load(std::memory_order_seq_cst);
  bell.sleeping.store(1, std::memory_order_seq_cst);
  // What the caller now looks at must not have been read before: either it sees the event, or Ring
  // sees the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ticket;
}

void Sleep(const Board& board, int rank, uint32_t ticket, int64_t timeout_ns) {
  FutexWait(&board.bell(rank).count, ticket, std::chrono::nanoseconds(timeout_ns));
}

}  // namespace shunt::board
