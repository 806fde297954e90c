"""What both sides of the comparison move: blocks that hold what says where they belong, in two random orders."""

import dataclasses
import time

import numpy as np

RISING = np.uint64(0x9E3779B97F4A7C15)  # odd: no two words of a side are alike


@dataclasses.dataclass(frozen=True)
class Job:
    """`piece_bytes` x `pieces`, named in one random order by the mover and in another by the owner. "READ": the mover
    pulls from the owner; "WRITE": it pushes to it."""

    operation: str
    piece_bytes: int
    pieces: int
    seconds: float

    @property
    def bytes(self):
        return self.piece_bytes * self.pieces

    @property
    def order_of_mover(self):
        return np.random.default_rng(1).permutation(self.pieces).astype(np.int32)

    @property
    def order_of_owner(self):
        return np.random.default_rng(2).permutation(self.pieces).astype(np.int32)

    def source(self):
        words = np.arange(self.bytes // 8, dtype=np.uint64) * RISING
        return words.view(np.uint8).reshape(self.pieces, self.piece_bytes)

    def fill(self, memory, is_source):
        """`memory`: bytes, pieces x piece_bytes. A destination holds the opposite of every byte that is to come."""
        if is_source:
            memory[...] = self.source()
        elif self.operation == "READ":
            memory[self.order_of_mover] = ~self.source()[self.order_of_owner]
        else:
            memory[self.order_of_owner] = ~self.source()[self.order_of_mover]

    def wrong(self, memory, is_source):
        """Bytes that are not what they must be after a transfer."""
        source = self.source()
        if is_source:
            return int(np.count_nonzero(memory != source))
        if self.operation == "READ":
            return int(np.count_nonzero(memory[self.order_of_mover] != source[self.order_of_owner]))
        return int(np.count_nonzero(memory[self.order_of_owner] != source[self.order_of_mover]))


def steady_state(job, move):
    """Seconds of each transfer: `move` makes one, from the post to its end. Those of the first quarter of the time,
    and at least two, are left out."""
    times = []
    begun = time.perf_counter()
    warm = None
    while warm is None or time.perf_counter() - begun < job.seconds or len(times) < warm + 3:
        before = time.perf_counter()
        move()
        now = time.perf_counter()
        times.append(now - before)
        if warm is None and len(times) >= 2 and now - begun >= job.seconds / 4:
            warm = len(times)
    return times[warm:]
