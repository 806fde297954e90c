"""Daemons of a cluster on loopback, and jobs that must go on whatever else happens to them."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
import support  # noqa: E402  (finds the package)
import shunt  # noqa: E402


def free_ports(count):
    """Nobody else has them a moment before somebody binds them."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Daemon:
    """A shuntd, ready. `cluster` is lines of TOML for its [cluster] section."""

    def __init__(self, directory, name, cluster):
        self.name = name
        base = pathlib.Path(directory) / name
        self.socket, self._log, config = (base.with_suffix(suffix) for suffix in (".sock", ".log", ".toml"))
        self.socket = str(self.socket)
        config.write_text(f'socket = "{self.socket}"\n[cluster]\nnode = "{name}"\n{cluster}\n', encoding="utf-8")
        with open(self._log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([os.environ["SHUNTD"], "--config", config], stderr=log)
        try:
            support.wait_until(self._ready, f"shuntd on node {name}")
        except BaseException:
            self.stop()
            raise

    def _ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"shuntd on node {self.name} ended with {self.process.returncode}: {self.log()}")
        return os.path.exists(self.socket)

    def log(self):
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_log(self, *words, times=1):
        """Until `times` lines of the log hold all the words."""

        def there():
            return sum(all(word in line for word in words) for line in self.log().splitlines()) >= times

        try:
            support.wait_until(there, f"{words} in the log of node {self.name}")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.log()}") from error

    def shuntctl(self, *arguments):
        command = [support.BUILD / "bin" / "shuntctl", *arguments, "--socket", self.socket]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def cluster_status(self):
        return json.loads(self.shuntctl("status", "--json"))["cluster"]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=30)


@contextlib.contextmanager
def static_cluster(names, others=None, **settings):
    """Daemons with static members, connected with each other: a dict by name. `others`: members without a daemon of
    ours, address by name. Each value of `settings` is a value of TOML."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="shunt-loopback-"))
        ports = dict(zip(names, free_ports(len(names))))
        members = [f"{name}=127.0.0.1:{port}" for name, port in ports.items()]
        members += [f"{name}={address}" for name, address in (others or {}).items()]
        settings = {"name": '"test"', "membership": '"static"', "members": json.dumps(members), **settings}
        daemons = {}
        for name in names:
            lines = [f'listen = "127.0.0.1:{ports[name]}"', *(f"{key} = {value}" for key, value in settings.items())]
            daemons[name] = Daemon(directory, name, "\n".join(lines))
            stack.callback(daemons[name].stop)
        connected(daemons)
        yield daemons


def connected(daemons):
    """Waits until each has a connection for payload with each other one."""
    for daemon in daemons.values():
        for name in daemons:
            if name != daemon.name:
                daemon.wait_log("node connected", f" node={name}")


def join_all(sessions, name, **options):
    """A communicator of one rank for each session; its members in rank order."""
    options = {"timeout": support.PATIENCE, "default_timeout": support.PATIENCE, **options}
    joins = [lambda rank=rank: sessions[rank].join(name, rank, len(sessions), **options) for rank in range(len(sessions))]
    return at_once(joins)


def at_once(bodies):
    """Runs each in a thread, to the end of all. Their results; raises the first error."""
    results, errors = outcomes(bodies)
    for error in errors:
        if error is not None:
            raise error
    return results


def outcomes(bodies):
    """Runs each in a thread, to the end of all. Two lists: what they gave, and what they raised."""
    results, errors = [None] * len(bodies), [None] * len(bodies)

    def run(index):
        try:
            results[index] = bodies[index]()
        except Exception as error:
            errors[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, errors


class Job:
    """Ranks, one at each of the daemon sockets, that add numbers up until the job is stopped, and look at each result."""

    COUNTS = (16, 40_000)

    def __init__(self, sockets, name):
        self._sockets = sockets
        self._name = name
        self._stop = False
        self._rounds = 0
        self._error = None
        self._threads = [threading.Thread(target=self._run, args=(rank,)) for rank in range(len(sockets))]
        for thread in self._threads:
            thread.start()
        self.goes_on()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self._stop = True
        for thread in self._threads:
            thread.join()
        if kind is None and self._error is not None:
            raise AssertionError(f"job {self._name!r} failed") from self._error

    def _run(self, rank):
        try:
            with shunt.connect(self._sockets[rank]) as session:
                comm = session.join(self._name, rank, len(self._sockets), timeout=support.PATIENCE,
                                    default_timeout=support.PATIENCE)
                while self._round(comm):
                    if rank == 0:
                        self._rounds += 1
                comm.leave()
        except Exception as error:
            self._error = self._error or error

    def _round(self, comm):
        """False, on every rank alike, once the job is stopped."""
        stop = np.full(1, self._stop and comm.rank == 0, np.int32)
        comm.all_reduce(stop)
        if stop[0]:
            return False
        world = comm.world_size
        for count in self.COUNTS:
            x = np.full(count, comm.rank + 1, np.float32)
            comm.all_reduce(x)
            if not (x == world * (world + 1) / 2).all():
                raise AssertionError(f"rank {comm.rank} of {self._name!r} got wrong sums")
        return True

    def goes_on(self):
        """Waits until it has added up some more, from beginning to end after this call."""
        end = self._rounds + 3

        def has_gone_on():
            if self._error is not None:
                raise AssertionError(f"job {self._name!r} failed") from self._error
            return self._rounds >= end

        support.wait_until(has_gone_on, f"job {self._name!r} to go on")
