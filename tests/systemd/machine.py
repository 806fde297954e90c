"""A machine with a real systemd: boots one as PID 1 over a throw-away copy of this system's files.

What is written in it goes to memory, and is gone with it. Mounts are of a mount namespace that in_namespace() makes,
so that they go with the process, whatever becomes of it. Needs root and systemd-nspawn; skips with words otherwise.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Only what the tests need, so that a boot takes a second: no logins, no time, no services of this host's.
TARGET = """[Unit]
DefaultDependencies=no
Requires=dbus.socket systemd-journald.socket systemd-journald.service
After=dbus.socket systemd-journald.socket systemd-journald.service
AllowIsolate=yes
"""
NAMESPACE = "SHUNT_TEST_NAMESPACE"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def in_namespace():
    """Runs this program again where its mounts are its own; returns there."""
    if os.environ.get(NAMESPACE):
        return
    if os.geteuid() != 0:
        skip("needs root, to boot a systemd in namespaces")
    for program in ("unshare", "nsenter", "systemd-nspawn"):
        if shutil.which(program) is None:
            skip(f"needs {program} (packages util-linux, systemd-container)")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], stderr=subprocess.PIPE, text=True)
    if probe.returncode != 0:
        skip(f"cannot make namespaces: {probe.stderr.strip()}")
    os.environ[NAMESPACE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, "-B", *sys.argv])


def wait_until(condition, what, seconds=20):
    """Polls: other processes' states send no event. Gives the condition's value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return value


def die_with_parent():
    """For a child before its program: a test that is killed leaves no machine."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Files:
    """This system's files, and what is written over them: in memory, below `top`/upper."""

    def __init__(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="shunt-machine-"))
        self.root = self.top / "root"
        try:
            self._mount("-t", "tmpfs", "tmpfs", self.top)
            for name in ("upper", "work", "root"):
                (self.top / name).mkdir()
            layers = f"lowerdir=/,upperdir={self.top}/upper,workdir={self.top}/work"
            self._mount("-t", "overlay", "overlay", "-o", layers, self.root)
        except BaseException:
            self.remove()
            raise

    def _mount(self, *words):
        done = subprocess.run(["mount", *map(str, words)], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            skip(f"cannot mount an overlay over /: {done.stderr.strip()}")

    def remove(self):
        for mount in (self.root, self.top):
            subprocess.run(["umount", "--lazy", mount], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.top, ignore_errors=True)


class Machine:
    """prepare(root) writes into the files before the boot."""

    def __init__(self, prepare=lambda root: None):
        self.files = Files()
        self.root = self.files.root
        self.process = None
        self.leader = None
        try:
            self._boot(prepare)
        except BaseException:
            self.stop()
            raise

    def _boot(self, prepare):
        # An empty machine id makes systemd wait for entropy; this host's own would be a lie.
        (self.root / "etc/machine-id").write_text(os.urandom(16).hex() + "\n")
        (self.root / "etc/systemd/system/shunt-test.target").write_text(TARGET)
        # Containers forbid maintainer scripts to start services; this is a machine.
        (self.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        prepare(self.root)
        self.log = open(self.files.top / "console", "w+b")
        self.process = subprocess.Popen(
            ["systemd-nspawn", "-q", "-D", self.root, "--register=no", "--keep-unit", "--private-network", "--link-journal=no",
             f"--machine=shunt-test-{os.getpid()}", "--console=pipe", "--boot", "--", "systemd.unit=shunt-test.target"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
        )
        wait_until(self._up, "the machine's boot", 40)

    def _up(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError("the machine ended: " + self.log.read().decode(errors="replace"))
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            self.leader = child
            if self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded"):
                return True
        return False

    def run(self, *words, check=True, timeout=60, **options):
        """Its output. A machine's own root runs it, in all of its namespaces."""
        done = subprocess.run(
            ["nsenter", "-t", self.leader, "-a", "--", *map(str, words)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **options,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stdout}")
        return done.stdout

    def succeeds(self, *words):
        try:
            self.run(*words)
        except AssertionError:
            return False
        return True

    def start(self, *words, **options):
        """A process in the machine, for the caller to end."""
        return subprocess.Popen(
            ["nsenter", "-t", self.leader, "-a", "--", *map(str, words)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options,
        )

    def show(self, unit, *properties):
        text = self.run("systemctl", "show", unit, *(f"--property={name}" for name in properties))
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def journal(self, unit):
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit, check=False)

    def host_pid(self, pid):
        """What this host calls the machine's process `pid`."""
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                numbers = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()[1:]
                same = os.readlink(status.parent / "ns/pid") == os.readlink(f"/proc/{self.leader}/ns/pid")
            except (OSError, StopIteration):
                continue
            if same and numbers[-1] == str(pid):
                return int(numbers[0])
        raise AssertionError(f"no process {pid} in the machine")

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()  # systemd-nspawn then powers the machine off
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process is not None:
            self.log.close()
        self.files.remove()


class HeldThread:
    """One thread of a process, held still while its others run: as a loop would be that hangs."""

    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
    WALL = 0x40000000

    def __init__(self, pid, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        tasks = pathlib.Path(f"/proc/{pid}/task")
        self.tid = next(int(t.name) for t in tasks.iterdir() if (t / "comm").read_text().strip() == name)
        for request in (self.SEIZE, self.INTERRUPT):
            if self.libc.ptrace(request, self.tid, None, None) != 0:
                raise unittest.SkipTest(f"cannot hold a thread: {os.strerror(ctypes.get_errno())}")
        os.waitpid(self.tid, self.WALL)

    def gone(self):
        """True once the thread has died; a held one is only then let go of by the kernel."""
        try:
            changed, status = os.waitpid(self.tid, self.WALL | os.WNOHANG)
            return changed != 0 and (os.WIFEXITED(status) or os.WIFSIGNALED(status))
        except ChildProcessError:
            return True

    def release(self):
        self.libc.ptrace(self.DETACH, self.tid, None, None)


__all__ = ["Files", "HeldThread", "Machine", "ROOT", "in_namespace", "signal", "skip", "wait_until"]
