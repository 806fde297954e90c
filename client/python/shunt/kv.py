"""A store of blocks under keys: in memory, in a file, in objects. docs/kv.md says what moves when.

    with shunt.kv.Store(session, block_bytes=1 << 20, memory=1 << 30, directory="/var/cache/kv", file_bytes=64 << 30) as store:
        store.put(keys, blocks).wait()     # rows of an array from session.empty; or: await store.put(...)
        results = store.get(keys, room).wait()
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from types import TracebackType
from typing import Any, Generator, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

import numpy as np
from numpy.typing import NDArray

from ._lease import Lease
from ._library import Library
from .errors import Error, FailedPrecondition, InvalidArgument
from .file import ObjectCredentials, signing
from .operation import nanoseconds, until_done, wait_in_slices
from .session import Session

_TIERS = ("memory", "file", "objects")


class _Options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("block_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("directory", c_char_p),
        ("file_bytes", c_uint64),
        ("object_endpoint", c_char_p),
        ("object_bucket", c_char_p),
        ("object_prefix", c_char_p),
        ("object_bytes", c_uint64),
        ("object_access_key_id", c_char_p),
        ("object_secret_access_key", c_char_p),
        ("object_session_token", c_char_p),
    ]


class _Key(Structure):
    _fields_ = [("data", c_char_p), ("bytes", c_uint64)]


class _Block(Structure):
    _fields_ = [("key", _Key), ("pointer", c_void_p), ("bytes", c_uint64)]


class _Result(Structure):
    _fields_ = [("code", c_int32), ("tier", c_int32), ("bytes", c_uint64)]


class _CallOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("timeout_ns", c_int64)]


class _TierFacts(Structure):
    _fields_ = [
        (name, c_uint64) for name in ("slots", "blocks", "bytes", "hits", "hit_bytes", "written", "evictions")
    ]


_COUNTS = ("puts", "puts_present", "put_bytes", "misses", "promotions", "dropped", "corrupt", "errors", "dirty", "rewrites")


class _Facts(Structure):
    _fields_ = [("struct_size", c_size_t), ("tiers", _TierFacts * 3)] + [(name, c_uint64) for name in _COUNTS]


class _Functions:
    """The store's part of the library."""

    def __init__(self, library: Library) -> None:
        dll = ctypes.CDLL(library.path)  # the same that is loaded

        def function(name: str, restype: Any, *argtypes: Any) -> Any:
            f = getattr(dll, "shunt_kv_" + name)
            f.restype = restype
            f.argtypes = argtypes
            return f

        moves = (c_void_p, POINTER(_Block), c_uint64, POINTER(_CallOptions), c_void_p, POINTER(c_void_p))
        self.open = function("open", c_int, c_void_p, POINTER(_Options), POINTER(c_void_p))
        self.close = function("close", None, c_void_p)
        self.notes = function("notes", c_char_p, c_void_p)
        self.put = function("put", c_int, *moves)
        self.get = function("get", c_int, *moves)
        self.flush = function("flush", c_int, c_void_p, POINTER(_CallOptions), POINTER(c_void_p))
        self.lookup = function("lookup", c_int, c_void_p, POINTER(_Key), c_uint64, POINTER(c_int32), POINTER(c_uint64))
        self.erase = function("erase", c_int, c_void_p, POINTER(_Key), c_uint64, POINTER(c_uint64))
        self.stats = function("stats", c_int, c_void_p, POINTER(_Facts))
        self.call_poll = function("call_poll", c_int, c_void_p, POINTER(c_int))
        self.call_wait = function("call_wait", c_int, c_void_p, c_int64)
        self.call_fd = function("call_fd", c_int, c_void_p, POINTER(c_int))
        self.call_results = function("call_results", c_int, c_void_p, POINTER(_Result), c_uint64)
        self.call_release = function("call_release", None, c_void_p)


class Objects(NamedTuple):
    """Where the store's objects are: an endpoint of the daemon's configuration, and what signs requests."""

    endpoint: str
    bucket: str
    prefix: str = ""
    credentials: Optional[ObjectCredentials] = None  # without, requests are not signed


class Result(NamedTuple):
    """Of one block. `code`: 0, or an error's (NotFound.code: a miss; OutOfRange.code: too little room)."""

    code: int
    tier: Optional[str]  # "memory", "file", "objects": where it was, or after a put, is
    bytes: int


class TierStats(NamedTuple):
    slots: int  # 0: there is no such tier
    blocks: int
    bytes: int
    hits: int
    hit_bytes: int
    written: int
    evictions: int


class Stats(NamedTuple):
    """Since the store was opened, but for what is held now. See shunt_kv_facts in shunt_kv.h."""

    memory: TierStats
    file: TierStats
    objects: TierStats
    puts: int
    puts_present: int
    put_bytes: int
    misses: int
    promotions: int
    dropped: int
    corrupt: int
    errors: int
    dirty: int
    rewrites: int

    @property
    def hits(self) -> int:
        """Of all tiers."""
        return self.memory.hits + self.file.hits + self.objects.hits


class Call:
    """A put, get or flush under way: wait() for it, poll it with done(), select on it, or await it. Its value is a
    Result for each block (a flush: none).

    Keeps the arrays alive. A handle that is dropped before the end waits for it, as it must: the memory is still used.
    That gives a ResourceWarning.
    """

    __slots__ = ("_store", "_pointer", "_what", "_count", "_keep", "_error", "_results", "__weakref__")

    def __init__(self, store: "_Handle", pointer: int, what: str, count: int, keep: Tuple[Any, ...]) -> None:
        self._store = store
        self._pointer = pointer
        self._what = what
        self._count = count
        self._keep = keep
        self._error: Optional[Error] = None
        self._results: Optional[List[Result]] = None  # once it has ended

    def done(self) -> bool:
        """True once it has ended, well or not; wait() then tells which. Never waits."""
        if self._results is not None:
            return True
        done = c_int(0)
        status = self._store.functions.call_poll(self._pointer, ctypes.byref(done))
        if not done.value:
            if status:
                raise self._store.lease.library.error(status)
            return False
        self._finish(status)
        return True

    def wait(self, timeout: Optional[float] = None) -> List[Result]:
        """Until it has ended; raises what it failed with. With a `timeout` in seconds, DeadlineExceeded if it has not
        ended by then; it goes on."""
        if self._results is None:
            wait_in_slices(self._what, timeout, lambda ns: self._store.functions.call_wait(self._pointer, ns),
                           self._store.lease.library.error, self.done, self._finish)
        if self._error is not None:
            raise self._error
        return self.results()

    def results(self) -> List[Result]:
        """Of a call that has ended, well or not. FailedPrecondition before."""
        if not self.done() or self._results is None:
            raise FailedPrecondition(f"{self._what}: it has not ended")
        return self._results

    def __await__(self) -> Generator[Any, None, List[Result]]:
        """In an asyncio program: `results = await store.get(...)`. A task that is cancelled leaves the call running."""
        return (yield from self._await().__await__())

    async def _await(self) -> List[Result]:
        await until_done(self.done, self.fileno)
        return self.wait()

    def fileno(self) -> int:
        """A descriptor that becomes readable when it has ended; closed with the handle."""
        fd = c_int(-1)
        status = self._store.functions.call_fd(self._pointer, ctypes.byref(fd))
        if status:
            raise self._store.lease.library.error(status)
        return fd.value

    def _finish(self, status: int) -> None:
        if status:
            self._error = self._store.lease.library.error(status)
        raw = (_Result * self._count)()
        if self._count:
            self._store.functions.call_results(self._pointer, raw, self._count)
        self._results = [Result(r.code, _TIERS[r.tier] if r.tier >= 0 else None, r.bytes) for r in raw]
        self._keep = ()

    def __del__(self) -> None:
        if not self._store.lease.usable():
            return
        if self._results is None and not self.done():
            warnings.warn(f"{self._what}: handle dropped under way; waiting for it", ResourceWarning, stacklevel=2)
        self._store.functions.call_release(self._pointer)

    def __repr__(self) -> str:
        state = "under way" if self._results is None else "failed" if self._error else "done"
        return f"<shunt.kv.Call {self._what} {state}>"


class _Handle:
    """The C store, closed when it is closed or nothing uses it any more. Calls of other threads that are inside it then
    end first: the C store is gone when its close returns."""

    __slots__ = ("lease", "functions", "pointer", "_users", "_changed")

    def __init__(self, lease: Lease, functions: _Functions, pointer: int) -> None:
        self.lease = lease
        self.functions = functions
        self.pointer = pointer
        self._users = 0
        self._changed = threading.Condition()

    @contextmanager
    def use(self, what: str) -> Iterator[int]:
        """The C store, which stays open meanwhile. FailedPrecondition once it is closed."""
        with self._changed:
            pointer = self.pointer
            if not pointer:
                raise FailedPrecondition(f"{what}: the store is closed")
            self._users += 1
        try:
            yield pointer
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            pointer, self.pointer = self.pointer, 0
            if pointer:
                self._changed.wait_for(lambda: self._users == 0)
        if pointer:
            self.functions.close(pointer)

    def __del__(self) -> None:
        if self.lease.usable():
            self.close()


Rows = Union[NDArray[Any], Sequence[Any]]


def _buffers(what: str, count: int, blocks: Rows, writable: bool) -> Tuple[List[Tuple[int, int]], Tuple[Any, ...]]:
    """(address, bytes) of each block, and what has to stay alive."""
    arrays: List[NDArray[Any]] = []
    for i, block in enumerate(blocks):
        array = block if isinstance(block, np.ndarray) else np.frombuffer(block, np.uint8)
        if not array.flags.c_contiguous:
            raise InvalidArgument(f"{what}: block {i}, shape {array.shape}, strides {array.strides}: expected it contiguous")
        if writable and not array.flags.writeable:
            raise InvalidArgument(f"{what}: block {i} is read-only")
        arrays.append(array)
    if len(arrays) != count:
        raise InvalidArgument(f"{what}: {count} keys and {len(arrays)} blocks, expected as many")
    return [(array.ctypes.data, array.nbytes) for array in arrays], (blocks, *arrays)


def _key_array(what: str, keys: Sequence[bytes]) -> Any:
    array = (_Key * max(1, len(keys)))()
    for i, key in enumerate(keys):
        if not isinstance(key, bytes):
            raise InvalidArgument(f"{what}: key {i} is a {type(key).__name__}, expected bytes")
        array[i] = _Key(key, len(key))
    return array


class Store:
    """A store of blocks of up to `block_bytes` bytes: `memory` bytes of them in memory, `file_bytes` in files of
    `directory`, and `object_bytes` as objects. It is used by any number of threads, and one process at a time has a
    directory. A context manager: its end closes the store.

    Blocks come from and go to shared memory (session.empty, zeros, array).
    """

    def __init__(self, session: Session, *, block_bytes: int, memory: int, directory: Optional[str] = None,
                 file_bytes: int = 0, objects: Optional[Objects] = None, object_bytes: int = 0) -> None:
        lease = session._open("kv.Store")

        def text(value: Optional[str]) -> Optional[bytes]:
            return None if value is None else value.encode()

        o = objects
        options = _Options(
            ctypes.sizeof(_Options), block_bytes, memory, text(directory), file_bytes,
            *((None,) * 3 if o is None else (text(o.endpoint), text(o.bucket), text(o.prefix))), object_bytes,
            *signing(None if o is None else o.credentials),
        )
        functions = _Functions(lease.library)
        pointer = c_void_p()
        status = functions.open(lease.pointer, ctypes.byref(options), ctypes.byref(pointer))
        if status:
            raise lease.library.error(status)
        self._handle = _Handle(lease, functions, pointer.value or 0)
        self.block_bytes = block_bytes

    def put(self, keys: Sequence[bytes], blocks: Rows, timeout: Optional[float] = None) -> Call:
        """Begins to put `blocks`, the rows of an array or a sequence of arrays, under their keys of 1 to 64 bytes, and
        returns at once. A key that is there is not copied again. `timeout` in seconds (None: 60, math.inf: none)."""
        return self._start("put", keys, blocks, timeout, False)

    def get(self, keys: Sequence[bytes], room: Rows, timeout: Optional[float] = None) -> Call:
        """Begins to copy the keys' blocks into the rows of `room`. The results say which were there."""
        return self._start("get", keys, room, timeout, True)

    def flush(self, timeout: Optional[float] = None) -> Call:
        """Begins to make all blocks durable whose put has ended."""
        handle = self._handle
        with handle.use("flush") as store:
            options = _CallOptions(ctypes.sizeof(_CallOptions), nanoseconds("flush", timeout))
            pointer = c_void_p()
            self._check(handle.functions.flush(store, ctypes.byref(options), ctypes.byref(pointer)))
        return Call(handle, pointer.value or 0, "flush", 0, ())

    def lookup(self, keys: Sequence[bytes]) -> List[Optional[str]]:
        """The tier of each key, or None."""
        with self._handle.use("lookup") as store:
            if not keys:
                return []
            tiers = (c_int32 * len(keys))()
            self._check(self._handle.functions.lookup(store, _key_array("lookup", keys), len(keys), tiers, None))
        return [_TIERS[tier] if tier >= 0 else None for tier in tiers]

    def prefix(self, keys: Sequence[bytes]) -> int:
        """How many keys, from the first on, are there."""
        count = c_uint64()
        with self._handle.use("prefix") as store:
            if keys:
                named = _key_array("prefix", keys)
                self._check(self._handle.functions.lookup(store, named, len(keys), None, ctypes.byref(count)))
        return count.value

    def __contains__(self, key: bytes) -> bool:
        return self.prefix([key]) == 1

    def erase(self, keys: Sequence[bytes]) -> int:
        """Forgets blocks in all tiers. How many of them were there."""
        count = c_uint64()
        with self._handle.use("erase") as store:
            if keys:
                named = _key_array("erase", keys)
                self._check(self._handle.functions.erase(store, named, len(keys), ctypes.byref(count)))
        return count.value

    def stats(self) -> Stats:
        facts = _Facts(struct_size=ctypes.sizeof(_Facts))
        with self._handle.use("stats") as store:
            self._check(self._handle.functions.stats(store, ctypes.byref(facts)))
        tiers = [TierStats(*(getattr(tier, name) for name in TierStats._fields)) for tier in facts.tiers]
        return Stats(*tiers, *(getattr(facts, name) for name in _COUNTS))

    @property
    def notes(self) -> str:
        """What opening has found to be wrong, and what it did about that; "" if nothing."""
        with self._handle.use("notes") as store:
            notes: bytes = self._handle.functions.notes(store)
        return notes.decode("utf-8", "replace")

    def close(self) -> None:
        """Waits for calls under way; those that wait for room get Cancelled. Does not flush. Closing twice is allowed."""
        self._handle.close()

    def _check(self, status: int) -> None:
        if status:
            raise self._handle.lease.library.error(status)

    def _start(self, what: str, keys: Sequence[bytes], blocks: Rows, timeout: Optional[float], writable: bool) -> Call:
        handle = self._handle
        with handle.use(what) as store:
            buffers, keep = _buffers(what, len(keys), blocks, writable)
            named = _key_array(what, keys)
            array = (_Block * max(1, len(keys)))()
            for i, (address, size) in enumerate(buffers):
                array[i] = _Block(named[i], address, size)
            options = _CallOptions(ctypes.sizeof(_CallOptions), nanoseconds(what, timeout))
            pointer = c_void_p()
            function = handle.functions.get if writable else handle.functions.put
            self._check(function(store, array, len(keys), ctypes.byref(options), None, ctypes.byref(pointer)))
        return Call(handle, pointer.value or 0, what, len(keys), keep)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shunt.kv.Store{'' if self._handle.pointer else ', closed'}>"
