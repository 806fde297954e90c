"""Arrays in a GPU's memory, and CUDA streams, as other packages have them: torch, CuPy, Numba and whatever else speaks
their protocols. None of those is imported here."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from ._dtypes import NAMES, code_of, explicit_code
from .errors import InvalidArgument

_TORCH_NAMES = {"float8_e4m3fn": "float8_e4m3"}


def is_device_array(x: Any) -> bool:
    """Whether `x` is no NumPy array, but one of a GPU."""
    if isinstance(x, np.ndarray):
        return False
    return _is_torch(x) or hasattr(type(x), "__cuda_array_interface__") or hasattr(x, "__cuda_array_interface__")


def _is_torch(x: Any) -> bool:
    return getattr(x, "is_cuda", False) is True and callable(getattr(x, "data_ptr", None))


def describe(what: str, name: str, x: Any, dtype: Optional[str], writes: bool) -> Tuple[int, int, int]:
    """(address, elements, type code), as of a NumPy array."""
    if _is_torch(x):
        return _describe_torch(what, name, x, dtype)
    interface = x.__cuda_array_interface__
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    element = np.dtype(interface["typestr"])
    code = code_of(what, name, element) if dtype is None else explicit_code(what, name, element, dtype)
    if not contiguous(shape, interface.get("strides"), element.itemsize):
        raise InvalidArgument(
            f"{what}: {name} (shape {shape}, strides {interface['strides']}) is not C-contiguous; make a copy that is"
        )
    if writes and read_only:
        raise InvalidArgument(f"{what}: {name} is read-only, and the result goes there")
    return address or 0, _count(shape), code


def _describe_torch(what: str, name: str, x: Any, dtype: Optional[str]) -> Tuple[int, int, int]:
    own = str(x.dtype).rpartition(".")[2]
    own = _TORCH_NAMES.get(own, own)
    code = NAMES.get(own)
    if dtype is not None and dtype != own:
        # A tensor of bits, as with NumPy.
        if own not in ("uint8", "uint16"):
            raise InvalidArgument(f"{what}: {name} has dtype {x.dtype}, but dtype={dtype!r}")
        code = explicit_code(what, name, np.dtype(own), dtype)
    if code is None:
        raise InvalidArgument(
            f"{what}: {name} has dtype {x.dtype}, which Shunt does not carry; known: {', '.join(NAMES)}"
        )
    if not x.is_contiguous():
        raise InvalidArgument(
            f"{what}: {name} (shape {tuple(x.shape)}, strides {x.stride()}) is not contiguous; "
            "contiguous() makes a copy that is"
        )
    return x.data_ptr(), x.numel(), code


def empty_like(what: str, x: Any, shape: Tuple[int, ...]) -> Any:
    """A new array for the result of a call whose input is `x`."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, x.dtype)
    make = getattr(x, "new_empty", None)
    if make is None:
        raise InvalidArgument(f"{what}: pass out= for the result of a {type(x).__name__}")
    return make(shape)


def pointer_of(what: str, x: Any) -> int:
    """Where an array of any kind, or a plain address, begins."""
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, np.ndarray):
        return int(x.ctypes.data)
    if isinstance(x, Placed):
        return x.address
    if _is_torch(x):
        return int(x.data_ptr())
    if hasattr(x, "__cuda_array_interface__"):
        return int(x.__cuda_array_interface__["data"][0])
    raise InvalidArgument(f"{what}: a {type(x).__name__}, expected an array in a GPU's memory or an address")


def stream_of(what: str, stream: Any) -> int:
    """The CUstream of a torch.cuda.Stream, a CuPy stream, whatever has __cuda_stream__, or an address; 0 is the legacy
    default stream."""
    if isinstance(stream, (int, np.integer)):
        return int(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        value = getattr(value, "value", value)  # a ctypes pointer
        if isinstance(value, (int, np.integer)):
            return int(value)
    raise InvalidArgument(f"{what}: stream is a {type(stream).__name__}, expected a CUDA stream or its address")


class Placed:
    """Where an array lies, in the words of NumPy. Keeps it."""

    __slots__ = ("array", "address", "shape", "strides", "itemsize", "size", "ndim")

    def __init__(self, array: Any) -> None:
        self.array = array
        if _is_torch(array):
            self.itemsize = int(array.element_size())
            self.address = int(array.data_ptr())
            self.shape: Tuple[int, ...] = tuple(array.shape)
            self.strides: Tuple[int, ...] = tuple(step * self.itemsize for step in array.stride())
        else:
            interface = array.__cuda_array_interface__
            self.itemsize = np.dtype(interface["typestr"]).itemsize
            self.address = int(interface["data"][0] or 0)
            self.shape = tuple(interface["shape"])
            self.strides = interface.get("strides") or _dense(self.shape, self.itemsize)
        self.size = _count(self.shape)
        self.ndim = len(self.shape)


def _dense(shape: Tuple[int, ...], itemsize: int) -> Tuple[int, ...]:
    return tuple(itemsize * _count(shape[i + 1 :]) for i in range(len(shape)))


def _count(shape: Tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def contiguous(shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]], itemsize: int) -> bool:
    if strides is None or _count(shape) == 0:
        return True
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True
