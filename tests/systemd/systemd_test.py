"""The units under a real systemd: readiness, watchdog, reload, stop, sockets, two daemons side by side.

systemd_test.py BUILD_DIR. Boots a machine (machine.py) with the built programs and the units in it.
"""

import os
import shutil
import sys
import time
import unittest

from machine import *

BUILD = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build")
if os.environ.get("SANITIZED"):
    skip("a sanitized library needs its own runtime in every program")
in_namespace()

WATCHDOG_S = 3
# Waits a call of rank 1's that never comes; says when it waits and how it ended.
WAITING = """
import shunt, sys
with shunt.connect() as session:
    comm = session.join("stopped", 0, world_size=2)
    x = session.zeros(8, "float32")
    operation = comm.all_reduce(x, async_op=True)
    print("waits", flush=True)
    try:
        operation.wait()
        print("done", flush=True)
    except shunt.Error as error:
        print("ended:", error, flush=True)
"""
# A sum over two nodes, of more than goes with a message.
ACROSS = """
import shunt, sys
with shunt.connect() as session:
    comm = session.join("across", int(sys.argv[1]), world_size=2, timeout=30)
    x = session.zeros(1 << 20, "float32")
    x[:] = int(sys.argv[1]) + 1
    comm.all_reduce(x)
    print(x[-1])
"""
IDLE = """
import shunt
with shunt.connect() as session:
    comm = session.join("stopped", 1, world_size=2)
    print("joined", flush=True)
    import time
    time.sleep(60)
"""


def prepare(root):
    shutil.copy(f"{BUILD}/bin/shuntd", root / "usr/bin/shuntd")
    shutil.copy(f"{BUILD}/bin/shuntctl", root / "usr/bin/shuntctl")
    shutil.copytree(ROOT / "client/python/shunt", root / "opt/shunt/shunt")
    shutil.copy(os.path.realpath(f"{BUILD}/lib/libshunt.so"), root / "opt/shunt/shunt/libshunt.so")
    units = ROOT / "deploy/systemd"
    for unit in (*units.glob("shuntd*.socket"), *units.glob("shuntd*.service")):
        shutil.copy(unit, root / "etc/systemd/system")
    for kind in ("sysusers", "tmpfiles"):
        shutil.copy(units / f"shunt.{kind}", root / f"usr/lib/{kind}.d/shunt.conf")
    (root / "etc/shunt").mkdir(exist_ok=True)
    drop_in = root / "etc/systemd/system/shuntd.service.d"
    drop_in.mkdir()
    (drop_in / "test.conf").write_text(f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nWatchdogSec={WATCHDOG_S}\n")


class Service(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(prepare)
        cls.addClassCleanup(cls.machine.stop)
        cls.machine.run("systemd-sysusers", "shunt.conf")
        cls.machine.run("systemd-tmpfiles", "--create", "shunt.conf")

    def setUp(self):
        self.configure('grace_period = "1s"\n')
        self.addCleanup(self.machine.run, "systemctl", "stop", "shuntd.socket", "shuntd.service")

    def configure(self, text, name="shuntd"):
        (self.machine.root / f"etc/shunt/{name}.toml").write_text(text)

    def start(self):
        self.machine.run("systemctl", "reset-failed", "shuntd.service", check=False)
        try:
            self.machine.run("systemctl", "start", "shuntd.service")
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.machine.journal('shuntd.service')}") from None
        return self.state()

    def state(self, unit="shuntd.service"):
        return self.machine.show(unit, "ActiveState", "MainPID", "NRestarts", "StatusText", "Result", "WatchdogTimestampMonotonic")

    def status(self, socket="/run/shunt/shuntd.sock"):
        return self.machine.run("shuntctl", "--socket", socket, "status")

    def client(self, *words):
        process = self.machine.start(*words)
        for end in (process.stdout.close, process.wait, process.kill):
            self.addCleanup(end)
        return process

    def wait_restarted(self, before):
        def after():
            state = self.state()
            return state["ActiveState"] == "active" and state["NRestarts"] != before["NRestarts"] and state
        return wait_until(after, "a restart by the watchdog", 8 * WATCHDOG_S)

    def test_started_means_that_it_answers(self):
        state = self.start()
        self.status()  # at once: no waiting here
        self.assertEqual(state["ActiveState"], "active")
        self.assertIn("ready: 0 sessions, 0 communicators", state["StatusText"])
        pid = self.machine.host_pid(state["MainPID"])
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        self.assertNotEqual(status["Uid"].split()[0], "0")
        self.assertEqual(int(status["CapBnd"], 16), 0)
        self.assertEqual(status["NoNewPrivs"], "1")
        # What the kernel grants may be less where this test has not got the right to raise limits.
        self.assertEqual(self.machine.show("shuntd.service", "LimitMEMLOCK")["LimitMEMLOCK"], "infinity")

    def test_a_configuration_with_an_error_does_not_start_and_its_line_is_in_the_journal(self):
        self.configure("spin = 1\n")
        self.assertFalse(self.machine.succeeds("systemctl", "start", "shuntd.service"))
        self.assertIn('/etc/shunt/shuntd.toml:1: unknown key "spin"', self.machine.journal("shuntd.service"))
        self.machine.run("systemctl", "stop", "shuntd.service")  # it would be tried again

    def test_a_stopped_daemon_is_restarted(self):
        before = self.start()
        self.machine.run("kill", "-STOP", before["MainPID"])
        after = self.wait_restarted(before)
        self.assertNotEqual(after["MainPID"], before["MainPID"])
        self.status()

    def test_a_daemon_whose_loop_hangs_is_restarted(self):
        self.configure('[cluster]\nlisten = "127.0.0.1:7071"\n')
        for name in ("shunt-control", "shunt-grpc", "shunt-nodes"):
            with self.subTest(name):
                before = self.start()
                held = HeldThread(self.machine.host_pid(before["MainPID"]), name)
                wait_until(held.gone, f"the end of {name}", 8 * WATCHDOG_S)
                self.wait_restarted(before)
                self.assertIn(f"threads do not answer, so the watchdog is not fed threads={name}",
                              self.machine.journal("shuntd.service"))

    def test_a_worker_that_is_busy_for_long_does_not_hold_up_the_watchdog(self):
        before = self.start()
        held = HeldThread(self.machine.host_pid(before["MainPID"]), "shunt-copy")
        self.addCleanup(held.release)
        enough = int(before["WatchdogTimestampMonotonic"]) + 2 * WATCHDOG_S * 1_000_000
        wait_until(lambda: int(self.state()["WatchdogTimestampMonotonic"]) > enough, "two periods, fed", 8 * WATCHDOG_S)
        self.assertEqual(self.state()["MainPID"], before["MainPID"])

    def test_a_reload_changes_live_keys_and_names_the_others(self):
        before = self.start()
        self.configure('grace_period = "2s"\nmemory_total = "1GiB"\nspin_us = 3\n')
        self.machine.run("systemctl", "reload", "shuntd.service")
        state = wait_until(lambda: "last reload" in self.state()["StatusText"] and self.state(), "a reload")
        self.assertIn("changed memory_total, grace_period; for the next start: spin_us", state["StatusText"])
        self.assertEqual((state["ActiveState"], state["MainPID"]), ("active", before["MainPID"]))
        self.assertIn("1.0 GiB", self.status().replace("1024.0 MiB", "1.0 GiB").replace("1 GiB", "1.0 GiB"))

    def test_a_reload_with_an_error_fails_and_changes_nothing(self):
        before = self.start()
        self.configure('grace_period = "soon"\n')
        self.assertFalse(self.machine.succeeds("systemctl", "reload", "shuntd.service"))
        self.assertEqual((self.state()["ActiveState"], self.state()["MainPID"]), ("active", before["MainPID"]))
        # The daemon itself too, for who sends the signal by hand.
        self.machine.run("kill", "-HUP", before["MainPID"])
        words = '/etc/shunt/shuntd.toml:1: grace_period is "soon"; expected a duration'
        wait_until(lambda: words in self.state()["StatusText"], "the error in the status")
        self.assertIn("the old configuration stays", self.state()["StatusText"])
        self.assertIn("the configuration stays as it was", self.machine.journal("shuntd.service"))
        self.status()

    def test_stopping_gives_running_operations_their_time(self):
        self.configure('grace_period = "2s"\n')
        self.start()
        environment = ("env", "PYTHONPATH=/opt/shunt", "/usr/bin/python3", "-B", "-c")
        self.client(*environment, IDLE)
        process = self.client(*environment, WAITING)
        self.assertEqual(process.stdout.readline(), "waits\n")
        began = time.monotonic()
        self.machine.run("systemctl", "stop", "shuntd.service")
        took = time.monotonic() - began
        self.assertGreater(took, 1.9)
        self.assertLess(took, 15)
        self.assertIn("shuntd is stopping", process.stdout.readline())
        self.assertEqual(self.state()["Result"], "success")

    def test_sockets_of_the_service_manager_outlive_the_daemon(self):
        self.machine.run("systemctl", "start", "shuntd.socket")
        listing = self.machine.run("stat", "-c", "%U:%G %a", "/run/shunt/shuntd.sock", "/run/shunt/shuntd.sock.lease")
        self.assertEqual(listing, "root:shunt 660\nroot:shunt 660\n")
        self.status()  # starts the daemon
        first = self.state()
        self.assertEqual(first["ActiveState"], "active")
        inode = self.machine.run("stat", "-c", "%i", "/run/shunt/shuntd.sock")
        self.machine.run("systemctl", "stop", "shuntd.service")
        self.assertEqual(self.machine.run("stat", "-c", "%i", "/run/shunt/shuntd.sock"), inode)
        self.status()
        self.assertNotEqual(self.state()["MainPID"], first["MainPID"])

    def test_sockets_elsewhere_than_the_configuration_says_are_refused(self):
        self.configure('socket = "/run/shunt/other.sock"\n')
        self.machine.run("systemctl", "start", "shuntd.socket")
        self.assertFalse(self.machine.succeeds("systemctl", "start", "shuntd.service"))
        self.assertIn("passes a stream socket at /run/shunt/shuntd.sock; expected, listening, a stream socket at "
                      "/run/shunt/other.sock", self.machine.journal("shuntd.service"))

    def test_two_daemons_side_by_side(self):
        self.start()
        ports = {"blue": 7081, "green": 7082}
        members = ", ".join(f'"{name}=127.0.0.1:{port}"' for name, port in ports.items())
        for name, port in ports.items():
            self.configure(f'socket = "/run/shunt/{name}/shuntd.sock"\n[cluster]\nnode = "{name}"\n'
                           f'listen = "127.0.0.1:{port}"\nmembers = [{members}]\n', name)
            self.addCleanup(self.machine.run, "systemctl", "stop", f"shuntd@{name}.socket", f"shuntd@{name}.service")
        self.machine.run("systemctl", "start", "shuntd@blue.socket", "shuntd@blue.service", "shuntd@green.service")
        pids = [line for name in ("/", "/blue/", "/green/") for line in self.status(f"/run/shunt{name}shuntd.sock").splitlines()
                if "pid" in line]
        self.assertEqual(len(set(pids)), 3, pids)
        # Two nodes of a cluster: the sandbox lets payload through, too.
        ranks = [self.client("env", "PYTHONPATH=/opt/shunt", f"SHUNT_SOCKET=/run/shunt/{name}/shuntd.sock", "/usr/bin/python3",
                             "-B", "-c", ACROSS, rank) for rank, name in enumerate(ports)]
        for rank in ranks:
            self.assertEqual(rank.stdout.read(), "3.0\n")


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[2:]
    unittest.main(verbosity=2)
