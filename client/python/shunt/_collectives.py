"""The calls of a communicator. Each checks its arrays, finds their addresses and calls the C function."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Literal, Optional, Sequence, Tuple, TypeVar, Union, overload

import numpy as np
from numpy.typing import NDArray

from . import _dtypes
from ._device import empty_like, stream_of
from ._dtypes import describe, describe_result
from ._lease import Lease
from ._library import ON_STREAM, ONLY_WHILE_WAITING, Call, Library
from .errors import DeadlineExceeded, FailedPrecondition, InvalidArgument
from .group import Group, current_group
from .operation import SLICE_NS, Operation, nanoseconds

T = TypeVar("T")
# NumPy's, or of whatever package in a GPU's memory (see _device).
Array = Union[NDArray[Any], Any]
Pending = Operation[Array]
MaybePending = Operation[Optional[Array]]

_REDOPS: Dict[str, int] = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4, "premul_sum": 5}
_CALL_BYTES = ctypes.sizeof(Call)


class Collectives:
    """Arrays are C-contiguous NumPy arrays. Those on regions (Session.empty) are used where they lie; all
    others work too and cost a staging copy.

    Of a communicator that was joined with `device=True` they may lie in a GPU's memory: torch's CUDA tensors, and
    whatever has __cuda_array_interface__. Every call takes `stream` then: a torch.cuda.Stream, CuPy's, an address (0
    is the legacy default stream). The call takes effect where it stands in that stream and returns at once; a failure
    shows at the next call, or in sync(). Without a stream the data must be there at the call.

    What belongs to all ranks in one array is cut, or joined, along its first axis: all_gather turns (n, ...)
    into (world_size * n, ...), reduce_scatter the reverse.

    Every call takes `timeout` in seconds (None: the communicator's default, math.inf: none), and
    `dtype="bfloat16"`, `"float8_e4m3"` or `"float8_e5m2"` for unsigned integers that hold such bits. With
    `async_op=True` it returns an Operation at once; the arrays belong to it until it is done.
    """

    _lease: Lease
    _comm: Optional[int]
    _groups: Dict[int, Group]
    rank: int
    world_size: int
    name: str

    # ---- reductions

    @overload
    def all_reduce(self, x: Array, op: str = ..., out: Optional[Array] = ..., *, async_op: Literal[False] = ...,
                   timeout: Optional[float] = ..., stream: Any = ..., scalar: Any = ...,
                   dtype: Optional[str] = ...) -> Array: ...

    @overload
    def all_reduce(self, x: Array, op: str = ..., out: Optional[Array] = ..., *, async_op: Literal[True],
                   timeout: Optional[float] = ..., stream: Any = ..., scalar: Any = ...,
                   dtype: Optional[str] = ...) -> Pending: ...

    def all_reduce(self, x: Array, op: str = "sum", out: Optional[Array] = None, *, async_op: bool = False,
                   timeout: Optional[float] = None, stream: Any = None, scalar: Any = None,
                   dtype: Optional[str] = None) -> Union[Array, Pending]:
        """Combines `x` of all ranks and gives all of them the result, in place unless `out` is given.

        `op`: sum, prod, min, max, avg, or premul_sum: the sum of each rank's `scalar` times its `x`. Ranks are
        combined in their order, so the same inputs give the same bits on every run.
        """
        address, count, code = describe("all_reduce", "x", x, dtype, out is None)
        result, result_address = x, address
        if out is not None:
            result, result_address = out, describe_result("all_reduce", out, dtype, count, code)
        redop, call = self._reduction("all_reduce", op, timeout, stream, scalar, code)
        return self._issue("all_reduce", (address, result_address, count, code, redop), call, result, (x, out),
                           async_op)

    @overload
    def reduce(self, x: Array, root: int = ..., op: str = ..., out: Optional[Array] = ..., *,
               async_op: Literal[False] = ..., timeout: Optional[float] = ..., stream: Any = ..., scalar: Any = ...,
               dtype: Optional[str] = ...) -> Optional[Array]: ...

    @overload
    def reduce(self, x: Array, root: int = ..., op: str = ..., out: Optional[Array] = ..., *,
               async_op: Literal[True], timeout: Optional[float] = ..., stream: Any = ..., scalar: Any = ...,
               dtype: Optional[str] = ...) -> MaybePending: ...

    def reduce(self, x: Array, root: int = 0, op: str = "sum", out: Optional[Array] = None, *,
               async_op: bool = False, timeout: Optional[float] = None, stream: Any = None, scalar: Any = None,
               dtype: Optional[str] = None) -> Union[Optional[Array], MaybePending]:
        """Like all_reduce, but only `root` gets the result (in its `x` unless `out` is given); others get None."""
        here = self.rank == root
        address, count, code = describe("reduce", "x", x, dtype, here and out is None)
        result: Optional[Array] = None
        result_address = 0
        if here:
            result, result_address = x, address
            if out is not None:
                result, result_address = out, describe_result("reduce", out, dtype, count, code)
        redop, call = self._reduction("reduce", op, timeout, stream, scalar, code)
        return self._issue("reduce", (address, result_address, count, code, redop, root), call, result, (x, out),
                           async_op)

    @overload
    def reduce_scatter(self, x: Array, op: str = ..., out: Optional[Array] = ..., *,
                       async_op: Literal[False] = ..., timeout: Optional[float] = ..., stream: Any = ...,
                       scalar: Any = ...,
                       dtype: Optional[str] = ...) -> Array: ...

    @overload
    def reduce_scatter(self, x: Array, op: str = ..., out: Optional[Array] = ..., *, async_op: Literal[True],
                       timeout: Optional[float] = ..., stream: Any = ..., scalar: Any = ...,
                       dtype: Optional[str] = ...) -> Pending: ...

    def reduce_scatter(self, x: Array, op: str = "sum", out: Optional[Array] = None, *, async_op: bool = False,
                       timeout: Optional[float] = None, stream: Any = None, scalar: Any = None,
                       dtype: Optional[str] = None) -> Union[Array, Pending]:
        """Combines `x` of all ranks; rank r gets the r-th part. `out` may be that part of `x` itself."""
        address, count, code = describe("reduce_scatter", "x", x, dtype, False)
        part = self._part("reduce_scatter", count)
        if out is None:
            out = empty_like("reduce_scatter", x, self._cut("reduce_scatter", x))
        result_address = describe_result("reduce_scatter", out, dtype, part, code)
        redop, call = self._reduction("reduce_scatter", op, timeout, stream, scalar, code)
        return self._issue("reduce_scatter", (address, result_address, part, code, redop), call, out, (x, out),
                           async_op)

    # ---- one to all, all to one

    @overload
    def broadcast(self, x: Array, root: int = ..., *, async_op: Literal[False] = ...,
                  timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Array: ...

    @overload
    def broadcast(self, x: Array, root: int = ..., *, async_op: Literal[True], timeout: Optional[float] = ...,
                  stream: Any = ...,
                  dtype: Optional[str] = ...) -> Pending: ...

    def broadcast(self, x: Array, root: int = 0, *, async_op: bool = False, timeout: Optional[float] = None,
                  stream: Any = None,
                  dtype: Optional[str] = None) -> Union[Array, Pending]:
        """Fills `x` of every other rank with the root's."""
        here = self.rank == root
        address, count, code = describe("broadcast", "x", x, dtype, not here)
        return self._issue("broadcast", (address, address, count, code, root), self._call("broadcast", timeout, stream),
                           x, (x,), async_op)

    @overload
    def scatter(self, x: Optional[Array], root: int = ..., out: Optional[Array] = ..., *,
                async_op: Literal[False] = ..., timeout: Optional[float] = ..., stream: Any = ...,
                dtype: Optional[str] = ...) -> Array: ...

    @overload
    def scatter(self, x: Optional[Array], root: int = ..., out: Optional[Array] = ..., *,
                async_op: Literal[True], timeout: Optional[float] = ..., stream: Any = ...,
                dtype: Optional[str] = ...) -> Pending: ...

    def scatter(self, x: Optional[Array], root: int = 0, out: Optional[Array] = None, *, async_op: bool = False,
                timeout: Optional[float] = None, stream: Any = None, dtype: Optional[str] = None) -> Union[Array,
                                                                                                           Pending]:
        """Rank r gets the r-th part of the root's `x`. Other ranks pass x=None, and `out` for what comes."""
        address = 0
        if self.rank == root:
            address, total, code = describe("scatter", "x", x, dtype, False)
            assert x is not None
            count = self._part("scatter", total)
            if out is None:
                out = empty_like("scatter", x, self._cut("scatter", x))
            result_address = describe_result("scatter", out, dtype, count, code)
        else:
            if out is None:
                raise InvalidArgument(f"scatter: rank {self.rank} is not the root {root} and must pass out=")
            result_address, count, code = describe("scatter", "out", out, dtype, True)
        return self._issue("scatter", (address, result_address, count, code, root),
                           self._call("scatter", timeout, stream),
                           out, (x, out), async_op)

    @overload
    def gather(self, x: Array, root: int = ..., out: Optional[Array] = ..., *, async_op: Literal[False] = ...,
               timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Optional[Array]: ...

    @overload
    def gather(self, x: Array, root: int = ..., out: Optional[Array] = ..., *, async_op: Literal[True],
               timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> MaybePending: ...

    def gather(self, x: Array, root: int = 0, out: Optional[Array] = None, *, async_op: bool = False,
               timeout: Optional[float] = None, stream: Any = None,
               dtype: Optional[str] = None) -> Union[Optional[Array], MaybePending]:
        """The root gets all ranks' `x`, joined along the first axis; others get None."""
        address, count, code = describe("gather", "x", x, dtype, False)
        result_address = 0
        if self.rank == root:
            if out is None:
                out = empty_like("gather", x, self._joined(x))
            result_address = describe_result("gather", out, dtype, count * self.world_size, code)
        else:
            out = None
        return self._issue("gather", (address, result_address, count, code, root),
                           self._call("gather", timeout, stream),
                           out, (x, out), async_op)

    # ---- all to all

    @overload
    def all_gather(self, x: Array, out: Optional[Array] = ..., *, async_op: Literal[False] = ...,
                   timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Array: ...

    @overload
    def all_gather(self, x: Array, out: Optional[Array] = ..., *, async_op: Literal[True],
                   timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Pending: ...

    def all_gather(self, x: Array, out: Optional[Array] = None, *, async_op: bool = False,
                   timeout: Optional[float] = None, stream: Any = None, dtype: Optional[str] = None) -> Union[Array,
                                                                                                              Pending]:
        """Every rank gets all ranks' `x`, joined along the first axis. `x` may be the rank's part of `out`.
        Without `out` the result is an ordinary new array."""
        address, count, code = describe("all_gather", "x", x, dtype, False)
        if out is None:
            out = empty_like("all_gather", x, self._joined(x))
        result_address = describe_result("all_gather", out, dtype, count * self.world_size, code)
        return self._issue("all_gather", (address, result_address, count, code),
                           self._call("all_gather", timeout, stream),
                           out, (x, out), async_op)

    @overload
    def all_to_all(self, x: Array, out: Optional[Array] = ..., *, async_op: Literal[False] = ...,
                   timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Array: ...

    @overload
    def all_to_all(self, x: Array, out: Optional[Array] = ..., *, async_op: Literal[True],
                   timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Pending: ...

    def all_to_all(self, x: Array, out: Optional[Array] = None, *, async_op: bool = False,
                   timeout: Optional[float] = None, stream: Any = None, dtype: Optional[str] = None) -> Union[Array,
                                                                                                              Pending]:
        """Part i of `x` goes to rank i; part i of the result came from rank i. Not in place."""
        address, total, code = describe("all_to_all", "x", x, dtype, False)
        count = self._part("all_to_all", total)
        if out is None:
            out = empty_like("all_to_all", x, tuple(x.shape))
        result_address = describe_result("all_to_all", out, dtype, total, code)
        return self._issue("all_to_all", (address, result_address, count, code),
                           self._call("all_to_all", timeout, stream),
                           out, (x, out), async_op)

    @overload
    def all_to_all_v(self, x: Array, send_counts: Sequence[int], recv_counts: Sequence[int],
                     out: Optional[Array] = ..., *, send_displs: Optional[Sequence[int]] = ...,
                     recv_displs: Optional[Sequence[int]] = ..., async_op: Literal[False] = ...,
                     timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Array: ...

    @overload
    def all_to_all_v(self, x: Array, send_counts: Sequence[int], recv_counts: Sequence[int],
                     out: Optional[Array] = ..., *, send_displs: Optional[Sequence[int]] = ...,
                     recv_displs: Optional[Sequence[int]] = ..., async_op: Literal[True],
                     timeout: Optional[float] = ..., stream: Any = ..., dtype: Optional[str] = ...) -> Pending: ...

    def all_to_all_v(self, x: Array, send_counts: Sequence[int], recv_counts: Sequence[int],
                     out: Optional[Array] = None, *, send_displs: Optional[Sequence[int]] = None,
                     recv_displs: Optional[Sequence[int]] = None, async_op: bool = False,
                     timeout: Optional[float] = None, stream: Any = None,
                     dtype: Optional[str] = None) -> Union[Array, Pending]:
        """send_counts[i] elements of `x` from send_displs[i] go to rank i, which must expect as many; what comes
        from rank i is put at recv_displs[i]. Counts and displacements are in elements of the flat arrays, one
        for each rank. Without displacements the parts follow each other; without `out` the result is a new flat
        array."""
        address, size, code = describe("all_to_all_v", "x", x, dtype, False)
        send = self._layout("send", send_counts, send_displs)
        recv = self._layout("recv", recv_counts, recv_displs)
        self._check_layout("send", send, "x", size)
        if out is None:
            out = empty_like("all_to_all_v", x, (int(max(recv[0] + recv[1])),))
        result_address, out_size, out_code = describe("all_to_all_v", "out", out, dtype, True)
        describe_result("all_to_all_v", out, dtype, out_size, code)
        self._check_layout("recv", recv, "out", out_size)
        arguments = (address, send[0].ctypes.data, send[1].ctypes.data,
                     result_address, recv[0].ctypes.data, recv[1].ctypes.data, out_code)
        return self._issue("all_to_all_v", arguments, self._call("all_to_all_v", timeout, stream), out,
                           (x, out, send, recv), async_op)

    # ---- point to point, barrier

    @overload
    def send(self, x: Array, peer: int, *, async_op: Literal[False] = ..., timeout: Optional[float] = ...,
             stream: Any = ...,
             dtype: Optional[str] = ...) -> None: ...

    @overload
    def send(self, x: Array, peer: int, *, async_op: Literal[True], timeout: Optional[float] = ..., stream: Any = ...,
             dtype: Optional[str] = ...) -> Operation[None]: ...

    def send(self, x: Array, peer: int, *, async_op: bool = False, timeout: Optional[float] = None, stream: Any = None,
             dtype: Optional[str] = None) -> Union[None, Operation[None]]:
        """Ends when the peer's recv has the data. Sends and receives of two ranks match in order."""
        address, count, code = describe("send", "x", x, dtype, False)
        return self._issue("send", (address, count, code, peer), self._call("send", timeout, stream), None, (x,),
                           async_op)

    @overload
    def recv(self, out: Array, peer: int, *, async_op: Literal[False] = ..., timeout: Optional[float] = ...,
             stream: Any = ...,
             dtype: Optional[str] = ...) -> Array: ...

    @overload
    def recv(self, out: Array, peer: int, *, async_op: Literal[True], timeout: Optional[float] = ..., stream: Any = ...,
             dtype: Optional[str] = ...) -> Pending: ...

    def recv(self, out: Array, peer: int, *, async_op: bool = False, timeout: Optional[float] = None,
             stream: Any = None,
             dtype: Optional[str] = None) -> Union[Array, Pending]:
        """Fills `out` with what the peer sends; count and type must agree."""
        address, count, code = describe("recv", "out", out, dtype, True)
        return self._issue("recv", (address, count, code, peer), self._call("recv", timeout, stream), out, (out,),
                           async_op)

    @overload
    def barrier(self, *, async_op: Literal[False] = ..., timeout: Optional[float] = ..., stream: Any = ...) -> None: ...

    @overload
    def barrier(self, *, async_op: Literal[True], timeout: Optional[float] = ...,
                stream: Any = ...) -> Operation[None]: ...

    def barrier(self, *, async_op: bool = False,
                timeout: Optional[float] = None, stream: Any = None) -> Union[None, Operation[None]]:
        """Returns when all ranks have called it."""
        return self._issue("barrier", (), self._call("barrier", timeout, stream), None, (), async_op)

    # ---- what the calls share

    def _issue(self, what: str, arguments: Tuple[Any, ...], call: Optional[Call], result: T, keep: Tuple[Any, ...],
               async_op: bool) -> Union[T, Operation[T]]:
        comm = self._comm
        if comm is None:
            raise FailedPrecondition(f"{what}: communicator {self.name!r} has been left")
        library = self._lease.library
        function = getattr(library, what)
        call_address = None if call is None else ctypes.addressof(call)
        if self._groups:
            group = current_group(self._groups)
            if group is not None:
                if async_op:
                    raise InvalidArgument(f"{what}: async_op inside a group; ask group(async_op=True) for a handle")
                group.add(function, (comm, *arguments, call_address, None), (keep, call))
                return result
        if not async_op and call is not None and call.flags == ON_STREAM:
            status = function(comm, *arguments, call_address, None)
            if status:
                raise library.error(status)
            return result
        if not async_op:
            self._wait_for(library, function, comm, arguments, call or Call(_CALL_BYTES))
            return result
        handle = ctypes.c_void_p()
        status = function(comm, *arguments, call_address, ctypes.byref(handle))
        if status:
            raise library.error(status)
        return Operation(self._lease, handle.value or 0, what, result, (keep, call, self))

    @staticmethod
    def _wait_for(library: Library, function: Any, comm: int, arguments: Tuple[Any, ...], call: Call) -> None:
        """A blocking call, waited for in slices, so that Ctrl-C is seen between them. It aborts the communicator:
        the operation still writes to the arrays, and the other ranks must not wait for this one."""
        call.flags = ONLY_WHILE_WAITING
        handle = ctypes.c_void_p()
        done = ctypes.c_int(0)
        try:
            status = function(comm, *arguments, ctypes.addressof(call), ctypes.byref(handle))
            while not status:
                status = library.op_wait(handle, SLICE_NS)
                if status != DeadlineExceeded.code:
                    break
                # The slice's end, or the operation's own deadline?
                status = library.op_poll(handle, ctypes.byref(done))
                if done.value:
                    break
            if status:
                raise library.error(status)
        except KeyboardInterrupt:
            library.abort(comm, b"interrupted (KeyboardInterrupt)")
            raise
        finally:
            library.op_release(handle)

    def _reduction(self, what: str, op: str, timeout: Optional[float], stream: Any, scalar: Any,
                   code: int) -> Tuple[int, Optional[Call]]:
        redop = _REDOPS.get(op)
        if redop is None:
            raise InvalidArgument(f"{what}: unknown op {op!r}; known: {', '.join(_REDOPS)}")
        if (scalar is not None) != (op == "premul_sum"):
            raise InvalidArgument(f"{what}: op {op!r} with scalar={scalar!r}; premul_sum takes one, others do not")
        if scalar is None:
            return redop, self._call(what, timeout, stream)
        data = ctypes.create_string_buffer(_dtypes.scalar_bytes(what, scalar, code), 8)
        call = self._call(what, timeout, stream) or Call(_CALL_BYTES)
        call.scalar = ctypes.addressof(data)
        call.data = data
        return redop, call

    def _call(self, what: str, timeout: Optional[float], stream: Any) -> Optional[Call]:
        if stream is not None:
            return Call(_CALL_BYTES, nanoseconds(what, timeout), None, ON_STREAM, 0, stream_of(what, stream))
        return None if timeout is None else Call(_CALL_BYTES, nanoseconds(what, timeout), None)

    def _part(self, what: str, count: int) -> int:
        part, rest = divmod(count, self.world_size)
        if rest:
            raise InvalidArgument(f"{what}: {count} elements do not divide among {self.world_size} ranks")
        return part

    def _cut(self, what: str, x: Array) -> Tuple[int, ...]:
        if len(x.shape) == 0 or x.shape[0] % self.world_size:
            raise InvalidArgument(
                f"{what}: the first axis of shape {x.shape} does not divide among {self.world_size} ranks; "
                "pass out= to cut elsewhere"
            )
        return (x.shape[0] // self.world_size, *x.shape[1:])

    def _joined(self, x: Array) -> Tuple[int, ...]:
        return (self.world_size,) if len(x.shape) == 0 else (self.world_size * x.shape[0], *x.shape[1:])

    def _layout(self, side: str, counts: Sequence[int],
                displs: Optional[Sequence[int]]) -> Tuple["NDArray[np.uint64]", "NDArray[np.uint64]"]:
        columns = []
        for name, values in ((f"{side}_counts", counts), (f"{side}_displs", displs)):
            if values is None:
                continue
            column = np.asarray(values)
            if column.shape != (self.world_size,) or column.dtype.kind not in "iu" or (column < 0).any():
                raise InvalidArgument(
                    f"all_to_all_v: {name} is {values!r}, expected {self.world_size} integers >= 0, one for each rank"
                )
            columns.append(np.ascontiguousarray(column, dtype=np.uint64))
        if displs is None:
            columns.append(np.cumsum(columns[0], dtype=np.uint64) - columns[0])
        return columns[0], columns[1]

    def _check_layout(self, side: str, layout: Tuple["NDArray[np.uint64]", "NDArray[np.uint64]"], name: str,
                      size: int) -> None:
        for peer, (count, displ) in enumerate(zip(layout[0].tolist(), layout[1].tolist())):
            if count and displ + count > size:
                raise InvalidArgument(
                    f"all_to_all_v: {side} part of rank {peer} is elements {displ} to {displ + count}, "
                    f"but {name} has {size}"
                )
