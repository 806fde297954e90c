"""Communicators: their life, around the calls in _collectives."""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Dict, Optional, Type

from ._collectives import Collectives
from ._lease import Lease
from ._library import FOREVER
from .errors import DeadlineExceeded, FailedPrecondition
from .group import Group
from .operation import SLICE_NS, nanoseconds

if TYPE_CHECKING:
    from .session import Session


class Communicator(Collectives):
    """This process's rank in a set of ranks. Made by Session.join and split; may be used from several threads.

    `with` leaves it at the end. Leaving waits for nothing: operations in flight that need this rank fail.
    """

    def __init__(self, lease: Lease, pointer: int, name: str, rank: int, world_size: int,
                 siblings: "weakref.WeakSet[Communicator]") -> None:
        self._lease = lease
        self._comm: Optional[int] = pointer
        self._groups: Dict[int, Group] = {}
        self._siblings = siblings
        self._name = name
        self._rank = rank
        self._world_size = world_size
        siblings.add(self)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name it was joined under; of a split, the old one's with "/" and the color."""
        return self._name

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This process's number in it, from 0 to world_size - 1."""
        return self._rank

    @property
    def world_size(self) -> int:  # type: ignore[override]
        """How many ranks it has."""
        return self._world_size

    def group(self, async_op: bool = False) -> Group:
        """A block whose calls are submitted as one. See Group."""
        return Group(self, async_op)

    def split(self, color: int, key: int = 0, *, timeout: Optional[float] = None) -> "Optional[Communicator]":
        """A new communicator for each color, ranks in the order of (key, old rank). Every rank calls it; one
        with a negative color takes no part and gets None."""
        library = self._lease.library
        pointer = ctypes.c_void_p()
        status = library.split(self._open("split"), color, key, nanoseconds("split", timeout), ctypes.byref(pointer))
        if status:
            raise library.error(status)
        if not pointer.value:
            return None
        return Communicator(self._lease, pointer.value, f"{self.name}/{color}", library.rank(pointer),
                            library.world_size(pointer), self._siblings)

    def sync(self, timeout: Optional[float] = None) -> None:
        """Returns when all calls on streams have ended; raises the first failure. DeadlineExceeded after `timeout`
        seconds, and they go on; None: they end by their own deadlines."""
        library = self._lease.library
        comm = self._open("sync")
        left = FOREVER if timeout is None else nanoseconds("sync", timeout)
        while True:
            now = min(left, SLICE_NS)  # so that Ctrl-C is seen
            status = library.sync(comm, now)
            if not status:
                return
            error = library.error(status)
            # The slice's end, or a call's own deadline?
            if status != DeadlineExceeded.code or not str(error).endswith("it is still running"):
                raise error
            if left != FOREVER:
                left -= now
                if left <= 0:
                    raise error

    def abort(self, reason: str) -> None:
        """Ends every operation in flight on every rank with Aborted and `reason`. The communicator takes no more
        work until it is joined again."""
        library = self._lease.library
        status = library.abort(self._open("abort"), reason.encode())
        if status:
            raise library.error(status)

    def leave(self) -> None:
        """No call may be under way in another thread. Leaving twice is allowed."""
        comm, self._comm = self._comm, None
        if comm is not None and self._lease.usable():
            self._lease.library.leave(comm)

    def _open(self, what: str) -> int:
        if self._comm is None:
            raise FailedPrecondition(f"{what}: communicator {self.name!r} has been left")
        return self._comm

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.leave()

    def __del__(self) -> None:
        self.leave()

    def __repr__(self) -> str:
        state = "" if self._comm is not None else ", left"
        return f"<shunt.Communicator {self.name!r} rank {self.rank} of {self.world_size}{state}>"
