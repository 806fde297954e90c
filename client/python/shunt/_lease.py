"""The C session, closed when the last thing that lives in it is gone.

Sessions, communicators, operations and regions all hold the one Lease of their session. So memory is never
unmapped under a live NumPy view, and no handle outlives its session, whatever the order in which a program or
the garbage collector drops them.
"""

from __future__ import annotations

import os
import sys

from ._library import Library


class Lease:
    __slots__ = ("library", "pointer", "pid", "__weakref__")

    def __init__(self, library: Library, pointer: int) -> None:
        self.library = library
        self.pointer = pointer
        self.pid = os.getpid()

    def usable(self, _getpid=os.getpid, _finalizing=sys.is_finalizing) -> bool:  # type: ignore[no-untyped-def]
        """False in a forked child and while the interpreter ends: the daemon then cleans up by itself."""
        return bool(_getpid() == self.pid and not _finalizing())

    def __del__(self) -> None:
        if self.usable():
            self.library.close(self.pointer)
