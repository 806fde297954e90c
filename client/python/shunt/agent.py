"""Agents: sessions with a name, whose memory others may name in transfers."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, List as ListOf, NamedTuple, Sequence

from ._lease import Lease
from ._library import FOREVER, NotificationsStruct, PublishOptions
from .descriptors import List, Sets, write_sets
from .errors import InvalidArgument
from .operation import SLICE_NS, nanoseconds

if TYPE_CHECKING:
    from .session import Session

_ACCESS = {"default": 0, "read": 1, "write": 2, "read_write": 3}


class Notification(NamedTuple):
    sender: str  # the agent that sent it, "agent@node" if on another one; "" or "@node": a session without a name
    payload: bytes


def access_code(what: str, access: str) -> int:
    if access not in _ACCESS:
        raise InvalidArgument(f"{what}: access is {access!r}, expected one of {', '.join(_ACCESS)}")
    return _ACCESS[access]


def encoded(what: str, text: str) -> bytes:
    if "\0" in text:
        raise InvalidArgument(f"{what}: {text!r} contains a zero byte")
    return text.encode()


class Agent:
    """Made by Session.agent(). Its sections are there until they are withdrawn or the session ends."""

    def __init__(self, session: "Session", lease: Lease, name: str) -> None:
        self._session = session
        self.name = name
        incarnation = ctypes.c_uint64()
        status = lease.library.agent_register(lease.pointer, encoded("agent: name", name), ctypes.byref(incarnation))
        if status:
            raise lease.library.error(status)
        # Random; lists that were fetched from an earlier agent of this name are refused.
        self.incarnation: int = incarnation.value

    def publish(self, section: str, sets: Sets, access: str = "read_write", tenants: Sequence[int] = ()) -> List:
        """Publishes pieces of arrays in shared memory (Session.empty ...) under a name, or others in their place:
        then lists that were fetched before are refused. `sets`: an array, whose rows are the pieces, Blocks, or
        several of them; pieces are numbered through. `access`: "read" (others may pull), "write" (push) or
        "read_write"; `tenants`: further user ids that have it.

        Gives the same pieces as a list for transfers of one's own. The arrays stay alive with the section.
        InvalidArgument and OutOfRange name the set that is wrong.
        """
        lease = self._session._open("publish")
        written, count, keep = write_sets("publish", sets)
        ids = (ctypes.c_uint32 * max(1, len(tenants)))(*tenants)
        options = PublishOptions(ctypes.sizeof(PublishOptions), access_code("publish", access), len(tenants), ids)
        pointer = ctypes.c_void_p()
        status = lease.library.section_publish(
            lease.pointer, encoded("publish: section", section), written, count, ctypes.byref(options),
            ctypes.byref(pointer),
        )
        if status:
            raise lease.library.error(status)
        published = List(lease, pointer.value or 0, f"{self.name}/{section}", keep)
        self._session._published[section] = published
        return published

    def withdraw(self, section: str) -> None:
        """NotFound if there is none by that name."""
        lease = self._session._open("withdraw")
        status = lease.library.section_withdraw(lease.pointer, encoded("withdraw: section", section))
        if status:
            raise lease.library.error(status)
        self._session._published.pop(section, None)

    def notifications(self, timeout: float = 0.0, max: int = 0) -> ListOf[Notification]:
        """What has come for this agent, oldest first, each exactly once; at most `max` (0: as many as fit into an
        answer). With none there it waits for the first, `timeout` seconds at most (math.inf: forever), and then
        gives an empty list."""
        lease = self._session._open("notifications")
        left = 0 if timeout == 0 else nanoseconds("notifications", timeout)
        while True:
            now = min(left, SLICE_NS)
            taken = ctypes.POINTER(NotificationsStruct)()
            status = lease.library.notifications_take(lease.pointer, max, now, ctypes.byref(taken))
            if status:
                raise lease.library.error(status)
            try:
                some = [_notification(taken.contents.items[i]) for i in range(taken.contents.count)]
            finally:
                lease.library.notifications_release(taken)
            if left != FOREVER:
                left -= now
            if some or left <= 0:
                return some

    def fileno(self) -> int:
        """A descriptor that becomes readable when notifications may have come; notifications() takes that back.
        It belongs to the session."""
        lease = self._session._open("fileno")
        fd = ctypes.c_int(-1)
        status = lease.library.notifications_fd(lease.pointer, ctypes.byref(fd))
        if status:
            raise lease.library.error(status)
        return fd.value

    def notify(self, agent: str, payload: bytes) -> None:
        """See Session.notify."""
        self._session.notify(agent, payload)

    def __repr__(self) -> str:
        return f"<shunt.Agent {self.name!r}>"


def _notification(item: Any) -> Notification:
    payload = ctypes.string_at(item.payload, item.bytes) if item.bytes else b""
    return Notification((item.sender or b"").decode("utf-8", "replace"), payload)
