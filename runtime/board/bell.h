// Sleeping and waking on a board: one futex word a rank. A waker pays a load where nobody sleeps.
#pragma once

#include <cstdint>

#include "runtime/board/layout.h"

namespace shunt::board {

// Wakes `rank`'s sleepers, if any. The event must be visible before: callers publish it with a
// sequentially consistent read-modify-write.
void Ring(const Board& board, int rank);

// Rings every participant of the channel but `self` (-1: all). A rank that may have other threads
// asleep passes -1.
void RingChannel(const Board& board, const Channel& channel, int self);

void RingAll(const Board& board);

// Announces that `rank` is about to sleep and returns the ticket for Sleep. The caller must look at
// what it waits for once more between the two: an event after this call makes Sleep return at once.
uint32_t PrepareToSleep(const Board& board, int rank);
// Sleeps until rung or `timeout_ns` (> 0) is over; may wake for no reason.
void Sleep(const Board& board, int rank, uint32_t ticket, int64_t timeout_ns);

}  // namespace shunt::board
