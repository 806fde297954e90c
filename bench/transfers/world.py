"""Daemons and client processes for benchmarks of transfers that are written in Python.

The build directory is SHUNT_BUILD_DIR, default: build. A client process is a function in a module, which gets one end
of a pipe: what it raises is raised where it was started.
"""

import contextlib
import ctypes
import math
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SHUNT_BUILD_DIR", ROOT / "build"))
PATIENCE = 60.0  # seconds for what takes far less
PR_SET_PDEATHSIG = 1
_spawn = multiprocessing.get_context("spawn")

os.environ.setdefault("SHUNT_LIBRARY", str(BUILD / "lib" / "libshunt.so"))
for path in (ROOT / "client" / "python", ROOT / "tests" / "cluster"):
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))


class Failed(Exception):
    """The benchmark cannot go on; the words say why."""


def program(name):
    path = BUILD / "bin" / name
    if not path.exists():
        raise Failed(f"{path} is not built: cmake --preset release && cmake --build build "
                     "(SHUNT_BUILD_DIR names another build)")
    return path


def wait_until(condition, what):
    """For what another process does without telling us."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"waited {PATIENCE:g} s for {what}")
        time.sleep(0.005)


class Daemon:
    """A shuntd of one node, ready."""

    def __init__(self, *flags):
        self.directory = tempfile.mkdtemp(prefix="shunt-bench-")
        self.socket = os.path.join(self.directory, "shuntd.sock")
        with open(os.path.join(self.directory, "log"), "w", encoding="utf-8") as log:
            command = ["setpriv", "--pdeathsig", "KILL", program("shuntd"), "--socket", self.socket, *flags]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(self._answers, "shuntd to take connections")
        except BaseException:
            self.close()
            raise

    def _answers(self):
        if self.process.poll() is not None:
            log = pathlib.Path(self.directory, "log").read_text(encoding="utf-8", errors="replace")
            raise Failed(f"shuntd ended with {self.process.returncode}: {log.strip()}")
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def two_nodes(rate=None):
    """Two network namespaces with a link (tests/cluster/netns.py) and a daemon each: the cluster, and its daemons."""
    import netns

    os.environ["SHUNTD"] = str(program("shuntd"))
    try:
        cluster = netns.Cluster(2, rate)
    except netns.Unavailable as error:
        raise Failed(str(error)) from error
    with cluster:
        yield cluster, [node.shuntd() for node in cluster.nodes]


class Client:
    """A process that runs `body(pipe, *arguments)`. It dies with this one."""

    def __init__(self, body, *arguments):
        self._pipe, theirs = _spawn.Pipe()
        self.process = _spawn.Process(target=_run, args=(body, theirs, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message):
        self._pipe.send(message)

    def receive(self, timeout=PATIENCE):
        """What the process sends next."""
        if not self._pipe.poll(None if timeout == math.inf else timeout):
            raise Failed(f"a client process said nothing for {timeout:g} s")
        try:
            kind, message = self._pipe.recv()
        except EOFError:
            self.process.join()
            raise Failed(f"a client process ended with {self.process.exitcode}") from None
        if kind == "error":
            raise Failed(message)
        return message

    def waiting(self, timeout):
        """Waits that long for something to receive; True if there is."""
        return self._pipe.poll(timeout)

    def ask(self, message, timeout=PATIENCE):
        self.send(message)
        return self.receive(timeout)

    def close(self):
        """Ends it: a body returns when its pipe's end is closed."""
        self._pipe.close()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Pipe:
    """A client process's end."""

    def __init__(self, connection):
        self._connection = connection

    def tell(self, message):
        self._connection.send(("message", message))

    def waits(self):
        """True if hear() would return or raise at once."""
        return self._connection.poll(0)

    def hear(self):
        """The next message. EOFError: we are to end."""
        return self._connection.recv()


def _run(body, connection, arguments):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # however the parent ends: a body may poll for ever
    try:
        body(Pipe(connection), *arguments)
    except EOFError:
        pass
    except BaseException as error:
        words = "".join(traceback.format_exception_only(type(error), error)).strip()
        with contextlib.suppress(OSError):
            connection.send(("error", words))
        sys.exit(1)


def fetched(session, agent, section, access="read"):
    """Another agent's section, as soon as it is there: daemons take a moment to know each other."""
    import shunt

    end = time.monotonic() + PATIENCE
    while True:
        try:
            return session.fetch(agent, section, access)
        except (shunt.NotFound, shunt.Unavailable):
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
