"""GPU memory and streams in Python, over a driver without a GPU ($SHUNT_CUDA_LIBRARY), which this program calls as any
CUDA program would."""

import ctypes
import os
import unittest

import numpy as np

import support
from support import shunt

cuda = ctypes.CDLL(os.environ["SHUNT_CUDA_LIBRARY"])


def call(function, *arguments):
    status = getattr(cuda, function)(*arguments)
    if status:
        raise AssertionError(f"{function}: error {status} of CUDA")


def use_device(device=0):
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


class Array:
    """What CuPy and others have: an array of the GPU that says so itself."""

    def __init__(self, values):
        host = np.ascontiguousarray(values)
        self.pointer = ctypes.c_uint64()
        self.shape, self.dtype, self.nbytes = host.shape, host.dtype, host.nbytes
        call("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(max(host.nbytes, 1)))
        call("cuMemcpyHtoD_v2", self.pointer, ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes))
        self.strides = None
        self.read_only = False

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "strides": self.strides,
                "data": (self.pointer.value, self.read_only)}

    def get(self):
        host = np.empty(self.shape, self.dtype)
        call("cuMemcpyDtoH_v2", ctypes.c_void_p(host.ctypes.data), self.pointer, ctypes.c_size_t(self.nbytes))
        return host

    def __del__(self):
        cuda.cuMemFree_v2(self.pointer)


class Tensor:
    """What torch has, as far as Shunt looks."""

    is_cuda = True

    def __init__(self, values, dtype=None):
        self.array = values if isinstance(values, Array) else Array(values)
        self.dtype = dtype or f"torch.{self.array.dtype.name}"
        self.shape = self.array.shape

    def data_ptr(self):
        return self.array.pointer.value

    def numel(self):
        return int(np.prod(self.shape))

    def element_size(self):
        return self.array.dtype.itemsize

    def stride(self):
        return tuple(np.empty(self.shape, self.array.dtype).strides[i] // self.element_size()
                     for i in range(len(self.shape)))

    def is_contiguous(self):
        return True

    def new_empty(self, shape):
        return Tensor(np.zeros(shape, self.array.dtype), self.dtype)


class Stream:
    def __init__(self):
        self.cuda_stream = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(self.cuda_stream), 1)

    def synchronize(self):
        call("cuStreamSynchronize", self.cuda_stream)


class Device(support.DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.daemon = support.Daemon("--gpu-enabled", "on")
        cls.addClassCleanup(cls.daemon.stop)
        os.environ["SHUNT_SOCKET"] = cls.daemon.socket

    def run_ranks(self, world, body):
        def rank_main(session, comm):
            use_device()
            body(session, comm, comm.rank)

        self.ranks(world, rank_main, device=True)

    def test_calls_on_a_stream_take_arrays_of_the_gpu(self):
        def body(session, comm, rank):
            stream = Stream()
            x = Array(np.full(1000, rank + 1, np.float32))
            self.assertIs(comm.all_reduce(x, stream=stream), x)
            # As with any stream's work, its memory must not be freed before.
            gathered, scattered = Tensor(np.full((2, 3), rank, np.int32)), Tensor(np.arange(6, dtype=np.int64))
            parts = comm.all_gather(gathered, stream=stream)
            cut = comm.reduce_scatter(scattered, "max", stream=stream)
            comm.sync()
            stream.synchronize()
            np.testing.assert_array_equal(x.get(), np.full(1000, 6, np.float32))
            np.testing.assert_array_equal(parts.array.get(), np.repeat(np.arange(3, dtype=np.int32), 6).reshape(6, 3))
            np.testing.assert_array_equal(cut.array.get(), [2 * rank, 2 * rank + 1])

        self.run_ranks(3, body)

    def test_calls_without_a_stream_wait(self):
        def body(session, comm, rank):
            x, out = Array(np.full(10, rank + 1, np.uint8)), Array(np.zeros(20, np.uint8))
            comm.all_gather(x, out)
            np.testing.assert_array_equal(out.get(), [1] * 10 + [2] * 10)
            operation = comm.broadcast(x, root=1, async_op=True)
            operation.wait(timeout=30)
            np.testing.assert_array_equal(x.get(), [2] * 10)
            # Host memory goes with it.
            ordinary = np.full(5, rank, np.int32)
            comm.all_reduce(ordinary)
            np.testing.assert_array_equal(ordinary, [1] * 5)

        self.run_ranks(2, body)

    def test_a_handle_of_a_call_on_a_stream(self):
        def body(session, comm, rank):
            stream = Stream()
            x = Array(np.full(10, rank + 1, np.int32))
            operation = comm.all_reduce(x, "prod", async_op=True, stream=stream.cuda_stream.value)
            operation.wait(timeout=30)
            np.testing.assert_array_equal(x.get(), [2] * 10)

        self.run_ranks(2, body)

    def test_groups_on_a_stream(self):
        def body(session, comm, rank):
            stream = Stream()
            mine, theirs = Array(np.full(10, rank, np.int32)), Array(np.zeros(10, np.int32))
            with comm.group():
                comm.send(mine, 1 - rank, stream=stream)
                comm.recv(theirs, 1 - rank, stream=stream)
            stream.synchronize()
            np.testing.assert_array_equal(theirs.get(), [1 - rank] * 10)

        self.run_ranks(2, body)

    def test_bits_of_small_floats(self):
        def body(session, comm, rank):
            one = np.full(4, 0x3F80, np.uint16)  # 1.0
            for x in (Array(one), Tensor(one, "torch.bfloat16"), Tensor(one, "torch.uint16")):
                comm.all_reduce(x, dtype="bfloat16")
                bits = x.get() if isinstance(x, Array) else x.array.get()
                np.testing.assert_array_equal(bits, [0x4000] * 4)

        self.run_ranks(2, body)

    def test_what_is_wrong_is_said(self):
        def body(session, comm, rank):
            x = Array(np.zeros((4, 4), np.float32))
            x.strides = (4, 16)
            with self.assertRaisesRegex(shunt.InvalidArgument, "not C-contiguous"):
                comm.all_reduce(x)
            x.strides, x.read_only = (16, 4), True
            with self.assertRaisesRegex(shunt.InvalidArgument, "read-only"):
                comm.all_reduce(x)
            x.read_only = False
            with self.assertRaisesRegex(shunt.InvalidArgument, "pass out="):
                comm.all_gather(x)
            with self.assertRaisesRegex(shunt.InvalidArgument, "expected a CUDA stream"):
                comm.all_reduce(x, stream="main")
            with self.assertRaisesRegex(shunt.InvalidArgument, "does not carry"):
                comm.all_reduce(Tensor(np.zeros(4, np.uint8), "torch.complex64"))
            with self.assertRaisesRegex(shunt.InvalidArgument, "host memory outside regions"):
                comm.all_reduce(np.zeros(4), stream=0)
            with self.assertRaisesRegex(TypeError, "NumPy array or one in a GPU's memory"):
                comm.all_reduce([1.0])
            with session.join(self.id() + " plain", 0, 1) as plain:
                with self.assertRaisesRegex(shunt.InvalidArgument, "device=True"):
                    plain.all_reduce(x)

        self.run_ranks(1, body)

    def test_registrations(self):
        use_device()
        with shunt.connect(self.daemon.socket) as session:
            x = Array(np.zeros(100, np.float32))
            self.assertIsNone(session.region_id(x))
            session.register(x)
            session.register(x.pointer.value + 4)
            region = session.region_id(x)
            self.assertIsNotNone(region)
            session.deregister(x)
            self.assertEqual(session.region_id(Tensor(x)), region)
            session.deregister(x)
            self.assertIsNone(session.region_id(x))
            with self.assertRaises(shunt.NotFound):
                session.deregister(x)
            with self.assertRaises(shunt.InvalidArgument):
                session.register(np.zeros(4))
            address = session.alloc_device(1 << 20)
            self.assertIsNotNone(session.region_id(address))
            session.free_device(address)
            with self.assertRaises(shunt.InvalidArgument):
                session.alloc_device(1 << 20, device=7)

    def test_transfers_name_registered_memory(self):
        use_device()
        with shunt.connect(self.daemon.socket) as a, shunt.connect(self.daemon.socket) as b:
            source = Array(np.arange(64, dtype=np.int32).reshape(8, 8))
            target = Tensor(np.zeros((4, 8), np.int32))
            a.register(source)
            b.register(target)
            a.agent("source").publish("rows", source, access="read")
            own, theirs = b.prepare(target), b.fetch("source", "rows")
            self.assertEqual((own.pieces, theirs.pieces), (4, 8))
            b.pull(own.ids([0, 2]), theirs.ids([7, 3]), timeout=30).wait()
            rows = target.array.get()
            np.testing.assert_array_equal(rows[0], np.arange(56, 64))
            np.testing.assert_array_equal(rows[2], np.arange(24, 32))
            np.testing.assert_array_equal(rows[1], np.zeros(8))


if __name__ == "__main__":
    support.main()
