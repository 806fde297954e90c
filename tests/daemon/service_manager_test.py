"""The daemon's talk with a service manager, which the test plays: readiness, watchdog, reload, stop, sockets passed on."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import *


class Manager:
    """Starts the daemon as systemd would, and hears what it says."""

    def __init__(self, config="", watchdog_us=None, sockets=(), socket_path=None):
        self.directory = tempfile.TemporaryDirectory(prefix="shunt-manager-")
        self.path = pathlib.Path(self.directory.name)
        self.socket = socket_path or str(self.path / "s.sock")
        self.config = self.path / "shuntd.toml"
        self.configure(config)
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(str(self.path / "notify"))
        self.ear.settimeout(20)
        environment = {**os.environ, "NOTIFY_SOCKET": str(self.path / "notify")}
        if watchdog_us is not None:
            environment["WATCHDOG_USEC"] = str(watchdog_us)
        script = 'exec "$@"'
        if sockets:
            environment["LISTEN_FDS"] = str(len(sockets))
            script = 'LISTEN_PID=$$ exec "$@"'

        def pass_on():
            # First beyond all targets, so that none overwrites another.
            high = [os.dup2(s.fileno(), 50 + i) for i, s in enumerate(sockets)]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)

        self.log_path = self.path / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", script, "sh", SHUNTD, "--config", str(self.config), "--socket", self.socket],
                env=environment, stderr=log, preexec_fn=pass_on, close_fds=not sockets,
            )

    def configure(self, text):
        self.config.write_text(text)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def hear(self, *keys):
        """The next message that has all of `keys`, as a dictionary."""
        while True:
            try:
                message = dict(line.split("=", 1) for line in self.ear.recv(65536).decode().splitlines())
            except TimeoutError:
                raise AssertionError(f"not told {keys}: {self.log()}") from None
            if all(key in message for key in keys):
                return message

    def close(self):
        self.process.kill()
        self.process.wait()
        self.ear.close()
        self.directory.cleanup()


def listening(path, kind):
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(str(path))
    made.listen()
    return made


class ServiceManager(unittest.TestCase):
    def manager(self, *args, **kwargs):
        manager = Manager(*args, **kwargs)
        self.addCleanup(manager.close)
        return manager

    def test_ready_comes_when_both_sockets_answer(self):
        manager = self.manager()
        self.assertEqual(manager.hear("STATUS")["STATUS"], "starting")
        self.assertEqual(manager.hear("READY")["STATUS"], "ready: 0 sessions, 0 communicators")
        for path, kind in ((manager.socket, socket.SOCK_STREAM), (manager.socket + ".lease", socket.SOCK_SEQPACKET)):
            with socket.socket(socket.AF_UNIX, kind) as client:
                self.assertEqual(client.connect_ex(path), 0)

    def test_what_keeps_it_from_starting_is_told(self):
        manager = self.manager("memory_total = \"lots\"\n")
        words = manager.hear("STATUS")["STATUS"]
        self.assertIn(':1: memory_total is "lots"', words)
        self.assertEqual(manager.process.wait(20), 1)

    def test_the_watchdog_is_fed_and_sessions_are_counted(self):
        manager = self.manager(watchdog_us=400_000)
        manager.hear("READY")
        for _ in range(3):
            manager.hear("WATCHDOG")
        session = LeaseSession(manager.socket + ".lease")
        # A busy machine may make a thread late for a look, and that is told first.
        self.await_status(manager, "ready: 1 session, 0 communicators")
        session.close()

    def test_reloads_one_upon_another_do_not_keep_the_watchdog_hungry(self):
        manager = self.manager(watchdog_us=400_000)
        manager.hear("READY")
        # Each reload is asked for as soon as the one before is done, so that no look's time goes by
        # without a signal.
        fed, until = 0, time.monotonic() + 20
        manager.process.send_signal(signal.SIGHUP)
        while fed < 3:
            self.assertLess(time.monotonic(), until, f"fed {fed} times: {manager.log()}")
            message = manager.hear()
            if "READY" in message:
                manager.process.send_signal(signal.SIGHUP)
            fed += "WATCHDOG" in message

    def test_without_a_watchdog_nothing_is_fed(self):
        manager = self.manager()
        manager.hear("READY")
        manager.ear.settimeout(1)
        with self.assertRaises(AssertionError):
            manager.hear("WATCHDOG")

    def test_a_reload_tells_what_changed_and_what_waits(self):
        manager = self.manager('log_level = "info"\n')
        manager.hear("READY")
        manager.configure('log_level = "warn"\nmemory_per_session = "1MiB"\nmax_sessions = 3\n'
                          'max_communicators_per_session = 1\n[cluster]\nname = "x"\n')
        manager.process.send_signal(signal.SIGHUP)
        self.assertIn("MONOTONIC_USEC", manager.hear("RELOADING"))
        words = manager.hear("READY")["STATUS"]
        self.assertIn("changed log_level, memory_per_session, max_communicators_per_session; "
                      "for the next start: max_sessions, cluster.name", words)
        # It counts for what comes.
        session = LeaseSession(manager.socket + ".lease")
        with self.assertRaises(LeaseError) as refused:
            session.allocate(2 << 20)
        self.assertIn("memory_per_session", str(refused.exception))
        session.join("first", 0, 1)
        with self.assertRaises(LeaseError) as refused:
            session.join("second", 0, 1)
        self.assertIn("max_communicators_per_session", str(refused.exception))
        session.close()
        # Back to the start: only what differs from what runs now is named.
        manager.configure("")
        manager.process.send_signal(signal.SIGHUP)
        words = manager.hear("READY")["STATUS"]
        self.assertIn("changed log_level, memory_per_session", words)
        self.assertNotIn("next start", words)

    def test_a_reload_with_an_error_keeps_all_and_says_why(self):
        manager = self.manager('memory_per_session = "1MiB"\n')
        manager.hear("READY")
        manager.configure('memory_per_session = "4MiB"\nmemory_per_tenant = "2MiB"\n')
        manager.process.send_signal(signal.SIGHUP)
        words = manager.hear("READY")["STATUS"]
        self.assertIn("last reload failed, the old configuration stays: memory_per_session (4194304 bytes) is more than", words)
        self.assertIn("the configuration stays as it was", manager.log())
        session = LeaseSession(manager.socket + ".lease")
        with self.assertRaises(LeaseError):
            session.allocate(2 << 20)
        session.close()
        manager.config.unlink()
        manager.process.send_signal(signal.SIGHUP)
        self.assertIn("cannot open the configuration file", manager.hear("READY")["STATUS"])

    def test_a_reload_finds_what_would_keep_the_next_start_from_succeeding(self):
        manager = self.manager()
        manager.hear("READY")
        for text, words in (
            ('worker_cpus = "4000"\n', ("worker_cpus", "4000")),
            ('[storage]\ns3 = ["o=http://127.0.0.1:1 ca=/nonexistent/ca"]\n', ("storage.s3", "/nonexistent/ca")),
            ('[storage]\nplugins = ["p=/nonexistent/p.so"]\n', ("storage.plugins", "/nonexistent/p.so")),
        ):
            with self.subTest(text):
                manager.configure(text)
                manager.process.send_signal(signal.SIGHUP)
                told = manager.hear("READY")["STATUS"]
                for word in ("last reload failed, the old configuration stays", *words):
                    self.assertIn(word, told)

    def test_log_levels_change_for_lines_to_come(self):
        manager = self.manager('log_level = "error"\n')
        manager.hear("READY")
        manager.configure('log_level = "info"\n')
        manager.process.send_signal(signal.SIGHUP)
        manager.hear("READY")
        self.assertIn("configuration read again", manager.log())
        self.assertNotIn("shuntd is ready", manager.log())

    def test_stopping_is_told_with_the_time_that_it_may_take(self):
        manager = self.manager('grace_period = "7s"\n')
        manager.hear("READY")
        manager.process.send_signal(signal.SIGTERM)
        message = manager.hear("STOPPING")
        self.assertEqual(int(message["EXTEND_TIMEOUT_USEC"]), 27_000_000)
        self.assertIn("running operations get 7 s", message["STATUS"])
        self.assertEqual(manager.process.wait(20), 0)

    def test_sockets_passed_on_are_served_and_stay(self):
        with tempfile.TemporaryDirectory(prefix="shunt-given-") as directory:
            path = pathlib.Path(directory) / "g.sock"
            made = [listening(f"{path}.lease", socket.SOCK_SEQPACKET), listening(path, socket.SOCK_STREAM)]
            for s in made:
                self.addCleanup(s.close)
            # Who connects before the daemon is there, waits.
            early = LeaseSession(f"{path}.lease", open_session=False)
            manager = self.given(path, made)
            manager.hear("READY")
            early.call(open_session=api.session.OpenSessionRequest(name="early"))
            early.close()
            manager.process.send_signal(signal.SIGTERM)
            self.assertEqual(manager.process.wait(20), 0)
            self.assertTrue(path.exists())
            self.assertTrue(pathlib.Path(f"{path}.lease").exists())

    def test_sockets_that_are_not_those_of_the_configuration_are_refused(self):
        with tempfile.TemporaryDirectory(prefix="shunt-given-") as directory:
            path = pathlib.Path(directory) / "g.sock"
            stream = listening(path, socket.SOCK_STREAM)
            packets = listening(f"{path}.lease", socket.SOCK_SEQPACKET)
            other = listening(pathlib.Path(directory) / "other", socket.SOCK_STREAM)
            for s in (stream, packets, other):
                self.addCleanup(s.close)
            for sockets, words in (
                ([stream], f"passes no socket for {path}.lease; expected both"),
                ([packets], f"passes no socket for {path}; expected both"),
                ([other, packets], f"passes a stream socket at {other.getsockname()}; expected, listening,"),
                ([stream, stream], f"passes a stream socket at {path}; expected, listening,"),
            ):
                with self.subTest(words):
                    manager = self.given(path, sockets)
                    self.assertEqual(manager.process.wait(20), 1)
                    self.assertIn(words, manager.log())

    def await_status(self, manager, wanted):
        until, heard = time.monotonic() + 20, []
        while wanted not in heard:
            self.assertLess(time.monotonic(), until, f"told {heard}")
            heard.append(manager.hear("STATUS")["STATUS"])

    def given(self, path, sockets):
        return self.manager(sockets=sockets, socket_path=str(path))


if __name__ == "__main__":
    unittest.main()
