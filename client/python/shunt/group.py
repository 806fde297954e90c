"""Several calls as one submission."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type

from .errors import Error, FailedPrecondition
from .operation import Operation

if TYPE_CHECKING:
    from .communicator import Communicator


class Group:
    """Collects the calls that this thread makes on the communicator inside `with`, and submits them at its end:

        with comm.group():
            comm.send(mine, right)
            comm.recv(theirs, left)

    Their results are there after the block; with async_op=True, after `operation.wait()`. Nothing is submitted
    if the block raises.
    """

    def __init__(self, comm: "Communicator", async_op: bool) -> None:
        self._comm = comm
        self._async = async_op
        self._calls: List[Tuple[Callable[..., int], Tuple[Any, ...]]] = []
        self._keep: List[Any] = []
        self.operation: Optional[Operation[None]] = None  # set at the end of an asynchronous group

    def add(self, function: Callable[..., int], arguments: Tuple[Any, ...], keep: Any) -> None:
        self._calls.append((function, arguments))
        self._keep.append(keep)

    def __enter__(self) -> "Group":
        groups = self._comm._groups
        if threading.get_ident() in groups:
            raise FailedPrecondition("group: this thread is already in a group on this communicator")
        groups[threading.get_ident()] = self
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        del self._comm._groups[threading.get_ident()]
        if kind is None and self._calls:
            self._submit()

    def _submit(self) -> None:
        comm = self._comm
        if comm._comm is None:
            raise FailedPrecondition(f"group: communicator {comm.name!r} has been left")
        library = comm._lease.library
        status = library.group_begin(comm._comm)
        if status:
            raise library.error(status)
        refused: Optional[Error] = None
        for function, arguments in self._calls:
            status = function(*arguments)
            if status:
                refused = library.error(status)
                break
        handle = ctypes.c_void_p()
        status = library.group_end(comm._comm, ctypes.byref(handle) if self._async else None)
        if refused is None and status:
            refused = library.error(status)
        if self._async and handle.value:
            self.operation = Operation(comm._lease, handle.value, "group", None, (self._keep, comm))
        if refused is not None:
            raise refused


def current_group(groups: Dict[int, Group]) -> Optional[Group]:
    return groups.get(threading.get_ident())
