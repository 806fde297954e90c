"""Ranks in pods: a collective and a pull between processes that share nothing but the directory of the sockets.

pods_test.py BUILD_DIR. Each "pod" has mount, PID, IPC, UTS and network namespaces of its own and an ordinary user without
capabilities; the directory is bound into it read-only. So has the daemon, which is another user. As deploy/k8s has them.
"""

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
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build").resolve()
DAEMON, GROUP, JOB = 7071, 7071, 10001

# $1: the directory of the sockets, $2: how it is bound, $3: uid, $4: groups; then the command. The pod's /run and
# /dev/shm are its own and empty; everything it started goes when its first process goes.
POD = """
set -e
mount -t tmpfs -o size=1m tmpfs /run
mount -t tmpfs -o size=64k tmpfs /dev/shm
mkdir /run/shunt
mount --bind "$1" /run/shunt
mount -o remount,bind,"$2" /run/shunt
mount -t proc proc /proc
uid=$3 groups=$4
shift 4
exec setpriv --reuid "$uid" --regid "$uid" --groups "$groups" --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""

COLLECTIVE = """
import os, sys, shunt
rank = int(sys.argv[1])
with shunt.connect() as session:
    comm = session.join("pods", rank, world_size=3)
    x = session.zeros(1 << 16, "float32")
    x[:] = rank + 1
    comm.all_reduce(x)
    print(os.getpid(), os.getuid(), x[0], x[-1])
"""
PREFILL = """
import shunt, signal
with shunt.connect() as session:
    blocks = session.array([[block] * 1024 for block in range(64)], "float32")
    session.agent("prefill").publish("kv", blocks, access="read")
    print("published", flush=True)
    signal.pause()
"""
DECODE = """
import shunt
with shunt.connect() as session:
    mine = session.zeros((8, 1024), "float32")
    own, theirs = session.prepare(mine), session.fetch("prefill", "kv")
    session.pull(own.ids([0, 5]), theirs.ids([42, 7]), timeout=20).wait()
    print(mine[0, 0], mine[5, 0], mine[1, 0])
"""
REFUSED = """
import shunt
try:
    shunt.connect()
except shunt.Error as error:
    print(error)
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


class Pods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="shunt-pods-")
        cls.addClassCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        cls.sockets = os.path.join(directory.name, "sockets")
        os.mkdir(cls.sockets, 0o755)
        os.chown(cls.sockets, DAEMON, GROUP)
        # Where a user without rights may read them, whatever the checkout's own modes are.
        cls.files = pathlib.Path(directory.name) / "files"
        cls.files.mkdir()
        shutil.copy(BUILD / "bin/shuntd", cls.files)
        shutil.copytree(ROOT / "client/python/shunt", cls.files / "shunt")
        shutil.copy(os.path.realpath(BUILD / "lib/libshunt.so"), cls.files / "shunt/libshunt.so")
        cls.log = open(os.path.join(directory.name, "log"), "w+", encoding="utf-8")
        cls.addClassCleanup(cls.log.close)
        cls.daemon = cls.pod(DAEMON, [cls.files / "shuntd", "--socket", "/run/shunt/shuntd.sock", "--socket-mode", "0660"],
                             bind="rw", stdout=cls.log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(cls.end, cls.daemon)
        deadline = time.monotonic() + 20
        while not os.path.exists(os.path.join(cls.sockets, "shuntd.sock")):
            assert cls.daemon.poll() is None and time.monotonic() < deadline, "no daemon: " + cls.daemon_log()
            time.sleep(0.01)

    @classmethod
    def daemon_log(cls):
        with open(cls.log.name, encoding="utf-8") as log:
            return log.read()

    @classmethod
    def pod(cls, uid, command, bind="ro", groups=GROUP, **options):
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "--propagation", "private",
             "sh", "-c", POD, "sh", cls.sockets, bind, str(uid), str(groups), *map(str, command)],
            env={"PATH": os.environ["PATH"], "SHUNT_SOCKET": "/run/shunt/shuntd.sock", "PYTHONPATH": str(cls.files)},
            stdin=subprocess.DEVNULL, text=True, **options,
        )

    @classmethod
    def end(cls, process):
        # The pod's first process too, and with it all others: one that has changed its user does not die with its parent.
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for child in children.read_text().split() if process.poll() is None else []:
            os.kill(int(child), signal.SIGKILL)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def python(self, program, *args, uid=JOB, **options):
        process = self.pod(uid, ["/usr/bin/python3", "-B", "-c", program, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           **options)
        self.addCleanup(self.end, process)
        return process

    def test_a_collective_among_pods(self):
        for process in [self.python(COLLECTIVE, rank) for rank in range(3)]:
            # Each is the first process of its pod, and adds 1 + 2 + 3.
            self.assertEqual(process.communicate(timeout=60)[0], f"1 {JOB} 6.0 6.0\n", self.daemon_log())

    def test_a_pull_between_pods(self):
        self.assertEqual(self.python(PREFILL).stdout.readline(), "published\n", self.daemon_log())
        self.assertEqual(self.python(DECODE).communicate(timeout=60)[0], "42.0 7.0 0.0\n", self.daemon_log())

    def test_a_pod_outside_the_group_is_refused(self):
        self.assertIn("ermission", self.python(REFUSED, groups=JOB).communicate(timeout=60)[0])


if __name__ == "__main__":
    if os.environ.get("SANITIZED"):
        skip("a sanitized library needs its own runtime in every program")
    if os.geteuid() != 0:
        skip("needs root, to make pods of namespaces")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "true"], capture_output=True, text=True)
    if probe.returncode != 0 or shutil.which("setpriv") is None:
        skip(f"cannot make namespaces: {probe.stderr.strip() or 'no setpriv'}")
    if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode != 0:
        skip("needs NumPy")
    unittest.main()
