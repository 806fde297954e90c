#!/usr/bin/python3
"""An all-reduce without libshunt: nothing but gRPC, a Unix socket and mmap.

Any language that has gRPC can do the same. Several processes each open a session, allocate a region,
receive its memory file over the lease socket, join a communicator, write their input, run an all-reduce and
read the result:

    examples/plain_grpc.py --socket /run/shunt/shuntd.sock --ranks 4

Needs Debian's python3-grpcio, python3-grpc-tools and python3-numpy. libshunt does the same a hundred times
faster: this is for languages that libshunt does not reach.
"""

import argparse
import importlib
import mmap
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import grpc
import numpy

PROTO_ROOT = pathlib.Path(__file__).resolve().parent.parent / "proto"
NAMES = ("session", "memory", "communicator", "collective", "transfer", "storage", "admin")


def generate_protos(out):
    """Makes the Python modules of proto/shunt/v1 in the directory `out`."""
    from grpc_tools import protoc

    files = [str(path) for path in sorted(PROTO_ROOT.glob("shunt/v1/*.proto"))]
    arguments = ["protoc", f"-I{PROTO_ROOT}", f"--python_out={out}", f"--grpc_python_out={out}", *files]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")


class Api:
    """The generated modules, loaded from a directory: api.session.OpenSessionRequest, api.session_grpc..."""

    def __init__(self, directory):
        sys.path.insert(0, str(directory))
        for name in NAMES:
            setattr(self, name, importlib.import_module(f"shunt.v1.{name}_pb2"))
            setattr(self, f"{name}_grpc", importlib.import_module(f"shunt.v1.{name}_pb2_grpc"))


class Lease:
    """The lease socket: requests in packets, descriptors beside the replies."""

    def __init__(self, api, path):
        self.api = api
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.next_id = 1

    def call(self, **request):
        """call(attach=...) → (reply, descriptors). RuntimeError with the daemon's words if it fails."""
        packet = self.api.session.LeaseRequest(id=self.next_id, **request)
        self.next_id += 1
        self.socket.sendall(packet.SerializeToString())
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 16)
        if not data:
            raise ConnectionError("the daemon closed the lease connection")
        reply = self.api.session.LeaseReply.FromString(data)
        if reply.code != 0:
            raise RuntimeError(f"code {reply.code}: {reply.message}")
        return reply, fds


class Session:
    """One process's session, over gRPC; memory comes over the lease socket."""

    def __init__(self, api, path, name="plain-grpc"):
        self.api = api
        self.channel = grpc.insecure_channel(f"unix:{path}")
        self.sessions = api.session_grpc.SessionsStub(self.channel)
        self.memory = api.memory_grpc.MemoryStub(self.channel)
        self.communicators = api.communicator_grpc.CommunicatorsStub(self.channel)
        self.collectives = api.collective_grpc.CollectivesStub(self.channel)
        self.admin = api.admin_grpc.AdminStub(self.channel)
        opened = self.sessions.OpenSession(api.session.OpenSessionRequest(name=name))
        self.id = opened.session_id
        self.token = opened.token
        self.lease = Lease(api, opened.lease_socket)
        self.lease.call(attach=api.session.Attach(token=self.token))

    def allocate(self, size):
        """(region id, its memory)."""
        region = self.memory.AllocateRegion(
            self.api.memory.AllocateRegionRequest(token=self.token, size_bytes=size)
        )
        reply, fds = self.lease.call(map_region=self.api.memory.MapRegionRequest(region_id=region.region_id))
        memory = mmap.mmap(fds[0], reply.map_region.size_bytes)
        os.close(fds[0])
        return region.region_id, memory

    def join(self, name, rank, world_size, timeout_ms=30000, job=""):
        """The communicator's id, when all ranks have come."""
        return self.communicators.Join(
            self.api.communicator.JoinRequest(
                token=self.token, name=name, job=job, rank=rank, world_size=world_size, timeout_ms=timeout_ms
            )
        ).communicator_id

    def submit(self, communicator, kind, **fields):
        """The operation's id. Buffers are (region, offset) pairs: input=(1, 0)."""
        api = self.api.collective
        for side in ("input", "output"):
            if side in fields:
                region, offset = fields[side]
                fields[side] = api.Buffer(region_id=region, offset_bytes=offset)
        fields.setdefault("data_type", api.DATA_TYPE_FLOAT32)
        request = api.SubmitRequest(token=self.token, communicator_id=communicator, kind=kind, **fields)
        return self.collectives.Submit(request).operation_id

    def wait(self, operation, timeout=30):
        self.collectives.Wait(
            self.api.collective.WaitRequest(token=self.token, operation_id=operation), timeout=timeout
        )

    def all_reduce(self, communicator, region, input_offset, output_offset, count, **fields):
        """Float32 sum, done when it returns."""
        kind = self.api.collective.OPERATION_KIND_ALL_REDUCE
        self.wait(
            self.submit(
                communicator, kind, input=(region, input_offset), output=(region, output_offset), count=count, **fields
            )
        )

    def close(self):
        self.sessions.CloseSession(self.api.session.CloseSessionRequest(token=self.token))
        self.channel.close()


def run_rank(api, path, name, rank, ranks, count):
    session = Session(api, path, f"plain-grpc {rank}")
    size = 4 * count
    region, memory = session.allocate(2 * size)
    values = numpy.frombuffer(memory, dtype=numpy.float32)
    values[:count] = numpy.arange(count, dtype=numpy.float32) % 1000 + rank
    communicator = session.join(name, rank, ranks)
    session.all_reduce(communicator, region, 0, size, count)
    expected = numpy.arange(count, dtype=numpy.float32) % 1000 * ranks + sum(range(ranks))
    if not numpy.array_equal(values[count : 2 * count], expected):
        raise RuntimeError(f"rank {rank}: wrong result {values[count:count + 4]}..., expected {expected[:4]}...")
    print(f"rank {rank} of {ranks}: sum of {count} float32 is right", flush=True)
    session.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", default=os.environ.get("SHUNT_SOCKET", "/run/shunt/shuntd.sock"))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--count", type=int, default=1 << 20, help="elements of each rank's buffer")
    parser.add_argument("--name", default=f"plain-grpc-{os.getpid()}", help="the communicator's name")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--modules", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        api = Api(arguments.modules)
        run_rank(api, arguments.socket, arguments.name, arguments.rank, arguments.ranks, arguments.count)
        return 0
    with tempfile.TemporaryDirectory() as modules:
        generate_protos(modules)
        # Fresh processes, not forks: gRPC does not survive a fork.
        command = [sys.executable, __file__, "--socket", arguments.socket, "--ranks", str(arguments.ranks)]
        command += ["--count", str(arguments.count), "--name", arguments.name, "--modules", modules]
        children = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(arguments.ranks)]
        return max(child.wait() for child in children)


if __name__ == "__main__":
    sys.exit(main())
