"""Sessions: a process's lease on the daemon of its node."""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Any, Dict, Optional, Sequence, Tuple, Type, Union

import numpy as np
from numpy.typing import NDArray

from . import _dtypes, file as files, memory
from ._device import pointer_of
from ._interruptible import interruptible
from ._lease import Lease
from ._library import DETERMINISTIC, DEVICE, ExplanationStruct, JoinOptions, Library, OpenOptions, TransferOptions, load
from .agent import Agent, access_code, encoded
from .communicator import Communicator
from .descriptors import List, Selection, Sets, Side, select, write_sets
from .errors import FailedPrecondition, InvalidArgument, NotFound
from .file import File, ObjectCredentials, Opened
from .operation import nanoseconds
from .transfer import Explanation, Transfer

Shape = Union[int, Sequence[int]]

_PULL, _PUSH = 0, 1
_PRIORITIES = {"bulk": 0, "latency": 1, "background": 2}


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
        self._published: Dict[str, List] = {}  # keeps the arrays of sections alive
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

    def register(self, x: Any) -> None:
        """Registers the whole CUDA allocation that holds `x` (an array in a GPU's memory, or an address), for transfers
        and for collectives of communicators with `device=True`, which do it at their first use too. InvalidArgument:
        no CUDA memory; FailedPrecondition: memory that cannot be shared (cudaMallocAsync, managed); Unimplemented: the
        daemon has no such GPU; Unavailable: no CUDA driver here."""
        lease = self._open("register")
        status = lease.library.register(lease.pointer, pointer_of("register", x))
        if status:
            raise lease.library.error(status)

    def deregister(self, x: Any) -> None:
        """Once for each register(), before the memory is freed; the last forgets the allocation. FailedPrecondition
        names an operation in flight that uses it."""
        lease = self._open("deregister")
        status = lease.library.deregister(lease.pointer, pointer_of("deregister", x))
        if status:
            raise lease.library.error(status)

    def alloc_device(self, size: int, device: int = 0) -> int:
        """The address of `size` bytes on the GPU of that ordinal, registered and shareable with the daemon from inside
        containers too. Freed by free_device()."""
        lease = self._open("alloc_device")
        if not 0 < size < 2**63:
            raise InvalidArgument(f"alloc_device: size is {size}, expected 1 or more bytes")
        pointer = ctypes.c_void_p()
        status = lease.library.alloc_device(lease.pointer, device, size, ctypes.byref(pointer))
        if status:
            raise lease.library.error(status)
        return pointer.value or 0

    def free_device(self, address: int) -> None:
        lease = self._open("free_device")
        status = lease.library.free_device(lease.pointer, address)
        if status:
            raise lease.library.error(status)

    def region_id(self, x: Any) -> Optional[int]:
        """The id of the region that `x` lies in; None if it is ordinary memory of this process."""
        lease = self._open("region_id")
        region = ctypes.c_uint64()
        status = lease.library.region_id(lease.pointer, pointer_of("region_id", x), ctypes.byref(region))
        if status == NotFound.code:
            return None
        if status:
            raise lease.library.error(status)
        return region.value

    # ---- communicators

    def join(self, name: str, rank: int, world_size: int, job: Optional[str] = None,
             timeout: Optional[float] = 60.0, default_timeout: Optional[float] = 60.0,
             algorithm: Optional[str] = None, deterministic: bool = False, device: bool = False) -> Communicator:
        """Returns when all `world_size` ranks (1 to 128 on one node, up to 32,767 on several) have joined `name`. Times
        in seconds; `default_timeout` is for the calls that name none. `algorithm` is what nodes exchange data by
        ("ring" ...; default: $SHUNT_ALGORITHM, else the fastest by what was measured); with `deterministic` nothing
        that was measured decides how data meets, so the same inputs give the same bits in every run.
        With `device` the arrays of its calls may lie in GPUs' memory, and calls may have a stream: all ranks give it,
        and are on one node (Unimplemented: the daemon has no GPU).

        `job` keeps jobs with equal names apart (default: $SHUNT_JOB, else ""). DeadlineExceeded names the ranks
        that are missing, AlreadyExists who holds the rank, FailedPrecondition a differing world size, algorithm
        `deterministic` or `device`.
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
            (DETERMINISTIC if deterministic else 0) | (DEVICE if device else 0),
        )

        def wait() -> int:
            pointer = ctypes.c_void_p()
            status = lease.library.join(lease.pointer, ctypes.byref(options), ctypes.byref(pointer))
            if status:
                raise lease.library.error(status)
            return pointer.value or 0

        return Communicator(lease, interruptible(wait, lease.library.leave), name, rank, world_size, self._communicators)

    # ---- transfers

    def agent(self, name: str) -> Agent:
        """Takes a name, by which other agents find this one's sections until the session ends: 1 to 255 printable
        bytes without "/" and "@". AlreadyExists: another session of this user has it, or this one has another."""
        return Agent(self, self._open("agent"), name)

    def fetch(self, agent: str, section: str, access: str = "read") -> List:
        """Another agent's section, to name pieces of it: "agent@node", or "agent": this node's, or else the first
        other node's, by name, that has one. `access`: what it is wanted for, "read" to pull, "write" to push,
        "read_write" for both. NotFound: no such agent or section; PermissionDenied: it may not be used so;
        Unavailable: its node cannot be reached."""
        lease = self._open("fetch")
        pointer = ctypes.c_void_p()
        status = lease.library.section_fetch(
            lease.pointer, encoded("fetch: agent", agent), encoded("fetch: section", section),
            access_code("fetch", access), ctypes.byref(pointer),
        )
        if status:
            raise lease.library.error(status)
        return List(lease, pointer.value or 0, f"{agent}/{section}", ())

    def prepare(self, sets: Sets) -> List:
        """A list of one's own memory, or of files and objects, for any number of transfers; see Agent.publish for
        `sets`."""
        lease = self._open("prepare")
        written, count, keep = write_sets("prepare", sets)
        pointer = ctypes.c_void_p()
        status = lease.library.list_prepare(lease.pointer, written, count, ctypes.byref(pointer))
        if status:
            raise lease.library.error(status)
        return List(lease, pointer.value or 0, "prepared", keep)

    def pull(self, local: Side, remote: Side, notify: Optional[bytes] = None, timeout: Optional[float] = None,
             priority: str = "bulk") -> Transfer:
        """Begins to copy the bytes of `remote` into `local` and returns at once. Each side is a list or a selection
        of one (List.ids ...); `local` is one's own. They may be cut into pieces differently, but have equally many
        bytes.

        `notify`: up to 1024 bytes for the agent that published `remote`, when the last byte is there. `timeout` in
        seconds (None: 60, math.inf: none) ends the transfer with DeadlineExceeded. `priority`: "bulk", "latency"
        or "background". What is wrong with it is raised by the transfer's wait().
        """
        return self._post("pull", _PULL, local, remote, notify, timeout, priority)

    def push(self, local: Side, remote: Side, notify: Optional[bytes] = None, timeout: Optional[float] = None,
             priority: str = "bulk") -> Transfer:
        """The same from `local` into `remote`."""
        return self._post("push", _PUSH, local, remote, notify, timeout, priority)

    def explain(self, direction: str, local: Side, remote: Side, priority: str = "bulk") -> Explanation:
        """What a "pull" or "push" would do, and how long it would take; nothing is begun. Raises what the transfer
        would fail with."""
        lease = self._open("explain")
        if direction not in ("pull", "push"):
            raise InvalidArgument(f"explain: direction is {direction!r}, expected 'pull' or 'push'")
        mine, theirs, options = self._sides("explain", local, remote, None, None, priority)
        e = ExplanationStruct(struct_size=ctypes.sizeof(ExplanationStruct))
        status = lease.library.transfer_explain(
            lease.pointer, _PULL if direction == "pull" else _PUSH, ctypes.byref(mine._struct),
            ctypes.byref(theirs._struct), ctypes.byref(options), ctypes.byref(e),
        )
        if status:
            raise lease.library.error(status)
        return Explanation(e.bytes, e.route.decode(), e.copy_runs, e.predicted_ns / 1e9, e.bytes_ahead)

    def notify(self, agent: str, payload: bytes) -> None:
        """A notification alone, of at most 1024 bytes. ResourceExhausted: too many wait there."""
        lease = self._open("notify")
        status = lease.library.notify(lease.pointer, encoded("notify: agent", agent), payload, len(payload))
        if status:
            raise lease.library.error(status)

    def _sides(self, what: str, local: Side, remote: Side, notify: Optional[bytes], timeout: Optional[float],
               priority: str) -> Tuple[Selection, Selection, TransferOptions]:
        if priority not in _PRIORITIES:
            raise InvalidArgument(f"{what}: priority is {priority!r}, expected one of {', '.join(_PRIORITIES)}")
        options = TransferOptions(
            ctypes.sizeof(TransferOptions), nanoseconds(what, timeout), _PRIORITIES[priority], 0, notify,
            0 if notify is None else len(notify),
        )
        return select(f"{what}: local", local), select(f"{what}: remote", remote), options

    def _post(self, what: str, direction: int, local: Side, remote: Side, notify: Optional[bytes],
              timeout: Optional[float], priority: str) -> Transfer:
        lease = self._open(what)
        mine, theirs, options = self._sides(what, local, remote, notify, timeout, priority)
        pointer = ctypes.c_void_p()
        status = lease.library.transfer_post(
            lease.pointer, direction, ctypes.byref(mine._struct), ctypes.byref(theirs._struct), ctypes.byref(options),
            ctypes.byref(pointer),
        )
        if status:
            raise lease.library.error(status)
        return Transfer(lease, pointer.value or 0, what, (mine.list, theirs.list))

    # ---- files and objects

    def open_file(self, file: Optional[Opened] = None, *, root: Optional[str] = None, path: Optional[str] = None,
                  writable: bool = False, timeout: Optional[float] = 60.0) -> File:
        """A file as a side of transfers: a path that this process may open, or a descriptor or file object that it
        has open (and that stays its own); or `path` below a `root` of the daemon's configuration. Transfers write
        in place, never beyond the end that the file has now; sync() makes that durable.

        Errors of opening a path are Python's own. Of the daemon: NotFound, PermissionDenied (also: a link on the way
        below a root), InvalidArgument (no regular file), ResourceExhausted names the limit.
        """
        lease = self._open("open_file")
        if file is not None and root is None and path is None:
            return files.open_descriptor(lease, file, writable, timeout)
        if file is not None or root is None or path is None:
            raise InvalidArgument("open_file: expected a file, or a root and a path below it")
        return files.open_below(lease, root, path, writable, timeout)

    def create_file(self, root: str, path: str, size: int, if_absent: bool = False,
                    timeout: Optional[float] = 60.0) -> File:
        """A draft of a file of `size` bytes below a root: transfers write each of them once, then commit() makes it
        appear whole. Until then nothing is to be seen of it; if it is closed or its session ends, nothing ever is.
        `if_absent`: AlreadyExists, at once or of the commit, if there is one by that name; otherwise it is replaced.
        """
        return files.create_below(self._open("create_file"), root, path, size, if_absent, timeout)

    def open_object(self, endpoint: str, bucket: str, key: str, credentials: Optional[ObjectCredentials] = None,
                    timeout: Optional[float] = 60.0) -> File:
        """An object of an endpoint of the daemon's configuration, for reading; without credentials requests are not
        signed. NotFound; PermissionDenied; Unauthenticated: the server does not know the keys; Unavailable: it does
        not answer."""
        return files.open_object(self._open("open_object"), endpoint, bucket, key, credentials, timeout)

    def create_object(self, endpoint: str, bucket: str, key: str, size: int,
                      credentials: Optional[ObjectCredentials] = None, if_absent: bool = False,
                      timeout: Optional[float] = 60.0) -> File:
        """A draft of an object, as create_file()."""
        return files.create_object(
            self._open("create_object"), endpoint, bucket, key, size, credentials, if_absent, timeout
        )

    # ---- life

    def close(self) -> None:
        """Leaves all communicators and withdraws all sections. The daemon's side ends, and the memory with it, once the last array on a
        region and the last Operation are gone too: a view never points to nothing. Closing twice is allowed."""
        if self._lease is None:
            return
        for communicator in list(self._communicators):
            communicator.leave()
        for section in list(self._published):
            self._lease.library.section_withdraw(self._lease.pointer, section.encode())
        self._published.clear()
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
