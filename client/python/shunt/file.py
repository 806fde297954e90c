"""Files and objects: what transfers name beside memory."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from types import TracebackType
from typing import Callable, Optional, Protocol, Tuple, Type, Union

from ._interruptible import interruptible
from ._lease import Lease
from ._library import CreateOptions, Dimension, FileFacts, ObjectStruct, Set
from .errors import InvalidArgument
from .operation import nanoseconds

_READ, _READ_WRITE = 1, 3
_IF_ABSENT = 1


class HasFileno(Protocol):
    def fileno(self) -> int: ...


# A path, which open_file() opens itself, or what is open already.
Opened = Union[str, "os.PathLike[str]", int, HasFileno]


@dataclass(frozen=True)
class ObjectCredentials:
    """What signs requests for an object; kept by the session alone. `session_token`: of keys that expire."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def signing(credentials: Optional[ObjectCredentials]) -> Tuple[Optional[bytes], Optional[bytes], Optional[bytes]]:
    """As the library takes it."""
    if credentials is None:
        return None, None, None
    return (credentials.access_key_id.encode(), credentials.secret_access_key.encode(),
            credentials.session_token.encode())


class FileBlocks:
    """Pieces of a file, for lists and sections: made by File.piece, File.blocks and File.strided."""

    __slots__ = ("file", "offset", "bytes", "dimensions")

    def __init__(self, file: "File", offset: int, length: int, dimensions: Tuple[Tuple[int, int], ...]) -> None:
        for what, value in (("offset", offset), ("bytes", length), *((f"dimension {d}", v) for d in dimensions for v in d)):
            if not 0 <= value < 2**63:
                raise InvalidArgument(f"pieces of {file!r}: {what} is {value}, expected 0 or more")
        if len(dimensions) > 3:
            raise InvalidArgument(f"pieces of {file!r}: {len(dimensions)} dimensions, expected at most 3")
        self.file = file
        self.offset = offset
        self.bytes = length
        self.dimensions = dimensions

    def _write(self, out: Set) -> None:
        out.pointer = None
        out.file = self.file._pointer
        out.offset = self.offset
        out.bytes = self.bytes
        out.dimensions = len(self.dimensions)
        for i, (count, stride) in enumerate(self.dimensions):
            out.dims[i] = Dimension(count, stride)


class File:
    """A file or an object that is open, or a draft of one: made by Session.open_file, create_file, open_object and
    create_object. In a `with` block it is closed at the end, which aborts a draft that was not committed.

    bytes (when it was opened; of a draft, what it will have), region_id (for List.places). As a set of a list it
    means the whole file as one piece.
    """

    def __init__(self, lease: Lease, pointer: int, name: str) -> None:
        self._lease = lease
        self._pointer = pointer
        self.name = name
        self.closed = False
        facts = FileFacts(struct_size=ctypes.sizeof(FileFacts))
        self._check(lease.library.file_info(pointer, ctypes.byref(facts)))
        self.bytes: int = facts.bytes
        self.region_id: int = facts.region_id

    # ---- pieces

    def piece(self, offset: int, length: int) -> FileBlocks:
        """One piece of `length` bytes."""
        return FileBlocks(self, offset, length, ())

    def blocks(self, offset: int, length: int, count: int, stride: Optional[int] = None) -> FileBlocks:
        """`count` pieces of `length` bytes each, `stride` bytes apart (default: one after the other)."""
        return FileBlocks(self, offset, length, ((count, length if stride is None else stride),))

    def strided(self, offset: int, length: int, *dimensions: Tuple[int, int]) -> FileBlocks:
        """Pieces in up to three dimensions, each a count and a stride in bytes, the last one running fastest."""
        return FileBlocks(self, offset, length, tuple(dimensions))

    # ---- life

    def sync(self, timeout: Optional[float] = 60.0) -> None:
        """Makes durable what transfers that have ended have written in place."""
        timeout_ns = nanoseconds("sync", timeout)
        self._wait(lambda: int(self._lease.library.file_sync(self._pointer, timeout_ns)))

    def commit(self, timeout: Optional[float] = 60.0) -> None:
        """Makes a draft appear, whole and durable. FailedPrecondition: a transfer uses it, and it stays a draft; or
        bytes are missing, and it is none any more. AlreadyExists: it was to be new."""
        timeout_ns = nanoseconds("commit", timeout)
        self._wait(lambda: int(self._lease.library.file_commit(self._pointer, timeout_ns)))
        self.closed = True

    def close(self) -> None:
        """Closes it now, also under lists that name it; a draft is aborted, with what writes into it.
        FailedPrecondition names a transfer in flight that uses it. Closing twice is allowed."""
        if not self.closed:
            self._check(self._lease.library.file_close(self._pointer))
            self.closed = True

    def _wait(self, call: Callable[[], int]) -> None:
        def checked() -> None:
            self._check(call())  # by the thread that has made the call: the words are its own

        interruptible(checked, lambda _: None)

    def _check(self, status: int) -> None:
        if status:
            raise self._lease.library.error(status)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0) and self._lease.usable():
            self._lease.library.file_release(self._pointer)

    def __repr__(self) -> str:
        return f"<shunt.File {self.name}: {getattr(self, 'bytes', 0)} bytes{', closed' if self.closed else ''}>"


def _text(what: str, text: str) -> bytes:
    if "\0" in text:
        raise InvalidArgument(f"{what}: {text!r} contains a zero byte")
    return text.encode()


def _made(lease: Lease, name: str, call: Callable[["ctypes._CArgObject"], int]) -> File:
    """The file that `call` gives."""

    def make() -> int:
        pointer = ctypes.c_void_p()
        status = call(ctypes.byref(pointer))
        if status:
            raise lease.library.error(status)
        return pointer.value or 0

    return File(lease, interruptible(make, lease.library.file_release), name)


def open_descriptor(lease: Lease, opened: Opened, writable: bool, timeout: Optional[float]) -> File:
    timeout_ns = nanoseconds("open_file", timeout)
    access = _READ_WRITE if writable else _READ
    own = -1
    if isinstance(opened, int):
        fd, name = opened, f"descriptor {opened}"
    elif isinstance(opened, (str, os.PathLike)):
        name = os.fspath(opened)
        fd = own = os.open(name, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    else:
        fd, name = opened.fileno(), str(getattr(opened, "name", "file object"))
    try:
        return _made(lease, name, lambda out: int(lease.library.file_open_fd(lease.pointer, fd, access, timeout_ns, out)))
    finally:
        if own >= 0:
            os.close(own)


def open_below(lease: Lease, root: str, path: str, writable: bool, timeout: Optional[float]) -> File:
    arguments = (_text("open_file: root", root), _text("open_file: path", path), _READ_WRITE if writable else _READ,
                 nanoseconds("open_file", timeout))
    return _made(lease, f"{root}:{path}", lambda out: int(lease.library.file_open(lease.pointer, *arguments, out)))


def _create_options(what: str, size: int, if_absent: bool, timeout: Optional[float]) -> CreateOptions:
    if not 0 <= size < 2**64:
        raise InvalidArgument(f"{what}: size is {size}, expected 0 or more")
    return CreateOptions(ctypes.sizeof(CreateOptions), nanoseconds(what, timeout), _IF_ABSENT if if_absent else 0, 0)


def create_below(lease: Lease, root: str, path: str, size: int, if_absent: bool, timeout: Optional[float]) -> File:
    options = _create_options("create_file", size, if_absent, timeout)
    names = _text("create_file: root", root), _text("create_file: path", path)
    return _made(lease, f"{root}:{path}", lambda out: int(
        lease.library.file_create(lease.pointer, *names, size, ctypes.byref(options), out)))


def _object(what: str, endpoint: str, bucket: str, key: str, credentials: Optional[ObjectCredentials]) -> ObjectStruct:
    names = _text(f"{what}: endpoint", endpoint), _text(f"{what}: bucket", bucket), _text(f"{what}: key", key)
    return ObjectStruct(ctypes.sizeof(ObjectStruct), *names, *signing(credentials))


def open_object(lease: Lease, endpoint: str, bucket: str, key: str, credentials: Optional[ObjectCredentials],
                timeout: Optional[float]) -> File:
    place = _object("open_object", endpoint, bucket, key, credentials)
    timeout_ns = nanoseconds("open_object", timeout)
    return _made(lease, f"{endpoint}:{bucket}/{key}", lambda out: int(
        lease.library.object_open(lease.pointer, ctypes.byref(place), timeout_ns, out)))


def create_object(lease: Lease, endpoint: str, bucket: str, key: str, size: int,
                  credentials: Optional[ObjectCredentials], if_absent: bool, timeout: Optional[float]) -> File:
    place = _object("create_object", endpoint, bucket, key, credentials)
    options = _create_options("create_object", size, if_absent, timeout)
    return _made(lease, f"{endpoint}:{bucket}/{key}", lambda out: int(
        lease.library.object_create(lease.pointer, ctypes.byref(place), size, ctypes.byref(options), out)))
