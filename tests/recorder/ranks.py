"""Ranks as processes that do what they are told, and what shuntctl says of them."""

import json
import os
import pathlib
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
for directory in ("cluster", "python"):
    sys.path.insert(0, str(ROOT / "tests" / directory))

import support  # noqa: E402  (finds the package)

SHUNTCTL = support.BUILD / "bin" / "shuntctl"

# Joins communicators, and runs the lines that come.
CODE = """
import sys, threading
import numpy as np
import shunt
session = shunt.connect(socket=sys.argv[1], name=sys.argv[2])
rank, world = int(sys.argv[4]), int(sys.argv[5])
join = lambda name: session.join(name, rank, world, timeout=60, default_timeout=60)
print("connected", flush=True)
comm = join(sys.argv[3])
print("joined", flush=True)
for line in sys.stdin:
    try:
        exec(line)
        print("done", flush=True)
    except Exception as error:
        print("failed", type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""


class Rank:
    def __init__(self, socket, communicator, rank, world, popen=subprocess.Popen, wait=False):
        environment = {**os.environ, "PYTHONPATH": str(support.PACKAGE), **support.sanitizer_environment()}
        self.rank = rank
        self.name = f"process {rank}"
        command = [sys.executable, "-B", "-c", CODE, socket, self.name, communicator, str(rank), str(world)]
        self.process = popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "connected\n"
        if wait:
            self.expect("joined")

    @property
    def pid(self):
        return self.process.pid

    def tell(self, line):
        """Begins it; expect("done") waits for its end."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def expect(self, *words):
        line = self.process.stdout.readline()
        for word in words:
            assert word in line, line
        return line

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def start_ranks(test, places, communicator, popen=None):
    """A rank at each of the sockets; joined."""
    popen = popen or [subprocess.Popen] * len(places)
    ranks = []
    for number, socket in enumerate(places):
        ranks.append(Rank(socket, communicator, number, len(places), popen[number]))
        test.addCleanup(ranks[-1].end)
    for rank in ranks:
        rank.expect("joined")
    return ranks


def tell_all(ranks, line):
    for rank in ranks:
        rank.tell(line)
    for rank in ranks:
        rank.expect("done")


def shuntctl(socket, *arguments, **options):
    return subprocess.run([SHUNTCTL, "--socket", socket, *arguments], capture_output=True, text=True, timeout=60,
                          check=False, **options)


def hang(socket, *arguments):
    """What is stuck, as a list; the exit status says the same."""
    result = shuntctl(socket, "hang", "--json", *arguments)
    assert result.returncode in (0, 3), result.stderr
    found = json.loads(result.stdout)
    assert (result.returncode == 3) == bool(found["stuck"]), result.stdout
    return found["stuck"]


def wait_for_cause(socket, cause, *arguments, where=lambda one: True):
    """Asks until something is stuck for that cause; that one."""
    seen = []

    def there():
        seen[:] = hang(socket, *(arguments or ("--older-than", "200ms")))
        return any(one["cause"] == cause and where(one) for one in seen)

    try:
        support.wait_until(there, cause)
    except AssertionError as error:
        raise AssertionError(f"{error}; seen: {json.dumps(seen, indent=1)}") from error
    return next(one for one in seen if one["cause"] == cause and where(one))


def numbers(ranks):
    return [one["rank"] for one in ranks]
