"""NumPy arrays as the library sees them: an address, a count of elements and a data type."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Tuple

import numpy as np

from .errors import InvalidArgument

NAMES: Dict[str, int] = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "bfloat16": 7,
    "float32": 8,
    "float64": 9,
    "float8_e4m3": 10,
    "float8_e5m2": 11,
}
_NAME_OF = {code: name for name, code in NAMES.items()}
# What NumPy has no type for: the library's name, ml_dtypes' name, and the integer that carries it otherwise.
_SMALL_FLOATS = (
    ("bfloat16", "bfloat16", np.uint16),
    ("float8_e4m3", "float8_e4m3fn", np.uint8),
    ("float8_e5m2", "float8_e5m2", np.uint8),
)

_CODE_OF: Dict[Any, int] = {
    np.dtype(name): code for name, code in NAMES.items() if name not in {small[0] for small in _SMALL_FLOATS}
}
_CARRIER: Dict[int, Any] = {NAMES[name]: np.dtype(carrier) for name, _, carrier in _SMALL_FLOATS}
_SMALL_DTYPE: Dict[int, Any] = {}

try:
    import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    ml_dtypes = None
else:
    for _name, _theirs, _ in _SMALL_FLOATS:
        _dtype = np.dtype(getattr(ml_dtypes, _theirs))
        _CODE_OF[_dtype] = NAMES[_name]
        _SMALL_DTYPE[NAMES[_name]] = _dtype

_from_buffer: Any = (ctypes.c_char * 0).from_buffer
_address_of = ctypes.addressof


def numpy_dtype(dtype: Any) -> "np.dtype[Any]":
    """The NumPy type of an array that holds `dtype`; small floats by name may come as unsigned integers."""
    code = NAMES.get(dtype, -1) if isinstance(dtype, str) else -1
    if code in _CARRIER:
        return _SMALL_DTYPE.get(code) or _CARRIER[code]  # type: ignore[no-any-return]
    try:
        return np.dtype(dtype)
    except TypeError:
        raise InvalidArgument(f"dtype {dtype!r} is unknown to NumPy; collectives know: {', '.join(NAMES)}") from None


def explicit_code(what: str, name: str, element: "np.dtype[Any]", dtype: str) -> int:
    """The code of `dtype`, which elements of that type can hold."""
    code = NAMES.get(dtype)
    if code is None:
        raise InvalidArgument(f"{what}: unknown dtype {dtype!r}; known: {', '.join(NAMES)}")
    own = _CODE_OF.get(element)
    if own != code and element != _CARRIER.get(code):
        carrier = f" or {_CARRIER[code]} with its bits" if code in _CARRIER else ""
        raise InvalidArgument(f"{what}: {name} has dtype {element}, but dtype={dtype!r} needs {dtype}{carrier}")
    return code


def code_of(what: str, name: str, element: "np.dtype[Any]") -> int:
    """The code of elements of that type."""
    code = _CODE_OF.get(element)
    if code is None:
        raise _refusal(what, element, name)
    return code


def _refusal(what: str, element: "np.dtype[Any]", name: str) -> InvalidArgument:
    hint = ""
    if element == np.bool_:
        hint = "; view it as uint8 (min is 'and', max is 'or')"
    elif element == np.uint16:
        hint = "; for bfloat16 bits pass dtype='bfloat16'"
    elif element.kind == "c":
        hint = "; view it as its real and imaginary parts"
    elif not element.isnative:
        hint = " in foreign byte order; convert it first"
    known = ", ".join(NAMES)
    return InvalidArgument(f"{what}: {name} has dtype {element}, which Shunt does not carry{hint}; known: {known}")


def describe(what: str, name: str, x: Any, dtype: Optional[str], writes: bool) -> Tuple[int, int, int]:
    """(address, elements, type code) of a C-contiguous array; InvalidArgument or TypeError says what is wrong."""
    if not isinstance(x, np.ndarray):
        if _device.is_device_array(x):
            return _device.describe(what, name, x, dtype, writes)
        raise TypeError(
            f"{what}: {name} must be a NumPy array or one in a GPU's memory, not {type(x).__name__}; Session.array() "
            "makes a shared one"
        )
    code = code_of(what, name, x.dtype) if dtype is None else explicit_code(what, name, x.dtype, dtype)
    try:
        # Several times faster than x.ctypes.data. Raises for arrays that are not contiguous, not writable or
        # of a type that the buffer protocol does not know.
        return _address_of(_from_buffer(x)), x.size, code
    except (TypeError, ValueError, BufferError):
        if not x.flags.c_contiguous:
            raise InvalidArgument(
                f"{what}: {name} (shape {x.shape}, strides {x.strides}) is not C-contiguous; "
                "numpy.ascontiguousarray() makes a copy that is"
            ) from None
        if writes and not x.flags.writeable:
            raise InvalidArgument(f"{what}: {name} is read-only, and the result goes there") from None
        return x.ctypes.data, x.size, code


def describe_result(what: str, out: Any, dtype: Optional[str], count: int, code: int) -> int:
    """The address of `out`, which must have the given size and type."""
    address, out_count, out_code = describe(what, "out", out, dtype, True)
    if out_code != code:
        raise InvalidArgument(f"{what}: out has dtype {_NAME_OF[out_code]}, but the input has {_NAME_OF[code]}")
    if out_count != count:
        raise InvalidArgument(f"{what}: out has {out_count} elements (shape {out.shape}), expected {count}")
    return address


def scalar_bytes(what: str, value: Any, code: int) -> bytes:
    """One element of the type with the value, as bytes."""
    small = _SMALL_DTYPE.get(code)
    if small is not None:
        return np.array(value, dtype=small).tobytes()
    carrier = _CARRIER.get(code)
    if carrier is None:
        return np.array(value, dtype=_NAME_OF[code]).tobytes()
    if isinstance(value, np.generic) and value.dtype == carrier:
        return value.tobytes()  # the element's bits
    if _NAME_OF[code] == "bfloat16":
        bits = int(np.array(value, dtype=np.float32).view(np.uint32))
        return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).tobytes()  # nearest, ties to even
    raise InvalidArgument(
        f"{what}: a {_NAME_OF[code]} scalar needs the package ml_dtypes, or its bits as a numpy.{carrier}"
    )


from . import _device  # noqa: E402  (which needs what is above)
