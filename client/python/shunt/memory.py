"""Shared regions as NumPy arrays."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Tuple

import numpy as np

from ._lease import Lease
from .errors import FailedPrecondition, InvalidArgument


class Region:
    """One shared region, freed with its last reference. The arrays on it refer to it as their base."""

    __slots__ = ("lease", "address", "bytes", "__weakref__")

    def __init__(self, lease: Lease, size: int) -> None:
        self.address = 0
        self.lease = lease
        self.bytes = size
        pointer = ctypes.c_void_p()
        status = lease.library.alloc(lease.pointer, size, ctypes.byref(pointer))
        if status:
            raise lease.library.error(status)
        self.address = pointer.value or 0

    @property
    def __array_interface__(self) -> Any:
        return {"version": 3, "shape": (self.bytes,), "typestr": "|u1", "data": (self.address, False)}

    def free(self) -> None:
        """FailedPrecondition names the operation if one in flight still uses the region."""
        if self.address:
            status = self.lease.library.free(self.lease.pointer, self.address)
            if status:
                raise self.lease.library.error(status)
            self.address = 0

    def __del__(self) -> None:
        # A region that cannot be freed here goes with its session.
        if self.address and self.lease.usable():
            self.lease.library.free(self.lease.pointer, self.address)


def allocate(lease: Lease, shape: Any, dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    """A zeroed array on a region of its own. Its base is the region's one root array, as is every view's."""
    if dtype.hasobject:
        raise InvalidArgument(f"empty: dtype {dtype} holds Python objects, which cannot be shared")
    lengths = (shape,) if isinstance(shape, (int, np.integer)) else shape
    dimensions: Tuple[int, ...] = tuple(int(length) for length in lengths)
    if any(length < 0 for length in dimensions):
        raise InvalidArgument(f"empty: negative length in shape {dimensions}")
    size = dtype.itemsize
    for length in dimensions:
        size *= length
    if size == 0:
        return np.empty(dimensions, dtype)  # nothing to share
    root = np.asarray(Region(lease, size))
    return root.view(dtype).reshape(dimensions)


def release(x: "np.ndarray[Any, Any]") -> None:
    """Frees the region under `x` now and leaves `x` empty, shape (0,). See Session.free."""
    root = x.base
    region = root.base if isinstance(root, np.ndarray) else None
    if not isinstance(region, Region):
        raise InvalidArgument("free: the array is not on a region of its own; it is freed with its owner")
    # NumPy gives every view of a view the same base, so the root's references are the live arrays, plus the
    # name above and the argument of getrefcount.
    others = sys.getrefcount(root) - 3
    if others > 0:
        raise FailedPrecondition(f"free: {others} other array(s) on this region are alive")
    region.free()
    x.__setstate__((1, (0,), x.dtype, False, b""))
