"""What transfers name: lists of pieces of memory or files, and selections of them."""

from __future__ import annotations

import ctypes
from typing import Any, List as ListOf, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from ._device import Placed, contiguous, is_device_array, pointer_of
from ._lease import Lease
from ._library import Dimension, ListFacts, SelectionStruct, Set
from .errors import InvalidArgument
from .file import File, FileBlocks

_ALL, _RUNS, _IDS32, _IDS64, _PIECES, _POINTERS = range(6)


class Blocks:
    """Pieces of an array in shared memory, or registered in a GPU's: one for each index of its first `axes` axes (0 to 3), numbered as
    NumPy counts, the last of them running fastest. What follows must be contiguous.

        shunt.Blocks(cache, axes=2)  # cache of shape (layers, blocks, ...): layers * blocks pieces
    """

    __slots__ = ("array", "axes")

    def __init__(self, array: Any, axes: int = 1) -> None:
        if is_device_array(array):
            array = Placed(array)
        elif not isinstance(array, np.ndarray):
            raise InvalidArgument(f"Blocks: a {type(array).__name__}, expected a NumPy array on a region")
        if not 0 <= axes <= min(3, array.ndim):
            raise InvalidArgument(f"Blocks: axes is {axes}, expected 0 to {min(3, array.ndim)} for shape {array.shape}")
        if array.size == 0 or not _contiguous_behind(array, axes):
            raise InvalidArgument(
                f"Blocks: shape {array.shape}, strides {array.strides}: expected contiguous pieces behind the first {axes} axes"
            )
        self.array = array
        self.axes = axes

    def _write(self, out: Set) -> None:
        x = self.array
        out.pointer = pointer_of("Blocks", x)
        out.bytes = x.itemsize * int(np.prod(x.shape[self.axes :], dtype=np.uint64))
        out.dimensions = self.axes
        for i in range(self.axes):
            out.dims[i] = Dimension(x.shape[i], x.strides[i])


def _contiguous_behind(array: Any, axes: int) -> bool:
    if isinstance(array, np.ndarray):
        return bool(np.asarray(array[(0,) * axes]).flags.c_contiguous)
    return contiguous(array.shape[axes:], array.strides[axes:], array.itemsize)


# One array means its rows, one file all of it.
OneSet = Union[NDArray[Any], Any, Blocks, File, FileBlocks]
Sets = Union[OneSet, Sequence[OneSet]]


def write_sets(what: str, sets: Sets) -> Tuple[Any, int, Tuple[Any, ...]]:
    """The C array, its length, and what has to stay alive."""
    one_set = isinstance(sets, (np.ndarray, Blocks, File, FileBlocks)) or is_device_array(sets)
    several = [sets] if one_set else list(sets)
    if not several:
        raise InvalidArgument(f"{what}: no sets, expected 1 to 1024")
    blocks = [_pieces_of(s) for s in several]
    written = (Set * len(blocks))()
    for out, one in zip(written, blocks):
        one._write(out)
    return written, len(blocks), tuple(one.file if isinstance(one, FileBlocks) else one.array for one in blocks)


def _pieces_of(one: OneSet) -> Union[Blocks, FileBlocks]:
    if isinstance(one, File):
        return one.piece(0, one.bytes)
    return one if isinstance(one, (Blocks, FileBlocks)) else Blocks(one)


class List:
    """Pieces that transfers name, by number: of a section, one's own (Agent.publish, Session.prepare) or another
    agent's (Session.fetch). Keeps the arrays and files that it was made from. As a side of a transfer it means all of them.

    pieces, piece_bytes (0 if they differ), bytes, version and incarnation (of a section; else 0), node (of another
    agent; "" is this one).
    """

    def __init__(self, lease: Lease, pointer: int, name: str, keep: Tuple[Any, ...]) -> None:
        self._lease = lease
        self._pointer = pointer
        self._keep = keep
        self.name = name
        facts = ListFacts(struct_size=ctypes.sizeof(ListFacts))
        status = lease.library.list_info(pointer, ctypes.byref(facts))
        if status:
            raise lease.library.error(status)
        self.pieces: int = facts.pieces
        self.piece_bytes: int = facts.piece_bytes
        self.bytes: int = facts.bytes
        self.version: int = facts.version
        self.incarnation: int = facts.incarnation
        self.node: str = (facts.node or b"").decode()

    def all(self) -> "Selection":
        """All pieces, in order."""
        return Selection(self, _ALL, None, 0)

    def ids(self, ids: Any, unit: int = 1, repeats: int = 1, repeat_step: int = 0) -> "Selection":
        """Pieces by number. Id i names the `unit` pieces from i * unit on; all ids are walked `repeats` times, the
        next time with `repeat_step` added to each: the same blocks of every layer need be named once. Arrays of
        32 or 64 bits are used as they are."""
        numbers = np.ascontiguousarray(ids)
        if numbers.size == 0 or numbers.dtype.kind not in "iu":
            raise InvalidArgument(f"ids: {numbers.size} of dtype {numbers.dtype}, expected one integer or more")
        if numbers.dtype.kind == "i" and int(numbers.min()) < 0:
            raise InvalidArgument(f"ids: {int(numbers.min())} is among them, expected 0 or more")
        if numbers.dtype.itemsize == 4:
            return Selection(self, _IDS32, numbers, numbers.size, unit, repeats, repeat_step)
        if numbers.dtype.itemsize != 8:
            numbers = numbers.astype(np.uint32)
            return Selection(self, _IDS32, numbers, numbers.size, unit, repeats, repeat_step)
        return Selection(self, _IDS64, numbers, numbers.size, unit, repeats, repeat_step)

    def runs(self, runs: Sequence[Sequence[int]]) -> "Selection":
        """Runs of pieces: (first, count) or (first, count, step) each."""
        rows = [(*run, 1) if len(run) == 2 else tuple(run) for run in runs]
        return Selection(self, _RUNS, self._rows("runs", rows), len(rows))

    def places(self, pieces: Sequence[Sequence[int]]) -> "Selection":
        """Places in regions of the list: (region id, offset, bytes) each. Session.region_id gives ids."""
        rows = [tuple(piece) for piece in pieces]
        return Selection(self, _PIECES, self._rows("places", rows), len(rows))

    def arrays(self, arrays: Sequence[NDArray[Any]]) -> "Selection":
        """Contiguous arrays in this session's memory, which lie in the list's sets."""
        spans = np.empty((len(arrays), 2), np.uint64)
        for i, x in enumerate(Placed(a) if is_device_array(a) else a for a in arrays):
            if not _contiguous_behind(x, 0):
                raise InvalidArgument(f"arrays: number {i}, shape {x.shape}, strides {x.strides}: expected it contiguous")
            spans[i] = (pointer_of("arrays", x), x.size * x.itemsize)
        return Selection(self, _POINTERS, spans, len(spans))

    @staticmethod
    def _rows(what: str, rows: ListOf[Any]) -> "NDArray[np.uint64]":
        for row in rows:
            if len(row) != 3 or any(not 0 <= int(value) < 2**64 for value in row):
                raise InvalidArgument(f"{what}: {row}, expected integers from 0 on")
        return np.array(rows, np.uint64).reshape(len(rows), 3)

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0) and self._lease.usable():
            self._lease.library.list_release(self._pointer)

    def __len__(self) -> int:
        return self.pieces

    def __repr__(self) -> str:
        return f"<shunt.List {self.name}: {self.pieces} pieces, {self.bytes} bytes>"


class Selection:
    """Pieces of a list, in the order in which their bytes are the payload: one side of a transfer."""

    __slots__ = ("list", "_struct", "_data")

    def __init__(self, list_: List, form: int, data: Any, count: int, unit: int = 1, repeats: int = 1,
                 repeat_step: int = 0) -> None:
        for what, value in (("unit", unit), ("repeats", repeats), ("repeat_step", repeat_step)):
            if not 0 <= value < 2**64:
                raise InvalidArgument(f"ids: {what} is {value}, expected 0 or more")
        self.list = list_
        self._data = data  # the struct points into it
        self._struct = SelectionStruct(
            ctypes.sizeof(SelectionStruct), list_._pointer, form, 0, None if data is None else data.ctypes.data, count,
            unit, repeats, repeat_step,
        )


Side = Union[List, Selection]


def select(what: str, side: Side) -> Selection:
    if isinstance(side, List):
        return side.all()
    if not isinstance(side, Selection):
        raise InvalidArgument(f"{what}: a {type(side).__name__}, expected a shunt.List or a selection of one")
    return side
