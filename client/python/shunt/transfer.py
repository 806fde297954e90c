"""Transfers in flight, and what is known of them."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, Generator, NamedTuple, Optional, Tuple

from ._lease import Lease
from ._library import ReportStruct
from .errors import Error
from .operation import until_done, wait_in_slices


class Report(NamedTuple):
    """Of a transfer that has ended well. Times in seconds."""

    bytes: int
    route: str  # "copy": within the node; "pull", "push": between nodes; "read", "write": of files and objects
    waited: float  # until the first byte was moved
    moved: float  # from there to the end


class Explanation(NamedTuple):
    """What a transfer would do."""

    bytes: int
    route: str
    copy_runs: int  # after cutting at both sides' borders; between nodes: messages
    predicted: float  # seconds, if nothing else ran; 0: nothing like it has been seen
    bytes_ahead: int  # of others in its class or a better one


class Transfer:
    """A transfer in flight: wait() for it, poll it with done(), select on it, or await it.

    Keeps what it needs alive. A handle that is dropped before the end waits for it, as it must: its memory is still
    written. That gives a ResourceWarning.
    """

    __slots__ = ("_lease", "_pointer", "_what", "_keep", "_error", "_ended", "__weakref__")

    def __init__(self, lease: Lease, pointer: int, what: str, keep: Tuple[Any, ...]) -> None:
        self._lease = lease
        self._pointer = pointer
        self._what = what
        self._keep = keep
        self._error: Optional[Error] = None
        self._ended = False

    def done(self) -> bool:
        """True once it has ended, well or not; wait() then tells which. Never waits for it."""
        if self._ended:
            return True
        done = ctypes.c_int(0)
        status = self._lease.library.transfer_poll(self._pointer, ctypes.byref(done))
        if not done.value:
            if status:
                raise self._lease.library.error(status)
            return False
        self._finish(status)
        return True

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until it has ended; raises what it failed with. With a `timeout` in seconds, DeadlineExceeded if it has
        not ended by then; it goes on. Without one, its own deadline ends the wait."""
        library = self._lease.library
        if not self._ended:
            wait_in_slices(self._what, timeout, lambda ns: library.transfer_wait(self._pointer, ns), library.error,
                           self.done, self._finish)
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[Any, None, None]:
        """In an asyncio program: `await transfer`. A task that is cancelled leaves the transfer running."""
        yield from self._await().__await__()

    async def _await(self) -> None:
        await until_done(self.done, self.fileno)
        self.wait()

    def cancel(self) -> None:
        """Has it end soon, with Cancelled unless all has been moved. Does not wait for the end."""
        self._check(self._lease.library.transfer_cancel(self._pointer))

    def report(self) -> Report:
        """What it did. FailedPrecondition before its end; raises what it failed with."""
        r = ReportStruct(struct_size=ctypes.sizeof(ReportStruct))
        self._check(self._lease.library.transfer_report(self._pointer, ctypes.byref(r)))
        return Report(r.bytes, r.route.decode(), r.waited_ns / 1e9, r.moved_ns / 1e9)

    def fileno(self) -> int:
        """A descriptor that becomes readable when it has ended, for select and event loops; closed with the
        handle."""
        fd = ctypes.c_int(-1)
        self._check(self._lease.library.transfer_fd(self._pointer, ctypes.byref(fd)))
        return fd.value

    def _check(self, status: int) -> None:
        if status:
            raise self._lease.library.error(status)

    def _finish(self, status: int) -> None:
        if status:
            self._error = self._lease.library.error(status)
        self._ended = True
        self._keep = ()

    def __del__(self) -> None:
        if not self._lease.usable():
            return
        if not self._ended and not self.done():
            warnings.warn(f"{self._what}: handle dropped in flight; waiting for it", ResourceWarning, stacklevel=2)
        self._lease.library.transfer_release(self._pointer)

    def __repr__(self) -> str:
        state = "in flight" if not self._ended else "failed" if self._error else "done"
        return f"<shunt.Transfer {self._what} {state}>"
