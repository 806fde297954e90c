"""Exceptions: one class for each of the library's codes, with the library's words."""

from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """A call that failed. `code` is the library's number (the same as gRPC's), str() its words."""

    code: int = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Cancelled(Error):
    code = 1


class Unknown(Error):
    code = 2


class InvalidArgument(Error, ValueError):
    """The call is wrong whatever the state; the words say how."""

    code = 3


class DeadlineExceeded(Error, TimeoutError):
    """Names the ranks that did not come."""

    code = 4


class NotFound(Error):
    code = 5


class AlreadyExists(Error):
    """A rank that is taken."""

    code = 6


class PermissionDenied(Error):
    code = 7


class ResourceExhausted(Error):
    """A quota, or too many operations in flight."""

    code = 8


class FailedPrecondition(Error):
    """Ranks made different calls, a region is in use, or a communicator or session is over."""

    code = 9


class Aborted(Error):
    """Some rank aborted the communicator."""

    code = 10


class OutOfRange(Error):
    code = 11


class Unimplemented(Error, NotImplementedError):
    code = 12


class Internal(Error):
    code = 13


class Unavailable(Error, ConnectionError):
    """The daemon, or a rank's process, is gone."""

    code = 14


class DataLoss(Error):
    """A disk that cannot read or write, an object's server whose answers make no sense."""

    code = 15


class Unauthenticated(Error):
    """An object's server does not know the keys."""

    code = 16


class LibraryNotFound(Error, ImportError):
    """libshunt.so could not be loaded; the words name every place that was tried."""

    code = 14


_BY_CODE: Dict[int, Type[Error]] = {
    cls.code: cls
    for cls in (
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
        Unauthenticated,
    )
}


def from_code(code: int, message: str) -> Error:
    """The exception for a code of the library; a code that this package does not know is an Unknown."""
    cls = _BY_CODE.get(code)
    if cls is None:
        return Unknown(f"code {code}: {message}")
    return cls(message)
