"""Sessions: a process's lease on the daemon of its node."""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Any, Optional, Sequence, Type, Union

import numpy as np
from numpy.typing import NDArray

from . import _dtypes, memory
from ._interruptible import interruptible
from ._lease import Lease
from ._library import JoinOptions, Library, OpenOptions, load
from .communicator import Communicator
from .errors import FailedPrecondition, InvalidArgument, NotFound
from .operation import nanoseconds

Shape = Union[int, Sequence[int]]


def _c_string(what: str, text: Optional[str]) -> Optional[bytes]:
    if text is None:
        return None
    if "\0" in text:
        raise InvalidArgument(f"{what}: {text!r} contains a zero byte")
    return text.encode()


class Session:
    """Made by connect(). Memory, communicators and operations live in it; may be used from several threads."""

    def __init__(self, library: Library, socket: Optional[str], name: Optional[str]) -> None:
        self._lease: Optional[Lease] = None
        options = OpenOptions(
            ctypes.sizeof(OpenOptions), _c_string("connect: socket", socket), _c_string("connect: name", name)
        )
        pointer = ctypes.c_void_p()
        status = library.open(ctypes.byref(options), ctypes.byref(pointer))
        if status:
            raise library.error(status)
        self._lease = Lease(library, pointer.value or 0)
        self._communicators: "weakref.WeakSet[Communicator]" = weakref.WeakSet()
        self.id: int = library.session_id(pointer)

    # ---- memory

    def empty(self, shape: Shape, dtype: Any = np.float32) -> NDArray[Any]:
        """A new array in shared memory, which collectives use without copies. Regions come zeroed.

        The region (whole pages) is freed when the last view of it dies. `dtype` may name a type of Shunt that
        NumPy lacks ("bfloat16"): the array is then of ml_dtypes' type, or of unsigned integers without that
        package. ResourceExhausted names the quota.
        """
        return memory.allocate(self._open("empty"), shape, _dtypes.numpy_dtype(dtype))

    def zeros(self, shape: Shape, dtype: Any = np.float32) -> NDArray[Any]:
        """The same as empty(): a new region holds only zeros."""
        return memory.allocate(self._open("zeros"), shape, _dtypes.numpy_dtype(dtype))

    def array(self, values: Any, dtype: Any = None) -> NDArray[Any]:
        """A copy of `values` in shared memory."""
        source = np.asarray(values, None if dtype is None else _dtypes.numpy_dtype(dtype))
        shared = memory.allocate(self._open("array"), source.shape, source.dtype)
        shared[...] = source
        return shared

    def free(self, x: NDArray[Any]) -> None:
        """Frees the region of `x`, which empty(), zeros() or array() returned, now; `x` is left empty.

        FailedPrecondition if an operation in flight uses it or another array on it is alive. A memoryview of
        `x` is not seen and must not be used afterwards.
        """
        self._open("free")
        memory.release(x)

    def region_id(self, x: NDArray[Any]) -> Optional[int]:
        """The id of the region that `x` lies in; None if it is ordinary memory of this process."""
        lease = self._open("region_id")
        region = ctypes.c_uint64()
        status = lease.library.region_id(lease.pointer, x.ctypes.data, ctypes.byref(region))
        if status == NotFound.code:
            return None
        if status:
            raise lease.library.error(status)
        return region.value

    # ---- communicators

    def join(self, name: str, rank: int, world_size: int, job: Optional[str] = None,
             timeout: Optional[float] = 60.0, default_timeout: Optional[float] = 60.0,
             algorithm: Optional[str] = None, deterministic: bool = False) -> Communicator:
        """Returns when all `world_size` ranks (1 to 128 on one node, up to 32,767 on several) have joined `name`. Times
        in seconds; `default_timeout` is for the calls that name none. `algorithm` is what nodes exchange data by
        ("ring" ...; default: $SHUNT_ALGORITHM, else the fastest by what was measured); with `deterministic` nothing
        that was measured decides how data meets, so the same inputs give the same bits in every run.

        `job` keeps jobs with equal names apart (default: $SHUNT_JOB, else ""). DeadlineExceeded names the ranks
        that are missing, AlreadyExists who holds the rank, FailedPrecondition a differing world size, algorithm
        or `deterministic`.
        """
        lease = self._open("join")
        for what, value in (("rank", rank), ("world_size", world_size)):
            if not -(2**31) <= value < 2**31:
                raise InvalidArgument(f"join: {what} is {value}, which is no 32-bit integer")
        options = JoinOptions(
            ctypes.sizeof(JoinOptions),
            _c_string("join: name", name),
            _c_string("join: job", job),
            rank,
            world_size,
            nanoseconds("join", timeout),
            nanoseconds("join", default_timeout),
            _c_string("join: algorithm", algorithm),
            1 if deterministic else 0,
        )

        def wait() -> int:
            pointer = ctypes.c_void_p()
            status = lease.library.join(lease.pointer, ctypes.byref(options), ctypes.byref(pointer))
            if status:
                raise lease.library.error(status)
            return pointer.value or 0

        return Communicator(lease, interruptible(wait, lease.library.leave), name, rank, world_size, self._communicators)

    # ---- life

    def close(self) -> None:
        """Leaves all communicators. The daemon's side ends, and the memory with it, once the last array on a
        region and the last Operation are gone too: a view never points to nothing. Closing twice is allowed."""
        if self._lease is None:
            return
        for communicator in list(self._communicators):
            communicator.leave()
        self._lease = None

    @property
    def closed(self) -> bool:
        return self._lease is None

    def _open(self, what: str) -> Lease:
        if self._lease is None:
            raise FailedPrecondition(f"{what}: the session is closed")
        return self._lease

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shunt.Session {self.id}{', closed' if self.closed else ''}>"


def connect(socket: Optional[str] = None, name: Optional[str] = None) -> Session:
    """Opens a session with the node's daemon: at `socket`, else $SHUNT_SOCKET, else /run/shunt/shuntd.sock.
    `name` is what shuntctl shows. Unavailable if no daemon answers there."""
    return Session(load(), socket, name)
