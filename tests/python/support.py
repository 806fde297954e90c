"""What the Python tests share: a daemon of their own, ranks as threads or processes, a look at mappings."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SHUNT_BUILD_DIR", ROOT / "build"))
PACKAGE = ROOT / "client" / "python"
LIBRARY = BUILD / "lib" / "libshunt.so"
# Long enough for a slow machine, short enough that a hang is seen: no test waits for it to pass.
PATIENCE = 30.0

os.environ["SHUNT_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(PACKAGE))

if without := os.environ.get("SHUNT_NO_PYTHON"):
    print(f"skipped: {without} cannot be loaded into a plain Python")
    sys.exit(77)

# A sanitizer's runtime, which this interpreter was started with: other interpreters need it too, other programs have
# their own.
SANITIZER = os.environ.pop("LD_PRELOAD", None)

import shunt  # noqa: E402


def wait_until(condition, what):
    """For events of other processes that give no notice. The interval only bounds how late they are seen."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.005)


class Daemon:
    """A private shuntd; its socket is `socket`."""

    def __init__(self, *flags):
        self.directory = tempfile.mkdtemp(prefix="shunt-python-")
        self.socket = os.path.join(self.directory, "shuntd.sock")
        self._log = open(os.path.join(self.directory, "log"), "w+")
        self.process = subprocess.Popen(
            [str(BUILD / "bin" / "shuntd"), "--socket", self.socket, *flags], stdout=self._log, stderr=self._log
        )
        try:
            wait_until(self._ready, "shuntd's sockets")
        except BaseException:
            print(self.log(), file=sys.stderr)
            self.stop()
            raise

    def _ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"shuntd ended with {self.process.returncode}")
        return os.path.exists(self.socket) and os.path.exists(self.socket + ".lease")

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class DaemonTest(unittest.TestCase):
    """A test case whose class has a daemon."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)
        os.environ["SHUNT_SOCKET"] = cls.daemon.socket

    def ranks(self, world_size, body, **join):
        """Runs body(session, comm) once for each rank, each in a thread with a session of its own. Returns what
        each returned; raises what the lowest failing rank raised."""
        results, failures = [None] * world_size, [None] * world_size
        name = join.pop("name", self.id())

        def rank_main(rank):
            try:
                with shunt.connect() as session:
                    options = {"timeout": PATIENCE, "default_timeout": PATIENCE, **join}
                    with session.join(name, rank, world_size, **options) as comm:
                        results[rank] = body(session, comm)
            except BaseException as error:
                failures[rank] = error

        threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for failure in failures:
            if failure is not None:
                raise failure
        return results

    def outcomes(self, world_size, body, **join):
        """Like ranks(), where body may raise: gives each rank's result or shunt.Error."""

        def guarded(session, comm):
            try:
                return body(session, comm)
            except shunt.Error as error:
                return error

        return self.ranks(world_size, guarded, **join)


def mapping_of(address):
    """The line of /proc/self/maps that holds an address, or None."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            if begin <= address < end:
                return line
    return None


def sleeps_in_futex(pid):
    """True if the process's main thread waits for another thread or process."""
    with open(f"/proc/{pid}/wchan") as wchan:
        return "futex" in wchan.read()


def sanitizer_environment():
    """What another interpreter needs to load the library, where it is sanitized."""
    if SANITIZER is None:
        return {}
    # An interpreter does not free everything when it ends.
    return {"LD_PRELOAD": SANITIZER, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def main(**arguments):
    """Runs the module's tests and ends the process."""
    program = unittest.main(verbosity=2, exit=False, **arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if program.result.wasSuccessful() else 1)  # without a sanitizer's search for what the interpreter leaks


@contextlib.contextmanager
def python_process(code, *arguments):
    """A separate interpreter running `code` with the package importable; killed at the end if still there."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), **sanitizer_environment()}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
