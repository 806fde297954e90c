"""libshunt.so: where it is, and the C signatures of what this package calls."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Iterator, List, NoReturn, Optional, Tuple

from . import errors

FOREVER = 2**63 - 1
# shunt_call.flags.
ONLY_WHILE_WAITING = 1
ON_STREAM = 2
# shunt_join_options.flags.
DETERMINISTIC = 1
DEVICE = 2
_SONAME = "libshunt.so.0"
_PLAIN_NAME = "libshunt.so"


class OpenOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("socket", c_char_p), ("name", c_char_p)]


class JoinOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("job", c_char_p),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("timeout_ns", c_int64),
        ("default_timeout_ns", c_int64),
        ("algorithm", c_char_p),
        ("flags", c_uint32),
    ]


class Call(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("timeout_ns", c_int64),
        ("scalar", c_void_p),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("stream", c_void_p),
    ]


class Dimension(Structure):
    _fields_ = [("count", c_uint64), ("stride_bytes", c_int64)]


class Set(Structure):
    _fields_ = [
        ("pointer", c_void_p),
        ("bytes", c_uint64),
        ("dimensions", c_uint32),
        ("reserved", c_uint32),
        ("dims", Dimension * 3),
        ("file", c_void_p),
        ("offset", c_uint64),
    ]


class CreateOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("timeout_ns", c_int64), ("flags", c_uint32), ("reserved", c_uint32)]


class ObjectStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("endpoint", c_char_p),
        ("bucket", c_char_p),
        ("key", c_char_p),
        ("access_key_id", c_char_p),
        ("secret_access_key", c_char_p),
        ("session_token", c_char_p),
    ]


class FileFacts(Structure):
    _fields_ = [("struct_size", c_size_t), ("bytes", c_uint64), ("region_id", c_uint64)]


class PublishOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("access", c_int32), ("tenant_count", c_uint32), ("tenants", POINTER(c_uint32))]


class ListFacts(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pieces", c_uint64),
        ("piece_bytes", c_uint64),
        ("bytes", c_uint64),
        ("version", c_uint64),
        ("incarnation", c_uint64),
        ("node", c_char_p),
    ]


class SelectionStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("list", c_void_p),
        ("form", c_int32),
        ("reserved", c_uint32),
        ("data", c_void_p),
        ("count", c_uint64),
        ("unit", c_uint64),
        ("repeats", c_uint64),
        ("repeat_step", c_uint64),
    ]


class TransferOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("timeout_ns", c_int64),
        ("priority", c_int32),
        ("reserved", c_uint32),
        ("notification", c_char_p),
        ("notification_bytes", c_uint64),
    ]


class ReportStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes", c_uint64),
        ("waited_ns", c_uint64),
        ("moved_ns", c_uint64),
        ("route", c_char * 16),
    ]


class ExplanationStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes", c_uint64),
        ("copy_runs", c_uint64),
        ("predicted_ns", c_uint64),
        ("bytes_ahead", c_uint64),
        ("route", c_char * 16),
    ]


class NotificationStruct(Structure):
    _fields_ = [("sender", c_char_p), ("payload", c_void_p), ("bytes", c_uint64)]


class NotificationsStruct(Structure):
    _fields_ = [("count", c_uint64), ("items", POINTER(NotificationStruct)), ("more", c_int32)]


# Every data call is (comm, <these>, call, op).
_DATA_CALLS = {
    "all_reduce": (c_void_p, c_void_p, c_uint64, c_int, c_int),
    "reduce": (c_void_p, c_void_p, c_uint64, c_int, c_int, c_int32),
    "broadcast": (c_void_p, c_void_p, c_uint64, c_int, c_int32),
    "all_gather": (c_void_p, c_void_p, c_uint64, c_int),
    "reduce_scatter": (c_void_p, c_void_p, c_uint64, c_int, c_int),
    "all_to_all": (c_void_p, c_void_p, c_uint64, c_int),
    "all_to_all_v": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int),
    "gather": (c_void_p, c_void_p, c_uint64, c_int, c_int32),
    "scatter": (c_void_p, c_void_p, c_uint64, c_int, c_int32),
    "send": (c_void_p, c_uint64, c_int, c_int32),
    "recv": (c_void_p, c_uint64, c_int, c_int32),
    "barrier": (),
}


class Library:
    """The loaded library. Function objects are made once, as attributes; ctypes releases the GIL in each."""

    def __init__(self, dll: ctypes.CDLL, path: str) -> None:
        self.path = path
        pointer_out = POINTER(c_void_p)

        def function(name: str, restype: Any, *argtypes: Any) -> Any:
            f = getattr(dll, "shunt_" + name)
            f.restype = restype
            f.argtypes = argtypes
            return f

        self.version = function("version", c_char_p)
        self.last_error = function("last_error", c_char_p)
        self.open = function("open", c_int, POINTER(OpenOptions), pointer_out)
        self.close = function("close", None, c_void_p)
        self.session_id = function("session_id", c_uint64, c_void_p)
        self.alloc = function("alloc", c_int, c_void_p, c_size_t, pointer_out)
        self.free = function("free", c_int, c_void_p, c_void_p)
        self.region_id = function("region_id", c_int, c_void_p, c_void_p, POINTER(c_uint64))
        self.register = function("register", c_int, c_void_p, c_void_p)
        self.deregister = function("deregister", c_int, c_void_p, c_void_p)
        self.alloc_device = function("alloc_device", c_int, c_void_p, c_int32, c_size_t, pointer_out)
        self.free_device = function("free_device", c_int, c_void_p, c_void_p)
        self.sync = function("sync", c_int, c_void_p, c_int64)
        self.join = function("join", c_int, c_void_p, POINTER(JoinOptions), pointer_out)
        self.split = function("split", c_int, c_void_p, c_int32, c_int32, c_int64, pointer_out)
        self.rank = function("rank", c_int32, c_void_p)
        self.world_size = function("world_size", c_int32, c_void_p)
        self.leave = function("leave", None, c_void_p)
        self.abort = function("abort", c_int, c_void_p, c_char_p)
        self.group_begin = function("group_begin", c_int, c_void_p)
        self.group_end = function("group_end", c_int, c_void_p, c_void_p)
        self.op_poll = function("op_poll", c_int, c_void_p, POINTER(c_int))
        self.op_wait = function("op_wait", c_int, c_void_p, c_int64)
        self.op_fd = function("op_fd", c_int, c_void_p, POINTER(c_int))
        self.op_release = function("op_release", None, c_void_p)
        self.agent_register = function("agent_register", c_int, c_void_p, c_char_p, POINTER(c_uint64))
        self.section_publish = function(
            "section_publish", c_int, c_void_p, c_char_p, POINTER(Set), c_uint64, POINTER(PublishOptions), pointer_out
        )
        self.section_withdraw = function("section_withdraw", c_int, c_void_p, c_char_p)
        self.section_fetch = function("section_fetch", c_int, c_void_p, c_char_p, c_char_p, c_int32, pointer_out)
        self.list_prepare = function("list_prepare", c_int, c_void_p, POINTER(Set), c_uint64, pointer_out)
        self.list_info = function("list_info", c_int, c_void_p, POINTER(ListFacts))
        self.list_release = function("list_release", None, c_void_p)
        selection = POINTER(SelectionStruct)
        options = POINTER(TransferOptions)
        self.transfer_post = function(
            "transfer_post", c_int, c_void_p, c_int32, selection, selection, options, pointer_out
        )
        self.transfer_poll = function("transfer_poll", c_int, c_void_p, POINTER(c_int))
        self.transfer_wait = function("transfer_wait", c_int, c_void_p, c_int64)
        self.transfer_fd = function("transfer_fd", c_int, c_void_p, POINTER(c_int))
        self.transfer_cancel = function("transfer_cancel", c_int, c_void_p)
        self.transfer_report = function("transfer_report", c_int, c_void_p, POINTER(ReportStruct))
        self.transfer_release = function("transfer_release", None, c_void_p)
        self.transfer_explain = function(
            "transfer_explain", c_int, c_void_p, c_int32, selection, selection, options, POINTER(ExplanationStruct)
        )
        self.file_open_fd = function("file_open_fd", c_int, c_void_p, c_int, c_int32, c_int64, pointer_out)
        self.file_open = function("file_open", c_int, c_void_p, c_char_p, c_char_p, c_int32, c_int64, pointer_out)
        creation = POINTER(CreateOptions)
        self.file_create = function("file_create", c_int, c_void_p, c_char_p, c_char_p, c_uint64, creation, pointer_out)
        place = POINTER(ObjectStruct)
        self.object_open = function("object_open", c_int, c_void_p, place, c_int64, pointer_out)
        self.object_create = function("object_create", c_int, c_void_p, place, c_uint64, creation, pointer_out)
        self.file_info = function("file_info", c_int, c_void_p, POINTER(FileFacts))
        self.file_sync = function("file_sync", c_int, c_void_p, c_int64)
        self.file_commit = function("file_commit", c_int, c_void_p, c_int64)
        self.file_close = function("file_close", c_int, c_void_p)
        self.file_release = function("file_release", None, c_void_p)
        self.notify = function("notify", c_int, c_void_p, c_char_p, c_char_p, c_uint64)
        self.notifications_take = function(
            "notifications_take", c_int, c_void_p, c_uint32, c_int64, POINTER(POINTER(NotificationsStruct))
        )
        self.notifications_release = function("notifications_release", None, POINTER(NotificationsStruct))
        self.notifications_fd = function("notifications_fd", c_int, c_void_p, POINTER(c_int))
        for name, arguments in _DATA_CALLS.items():
            # The two last are pointers, but as plain addresses they convert faster and take byref() too.
            setattr(self, name, function(name, c_int, c_void_p, *arguments, c_void_p, c_void_p))

    def __getattr__(self, name: str) -> Any:  # for type checkers: the data calls set above
        raise AttributeError(name)

    def error(self, code: int) -> errors.Error:
        """The exception for a code that a call of this thread has just returned."""
        words = self.last_error() or b""
        return errors.from_code(code, words.decode("utf-8", "replace"))

    def fail(self, code: int) -> NoReturn:
        raise self.error(code)


_loaded: Optional[Library] = None


def _candidates() -> Iterator[Tuple[str, str]]:
    """(what to hand to the loader, how to call the place in an error), in order of preference."""
    package = Path(__file__).resolve().parent
    for name in (_PLAIN_NAME, _SONAME):
        yield str(package / name), str(package / name)
    # A source tree: <root>/client/python/shunt and <root>/build/lib.
    root = package.parents[2]
    if (root / "client" / "include" / "shunt.h").is_file():
        path = str(root / "build" / "lib" / _PLAIN_NAME)
        yield path, path
    for name in (_SONAME, _PLAIN_NAME):
        yield name, f"{name} on the system loader's path"


def _open(path: str) -> Library:
    dll = ctypes.CDLL(path)
    try:
        return Library(dll, path)
    except AttributeError as error:
        raise OSError(f"not a libshunt of this version: {error}") from None


def load() -> Library:
    """The library, found and loaded on the first call."""
    global _loaded
    if _loaded is not None:
        return _loaded
    chosen = os.environ.get("SHUNT_LIBRARY")
    if chosen:
        if os.path.isdir(chosen):
            file = os.path.join(chosen, _PLAIN_NAME)
            raise errors.LibraryNotFound(f"$SHUNT_LIBRARY is {chosen!r}, a directory; expected the file, such as {file!r}")
        try:
            _loaded = _open(chosen)
        except OSError as error:
            raise errors.LibraryNotFound(f"cannot load $SHUNT_LIBRARY: {error}") from None
        return _loaded
    tried: List[str] = []
    for path, shown in _candidates():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{shown}: no such file")
            continue
        try:
            _loaded = _open(path)
            return _loaded
        except OSError as error:
            tried.append(f"{shown}: {error}")
    raise errors.LibraryNotFound(
        "cannot find libshunt.so. Install Shunt (cmake --install, then ldconfig as root); where it lies under another "
        "prefix, set SHUNT_LIBRARY=PREFIX/lib/libshunt.so. Tried:\n  $SHUNT_LIBRARY: not set\n  " + "\n  ".join(tried)
    )
