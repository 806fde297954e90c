"""A node whose part a test plays: it proves who it is as a daemon does, and then sends what the test likes."""

import concurrent.futures
import importlib
import os
import pathlib
import re
import socket
import struct
import sys
import threading

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELLO_BYTES = 256


def load_protocol(directory):
    """The modules of peer.proto, made in `directory` outside any package: ours is called shunt too."""
    from grpc_tools import protoc

    files = ["peer.proto"]
    for name in files:  # grows by what each imports
        text = (ROOT / "proto/shunt/v1" / name).read_text()
        files += [other for other in re.findall(r'^import "shunt/v1/(.+)";', text, re.M) if other not in files]
        (pathlib.Path(directory) / name).write_text(text.replace('import "shunt/v1/', 'import "'))
    arguments = ["protoc", f"-I{directory}", f"--python_out={directory}", f"--grpc_python_out={directory}", *files]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, str(directory))
    return importlib.import_module("peer_pb2"), importlib.import_module("peer_pb2_grpc")


def hello(to, sender, token, incarnation=1, expected_incarnation=1, cluster="test", versions=(1, 1)):
    """The first bytes of a data connection (runtime/transport/wire/hello.h)."""
    names = (cluster.encode(), sender.encode(), to.encode())
    return struct.pack("<4sBBBBQQ32s64s64s64s8x", b"SHNT", *versions, 0, 1, incarnation, expected_incarnation, token, *names)


class FakeNode:
    """Listens for other daemons at 127.0.0.1:`port`, as node `name` of `cluster`."""

    def __init__(self, protocol, cluster, name, port):
        self.pb, stubs = protocol
        self._stubs = stubs
        self.name = name
        self.identity = self.pb.PeerIdentity(
            cluster=cluster, node=name, incarnation=int.from_bytes(os.urandom(7), "little") + 1, version="0",
            protocol_min=1, protocol_max=1, control_address=f"127.0.0.1:{port}", data_transport="tcp")
        self._stopped = threading.Event()
        fake = self

        class Peer(stubs.PeerServicer):
            def Ping(self, request, context):
                return fake.pb.PingResponse(identity=fake.identity)

            def Hello(self, request, context):
                return fake.pb.HelloResponse(identity=fake.identity, data_addresses=["127.0.0.1:1"],
                                             data_token=os.urandom(32))

            def Watch(self, request, context):
                fake._stopped.wait()
                return fake.pb.WatchResponse(reason="it stopped")

        # A daemon asks every second whether its connection is alive.
        options = [("grpc.http2.min_ping_interval_without_data_ms", 100), ("grpc.http2.max_ping_strikes", 0),
                   ("grpc.keepalive_permit_without_calls", 1)]
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(32), options=options)
        stubs.add_PeerServicer_to_server(Peer(), self._server)
        if self._server.add_insecure_port(self.identity.control_address) == 0:
            raise RuntimeError(f"cannot listen at {self.identity.control_address}")
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._server.stop(grace=0).wait()

    def introduce(self, address):
        """Says hello to the daemon at `address` until it is believed: what that daemon answers, with the token for its
        data address."""
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            return self._stubs.PeerStub(channel).Hello(self.pb.HelloRequest(caller=self.identity), timeout=20)

    def hello(self, answer, **changes):
        """The right bytes for a data connection to the one that gave `answer`, but for `changes`."""
        fields = {"to": answer.identity.node, "sender": self.name, "token": answer.data_token,
                  "incarnation": self.identity.incarnation, "expected_incarnation": answer.identity.incarnation}
        return hello(**{**fields, **changes})


def connect(answer):
    """A connection to the data address in `answer`."""
    host, port = answer.data_addresses[0].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def rest_of(connection):
    """What comes until the other side has hung up."""
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionResetError:
        pass
    return received
