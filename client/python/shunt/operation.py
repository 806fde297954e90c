"""Handles of operations that run while the program does something else."""

from __future__ import annotations

import asyncio
import ctypes
import warnings
from typing import Any, Callable, Generic, Optional, Tuple, TypeVar

from ._lease import Lease
from ._library import FOREVER
from .errors import DeadlineExceeded, Error, FailedPrecondition, InvalidArgument

T = TypeVar("T")
# How long one wait in C may take, so that Ctrl-C is seen: 0.2 s.
SLICE_NS = 200_000_000


def nanoseconds(what: str, seconds: Optional[float]) -> int:
    """A timeout for the library: None is the default (0), math.inf none at all."""
    if seconds is None:
        return 0
    if not seconds >= 0:
        raise InvalidArgument(f"{what}: timeout is {seconds}, expected seconds >= 0, None or math.inf")
    if seconds >= 9e9:
        return FOREVER
    return max(1, int(seconds * 1e9))


def wait_in_slices(what: str, timeout: Optional[float], wait: Callable[[int], int], error: Callable[[int], Error],
                   done: Callable[[], bool], finish: Callable[[int], None]) -> None:
    """Waits by `wait(nanoseconds)` until `done()`, or gives its status to `finish`; DeadlineExceeded after `timeout`."""
    left = FOREVER if timeout is None else nanoseconds(what, timeout)
    while True:
        now = min(left, SLICE_NS)
        status = wait(now)
        if status != DeadlineExceeded.code:
            return finish(status)
        still_running = error(status)
        if done():
            return
        if left != FOREVER:
            left -= now
            if left <= 0:
                raise still_running


async def until_done(done: Callable[[], bool], fileno: Callable[[], int]) -> None:
    """In an event loop: until `done()`, which is asked whenever the descriptor is readable."""
    if done():
        return
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def readable() -> None:
        if not ended.done() and done():
            ended.set_result(None)

    fd = fileno()
    loop.add_reader(fd, readable)
    try:
        await ended
    finally:
        loop.remove_reader(fd)


class Operation(Generic[T]):
    """An operation in flight; keeps its arrays alive. Use it from one thread at a time.

    A handle that is dropped before its operation has ended waits for it, as it must: the operation still
    writes to the arrays. That gives a ResourceWarning.
    """

    __slots__ = ("_lease", "_pointer", "_result", "_keep", "_what", "_error", "_ended", "_watched",
                 "__weakref__")

    def __init__(self, lease: Lease, pointer: int, what: str, result: T, keep: Tuple[Any, ...]) -> None:
        self._lease = lease
        self._pointer: Optional[int] = pointer
        self._what = what
        self._result = result
        self._keep: Tuple[Any, ...] = keep
        self._error: Optional[Error] = None
        self._ended = False
        self._watched = False  # someone has the descriptor, so the handle outlives the operation

    def done(self) -> bool:
        """True once it has ended, well or not; wait() then tells which. Never blocks. Asking also moves
        operations on memory outside regions forward."""
        if self._ended:
            return True
        done = ctypes.c_int(0)
        status = self._lease.library.op_poll(self._pointer, ctypes.byref(done))
        if not done.value:
            if status:
                raise self._lease.library.error(status)
            return False
        self._finish(status)
        return True

    def wait(self, timeout: Optional[float] = None) -> T:
        """The call's result, or its exception. With a `timeout` in seconds, DeadlineExceeded if the operation
        has not ended by then; it stays in flight. Without one, the operation's own deadline ends the wait."""
        library = self._lease.library
        if not self._ended:
            wait_in_slices(self._what, timeout, lambda ns: library.op_wait(self._pointer, ns), library.error,
                           self.done, self._finish)
        if self._error is not None:
            raise self._error
        return self._result

    def fileno(self) -> int:
        """A descriptor that becomes readable when the operation has ended, for select and event loops. It is
        closed with the handle. FailedPrecondition where there is none: arrays outside regions move only in
        done() and wait(), and an operation seen to have ended before the first fileno() needs none."""
        if self._pointer is None:
            raise FailedPrecondition(f"{self._what}: has ended before anyone asked for a descriptor")
        fd = ctypes.c_int(-1)
        status = self._lease.library.op_fd(self._pointer, ctypes.byref(fd))
        if status:
            raise self._lease.library.error(status)
        self._watched = True
        return fd.value

    def _finish(self, status: int) -> None:
        if status:
            self._error = self._lease.library.error(status)
        self._ended = True
        self._keep = ()
        if not self._watched:
            pointer, self._pointer = self._pointer, None
            self._lease.library.op_release(pointer)

    def __del__(self) -> None:
        if self._pointer is None or not self._lease.usable():
            return
        if not self._ended and not self.done():
            warnings.warn(f"{self._what}: handle dropped in flight; waiting for it", ResourceWarning, stacklevel=2)
        if self._pointer is not None:
            self._lease.library.op_release(self._pointer)

    def __repr__(self) -> str:
        state = "in flight" if not self._ended else "failed" if self._error else "done"
        return f"<shunt.Operation {self._what} {state}>"
