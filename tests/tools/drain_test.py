"""A daemon that drains begins nothing new, lets what runs end, says so, and can be called back to work."""

import os
import subprocess
import tempfile
import threading
import unittest

from world import FINE, REFUSED, SHUNTCTL, TROUBLE, USAGE, ctl, ctl_json, support

import numpy as np  # noqa: E402
import shunt  # noqa: E402


class Drain(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="shunt-drain-")
        self.addCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        self.socket = os.path.join(directory.name, "s.sock")
        log = open(os.path.join(directory.name, "log"), "w")
        self.addCleanup(log.close)
        self.shuntd = subprocess.Popen([os.environ["SHUNTD"], "--socket", self.socket, "--socket-mode", "0666"], stderr=log)
        self.addCleanup(self.stop)
        support.wait_until(lambda: os.path.exists(self.socket), "the daemon")

    def stop(self):
        self.shuntd.terminate()
        self.assertEqual(self.shuntd.wait(timeout=30), 0)

    def state(self):
        return ctl_json("status", socket=self.socket)["state"]

    def test_an_idle_daemon_is_drained_at_once_and_comes_back(self):
        with shunt.connect(self.socket) as session:
            done = ctl("drain", socket=self.socket)
            self.assertEqual(done.returncode, FINE, done.stderr)
            self.assertIn("drained: nothing runs", done.stdout)
            self.assertEqual(self.state(), "drained")
            self.assertIn(", drained", ctl("status", socket=self.socket).stdout)
            for begin in (lambda: shunt.connect(self.socket), lambda: session.join("new", 0, 1),
                          lambda: session.zeros(8, "float32"), lambda: session.agent("new")):
                with self.assertRaisesRegex(shunt.Unavailable, "drained"):
                    begin()
            self.assertEqual(ctl("drain", "--undo", socket=self.socket).returncode, FINE)
            self.assertEqual(self.state(), "serving")
            comm = session.join("new", 0, 1)
            x = session.array([1.0, 2.0])
            comm.all_reduce(x)
            self.assertEqual(list(x), [1.0, 2.0])
        with shunt.connect(self.socket):
            pass

    def test_running_operations_end_before_the_daemon_is_drained(self):
        with shunt.connect(self.socket) as one, shunt.connect(self.socket) as other:
            comms = [None, None]

            def join(rank, session):
                comms[rank] = session.join("running", rank, 2)

            joiner = threading.Thread(target=join, args=(1, other))
            joiner.start()
            join(0, one)
            joiner.join()
            x = [one.array([1.0]), other.array([2.0])]
            first = comms[0].all_reduce(x[0], async_op=True)
            drain = subprocess.Popen([SHUNTCTL, "--socket", self.socket, "drain", "--grace", "60s"],
                                     stdout=subprocess.PIPE, text=True)
            support.wait_until(lambda: self.state() == "draining", "the drain")
            self.assertIsNone(drain.poll())
            self.assertEqual(ctl_json("status", socket=self.socket)["communicators_busy"], 1)
            second = comms[1].all_reduce(x[1], async_op=True)  # what the other rank waits for
            first.wait()
            second.wait()
            self.assertEqual((x[0][0], x[1][0]), (3.0, 3.0))
            out, _ = drain.communicate(timeout=60)
            self.assertEqual(drain.returncode, FINE, out)
            self.assertIn("drained: nothing runs", out)
            with self.assertRaisesRegex(shunt.Error, "drained"):
                comms[0].all_reduce(x[0])

    def test_what_does_not_end_is_ended_after_the_grace_period_and_said(self):
        with shunt.connect(self.socket) as one, shunt.connect(self.socket) as other:
            silent = []
            joiner = threading.Thread(target=lambda: silent.append(other.join("stuck", 1, 2)))
            joiner.start()
            comm = one.join("stuck", 0, 2)
            joiner.join()
            handle = comm.all_reduce(np.ones(4, np.float32), async_op=True)
            shown = ctl_json("drain", "--grace", "200ms", socket=self.socket, status=TROUBLE)
            self.assertEqual(shown["state"], "drained")
            self.assertTrue(shown["cut_off"])
            with self.assertRaisesRegex(shunt.Error, "drained"):
                handle.wait()

    def test_a_join_that_waits_ends(self):
        with shunt.connect(self.socket) as session:
            errors = []

            def join():
                try:
                    session.join("half", 0, 2, timeout=60)
                except shunt.Error as error:
                    errors.append(error)

            joiner = threading.Thread(target=join)
            joiner.start()
            support.wait_until(lambda: ctl_json("communicators", socket=self.socket), "the join")
            self.assertEqual(ctl("drain", socket=self.socket).returncode, FINE)
            joiner.join()
            self.assertIn("draining", str(errors[0]))

    def test_another_user_may_not(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to become another user")
        done = ctl("drain", socket=self.socket, user=65534)
        self.assertEqual(done.returncode, REFUSED)
        self.assertIn("user 65534 may not drain it", done.stderr)
        self.assertEqual(self.state(), "serving")
        links = ctl("links", socket=self.socket, user=65534)
        self.assertEqual(links.returncode, REFUSED)
        self.assertIn("run it as one of them", links.stderr)
        for command in ("status", "sessions", "communicators", "transfers", "topology"):
            self.assertEqual(ctl(command, socket=self.socket, user=65534).returncode, FINE)

    def test_a_grace_period_that_is_none(self):
        for grace in ("soon", "-1s", "0s", "3 weeks", "48h"):
            self.assertEqual(ctl("drain", f"--grace={grace}", socket=self.socket).returncode, USAGE, grace)
        self.assertEqual(self.state(), "serving")


if __name__ == "__main__":
    unittest.main()
