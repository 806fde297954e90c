"""What the daemon's tests share: private daemons, sessions over either carrier, processes to kill.

Programs come from the environment: SHUNTD, SHUNTCTL. The generated protocol modules are made once a test run.
"""

import atexit
import contextlib
import mmap
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples"))

try:
    import plain_grpc
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SHUNTD = os.environ.get("SHUNTD", "shuntd")

# gRPC's status codes, which the lease socket uses too.
OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = range(7)
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE = range(7, 12)
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = range(12, 15)

_modules = os.environ.get("SHUNT_TEST_MODULES")
if _modules is None:
    _modules = tempfile.mkdtemp(prefix="shunt-modules-")
    atexit.register(shutil.rmtree, _modules, ignore_errors=True)
    plain_grpc.generate_protos(_modules)
    os.environ["SHUNT_TEST_MODULES"] = _modules
    os.chmod(_modules, 0o755)
api = plain_grpc.Api(_modules)


def wait_until(condition, seconds=10, what="the condition"):
    """Polls; for states of other processes, which send no event."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {seconds} s")
        time.sleep(0.002)


@contextlib.contextmanager
def as_user(uid):
    """Connections that are made within are that user's; None: nothing changes. Needs root."""
    if uid is not None:
        os.seteuid(uid)
    try:
        yield
    finally:
        if uid is not None:
            os.seteuid(0)


class Shuntd:
    """A private daemon in a directory of its own."""

    def __init__(self, *flags, directory=None, name="s.sock", check=True):
        self.directory = directory or tempfile.mkdtemp(prefix="shunt-test-")
        os.chmod(self.directory, 0o755)
        self.owns_directory = directory is None
        self.socket = os.path.join(self.directory, name)
        self.lease = self.socket + ".lease"
        self.log_path = os.path.join(self.directory, name + ".log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([SHUNTD, "--socket", self.socket, *flags], stderr=log, stdout=log)
        if check:
            wait_until(lambda: self.answers() or self.process.poll() is not None, what="the daemon's start")
            if self.process.poll() is not None:
                raise AssertionError("shuntd ended: " + self.log())

    def answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def stop(self):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(timeout=60)
        if self.owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)
        return status

    def cpu_ns(self):
        total = 0
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{task}/schedstat", encoding="ascii") as stat:
                total += int(stat.read().split()[0])
        return total

    def status_kb(self, key):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith(key + ":"):
                    return int(line.split()[1])
        raise KeyError(key)

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class LeaseError(Exception):
    def __init__(self, code, message):
        super().__init__(f"code {code}: {message}")
        self.code = code
        self.message = message


class LeaseSession:
    """A session over the lease socket alone, as libshunt has it."""

    def __init__(self, path, name="test", rings=0, open_session=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.next_id = 1
        self.ring = None
        if open_session:
            request = api.session.OpenSessionRequest(name=name, ring_entries=rings)
            try:
                reply, fds = self.call(open_session=request)
            except LeaseError:
                self.socket.close()
                raise
            self.opened = reply.open_session
            if rings:
                self.ring = mmap.mmap(fds[0], os.fstat(fds[0]).st_size)
                self.doorbell = fds[1]
                os.close(fds[0])

    def send(self, fds=(), **request):
        packet = api.session.LeaseRequest(id=self.next_id, **request)
        self.next_id += 1
        socket.send_fds(self.socket, [packet.SerializeToString()], fds)
        return packet.id

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 16)
        if not data:
            raise ConnectionError("closed")
        reply = api.session.LeaseReply.FromString(data)
        if reply.code != 0:
            raise LeaseError(reply.code, reply.message)
        return reply, fds

    def call(self, fds=(), **request):
        self.send(fds, **request)
        return self.receive()

    def allocate(self, size):
        reply, fds = self.call(allocate_region=api.memory.AllocateRegionRequest(size_bytes=size))
        return reply.allocate_region.region_id, fds[0]

    def send_join(self, name, rank, world, timeout_ms=20000, job=""):
        return self.send(
            join=api.communicator.JoinRequest(name=name, job=job, rank=rank, world_size=world, timeout_ms=timeout_ms)
        )

    def join(self, *args, **kwargs):
        self.send_join(*args, **kwargs)
        reply, fds = self.receive()
        for fd in fds:
            os.close(fd)
        return reply.join

    def close(self):
        if self.ring is not None:
            self.ring.close()
            os.close(self.doorbell)
            self.ring = None
        self.socket.close()


class Child:
    """A process of its own that holds a session: joins, says so, then does what it is told by signals."""

    def __init__(self, shuntd, name, rank, world, extra="", uid=None):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import harness, os, signal\n"
            "s = harness.LeaseSession(sys.argv[2], name='child')\n"
            "s.send_join(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))\n"
            f"{extra}\n"
            "print('asked', flush=True)\n"
            "s.receive(); print('joined', flush=True)\n"
            "signal.pause()\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(pathlib.Path(__file__).parent), shuntd.lease, name, str(rank), str(world)],
            stdout=subprocess.PIPE,
            text=True,
            user=uid,
        )
        assert self.process.stdout.readline() == "asked\n"

    def wait_joined(self):
        assert self.process.stdout.readline() == "joined\n"

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class DaemonTest(unittest.TestCase):
    """One daemon for each class."""

    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.shuntd = Shuntd(*cls.FLAGS)

    @classmethod
    def tearDownClass(cls):
        status = cls.shuntd.stop()
        assert status == 0, f"shuntd's exit status is {status}"

    def tearDown(self):
        # Whatever a test sent: the daemon lives.
        self.assertIsNone(self.shuntd.process.poll(), "shuntd died: " + self.shuntd.log())

    def lease(self, *args, **kwargs):
        session = LeaseSession(self.shuntd.lease, *args, **kwargs)
        self.addCleanup(session.close)
        return session

    def session(self, name="test", uid=None):
        path = self.shuntd.socket
        if uid is not None:
            # By a name of its own: gRPC shares connections to one address.
            path = os.path.join(self.shuntd.directory, f"user-{uid}.sock")
            if not os.path.lexists(path):
                os.symlink(self.shuntd.socket, path)
        with as_user(uid):
            session = plain_grpc.Session(api, path, name)

        def close():
            session.lease.socket.close()
            session.channel.close()

        self.addCleanup(close)
        return session

    def assert_code(self, error, code, *words):
        """`error`: a gRPC error, a LeaseError or plain_grpc's RuntimeError."""
        if isinstance(error, LeaseError):
            seen, message = error.code, error.message
        elif hasattr(error, "code"):
            seen, message = error.code().value[0], error.details()
        else:
            seen, message = int(str(error).split()[1].rstrip(":")), str(error)
        self.assertEqual(seen, code, message)
        for word in words:
            self.assertIn(str(word), message)

    def refused(self, code, *words):
        """with self.refused(INVALID_ARGUMENT, "rank -1"): ..."""
        return _Refused(self, code, words)


class _Refused:
    def __init__(self, test, code, words):
        self.test = test
        self.code = code
        self.words = words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if error is None:
            raise AssertionError(f"nothing was refused; expected code {self.code} with {self.words}")
        if not isinstance(error, (LeaseError, RuntimeError, plain_grpc.grpc.RpcError)):
            return False
        self.test.assert_code(error, self.code, *self.words)
        return True
