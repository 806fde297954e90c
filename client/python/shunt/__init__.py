"""Collectives and transfers between the processes of a machine, through its shuntd daemon.

    import shunt

    with shunt.connect() as session:
        comm = session.join("training", rank=rank, world_size=4)
        x = session.array([1.0, 2.0, 3.0])  # a NumPy array in shared memory
        comm.all_reduce(x)                  # in place

A thin layer over libshunt's C interface. Every failure is a shunt.Error whose text says which rank, which call
and which value.
"""

from . import kv
from ._collectives import Collectives
from ._library import load as _load
from .agent import Agent, Notification
from .communicator import Communicator
from .descriptors import Blocks, List, Selection
from .errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    LibraryNotFound,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from .file import File, FileBlocks, ObjectCredentials
from .group import Group
from .operation import Operation
from .session import Session, connect
from .transfer import Explanation, Report, Transfer

__version__ = "0.1.0"


def library_version() -> str:
    """The version of the libshunt that is used."""
    version: bytes = _load().version()
    return version.decode()


__all__ = [
    "Aborted",
    "Agent",
    "AlreadyExists",
    "Blocks",
    "Cancelled",
    "Collectives",
    "Communicator",
    "DataLoss",
    "DeadlineExceeded",
    "Error",
    "Explanation",
    "FailedPrecondition",
    "File",
    "FileBlocks",
    "Group",
    "Internal",
    "InvalidArgument",
    "LibraryNotFound",
    "List",
    "NotFound",
    "Notification",
    "ObjectCredentials",
    "Operation",
    "OutOfRange",
    "PermissionDenied",
    "Report",
    "ResourceExhausted",
    "Selection",
    "Session",
    "Transfer",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "connect",
    "kv",
    "library_version",
]
