"""Ranks of two daemons: every one talks to its own node's daemon only, and hears of the others all the same."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
import support  # noqa: E402  (finds the package)
import shunt  # noqa: E402
from loopback import free_ports  # noqa: E402

# UCX's carriers, if payload is to go over the RDMA rail.
RDMA_TRANSPORTS = os.environ.get("SHUNT_TEST_RDMA_TRANSPORTS", "")


class Node:
    def __init__(self, directory, name, ports, role="node"):
        self.name = name
        self.socket = os.path.join(directory, name + ".sock")
        self.log_path = os.path.join(directory, name + ".log")
        members = ", ".join(f'"{n}=127.0.0.1:{p}"' for n, p in ports.items())
        config = os.path.join(directory, name + ".toml")
        with open(config, "w") as file:
            file.write(
                f'socket = "{self.socket}"\n[cluster]\nname = "test"\nnode = "{name}"\n'
                f'listen = "127.0.0.1:{ports[name]}"\nmembership = "static"\nmembers = [{members}]\nrole = "{role}"\n'
            )
            if RDMA_TRANSPORTS:
                file.write(f'transport = "rdma"\nrdma_transports = "{RDMA_TRANSPORTS}"\n')
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([os.environ["SHUNTD"], "--config", config], stderr=log)

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=30)


# Node of each rank: uneven, and not in order.
PLACES = "abbab"
WORLD = len(PLACES)

MEMBER = """
import sys, numpy, shunt
session = shunt.connect(sys.argv[1])
comm = session.join(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
comm.barrier()
print("ready", flush=True)
sys.stdin.readline()
"""


class TwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="shunt-two-nodes-")
        ports = dict(zip("ab", free_ports(2)))
        cls.nodes = {name: Node(cls.directory.name, name, ports) for name in "ab"}
        for node in cls.nodes.values():
            support.wait_until(lambda node=node: "node connected" in node.log(), "the nodes to meet")
            support.wait_until(lambda node=node: os.path.exists(node.socket), "the daemon to listen")

    @classmethod
    def tearDownClass(cls):
        for node in cls.nodes.values():
            node.stop()
        cls.directory.cleanup()

    def ranks(self, body, places=PLACES, name=None):
        """body(session, comm) for each rank in a thread; its results, or the errors it raised, in rank order."""
        name = name or self.id()
        results = [None] * len(places)

        def run(rank):
            try:
                with shunt.connect(self.nodes[places[rank]].socket) as session:
                    comm = session.join(name, rank, len(places), timeout=support.PATIENCE)
                    results[rank] = body(session, comm)
                    comm.leave()
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(places))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def all_well(self, body, **ranks):
        for rank, result in enumerate(self.ranks(body, **ranks)):
            if isinstance(result, Exception):
                raise AssertionError(f"rank {rank}: {result!r}")

    def test_every_collective_small_and_large_in_regions_and_out(self):
        def body(session, comm):
            rank = comm.rank
            for count in (1, 3000, 300_000):
                for make in (np.empty, session.empty):
                    x = make(count, np.float32)
                    x[:] = rank + 1
                    comm.all_reduce(x)
                    self.assertTrue((x == WORLD * (WORLD + 1) / 2).all())
                    x[:] = rank
                    comm.broadcast(x, root=3)
                    self.assertTrue((x == 3).all())
                    x[:] = rank
                    gathered = comm.all_gather(x)
                    self.assertTrue((gathered.reshape(WORLD, count) == np.arange(WORLD)[:, None]).all())
                    parts = np.repeat(np.arange(WORLD, dtype=np.int32), count)
                    part = comm.reduce_scatter(parts)
                    self.assertTrue((part == WORLD * rank).all())
                    mine = np.repeat(np.arange(WORLD, dtype=np.int32) + 10 * rank, count)
                    others = comm.all_to_all(mine)
                    self.assertTrue((others.reshape(WORLD, count) == (10 * np.arange(WORLD) + rank)[:, None]).all())
                    x[:] = rank + 1
                    comm.reduce(x, root=1)
                    if rank == 1:
                        self.assertTrue((x == WORLD * (WORLD + 1) / 2).all())
            comm.barrier()

        self.all_well(body)

    def test_sends_and_receives_between_all_pairs(self):
        def body(session, comm):
            rank = comm.rank
            for count in (1, 200_000):
                for distance in range(WORLD):
                    out = np.full(count, rank, np.int32)
                    came = np.empty(count, np.int32)
                    with comm.group():
                        comm.send(out, (rank + distance) % WORLD)
                        comm.recv(came, (rank - distance) % WORLD)
                    self.assertTrue((came == (rank - distance) % WORLD).all())

        self.all_well(body)

    def test_asynchronous_calls_take_effect_in_order(self):
        def body(session, comm):
            x = session.empty(50_000, np.int64)
            x[:] = 1
            handles = [comm.all_reduce(x, async_op=True) for _ in range(6)]
            for handle in handles:
                handle.wait()
            self.assertTrue((x == WORLD**6).all())

        self.all_well(body)

    def test_results_have_the_same_bits_on_every_rank_and_run(self):
        def body(session, comm):
            x = np.random.default_rng(comm.rank).standard_normal(70_000).astype(np.float32)
            comm.all_reduce(x)
            return x.tobytes()

        first = self.ranks(body, name="bits")
        self.assertEqual(len(set(first)), 1)
        self.assertEqual(self.ranks(body, name="bits"), first)

    def failed(self, errors, kind, *words, but=()):
        for rank, error in enumerate(errors):
            if rank in but:
                continue
            self.assertIsInstance(error, kind, f"rank {rank}: {error!r}")
            for word in words:
                self.assertIn(word, str(error))

    def test_calls_that_differ_between_nodes_end_with_both_shown(self):
        def body(session, comm):
            if PLACES[comm.rank] == "a":
                comm.all_reduce(np.ones(10, np.float32))
            else:
                comm.all_gather(np.ones(10, np.float32))

        self.failed(self.ranks(body), shunt.FailedPrecondition, "all_reduce #1", "all_gather #1", "rank ")

    def test_two_roots_do_not_both_succeed(self):
        def body(session, comm):
            comm.broadcast(np.ones(10, np.float32), root=comm.rank)

        self.failed(self.ranks(body, places="ab"), shunt.FailedPrecondition, "root 0", "root 1")

    def test_a_rank_of_another_node_that_does_not_call_is_named(self):
        late = threading.Event()

        def body(session, comm):
            comm.barrier()
            if comm.rank == 1:
                late.wait(support.PATIENCE)
                return
            try:
                comm.all_reduce(np.ones(10, np.float32), timeout=0.5)
            finally:
                if comm.rank == 0:
                    late.set()

        self.failed(self.ranks(body, places="ab"), shunt.DeadlineExceeded, "rank 1 (pid", "on node b", "barrier #1",
                    but=(1,))

    def test_an_abort_reaches_the_ranks_of_other_nodes(self):
        def body(session, comm):
            comm.barrier()
            if comm.rank == 1:
                comm.abort("the loss is not a number")
            comm.all_reduce(np.ones(10, np.float32))

        self.failed(self.ranks(body), shunt.Aborted, "rank 1", "the loss is not a number")

    def test_a_rank_that_dies_is_named_on_the_other_node(self):
        with support.python_process(MEMBER, self.nodes["b"].socket, "dying", "1", "2") as process:
            with shunt.connect(self.nodes["a"].socket) as session:
                comm = session.join("dying", 0, 2)
                comm.barrier()
                self.assertEqual(process.stdout.readline(), "ready\n")
                waiting = comm.all_reduce(session.array(np.ones(10)), async_op=True)
                os.kill(process.pid, signal.SIGKILL)
                began = time.monotonic()
                with self.assertRaisesRegex(shunt.Unavailable, rf"rank 1 \(pid {process.pid}\) died"):
                    waiting.wait(support.PATIENCE)
                print(f"named {time.monotonic() - began:.3f} s after the kill")

    def test_a_join_names_the_ranks_that_are_missing_anywhere(self):
        with shunt.connect(self.nodes["a"].socket) as session:
            with self.assertRaisesRegex(shunt.DeadlineExceeded, "missing rank 1"):
                session.join("lonely", 0, 2, timeout=0.5)


class Loss(unittest.TestCase):
    def test_a_daemon_that_is_killed_ends_what_its_node_takes_part_in(self):
        with tempfile.TemporaryDirectory(prefix="shunt-two-nodes-") as directory:
            ports = dict(zip("ab", free_ports(2)))
            nodes = {name: Node(directory, name, ports) for name in "ab"}
            self.addCleanup(lambda: [node.stop() for node in nodes.values()])
            for node in nodes.values():
                support.wait_until(lambda node=node: "node connected" in node.log(), "the nodes to meet")
                support.wait_until(lambda node=node: os.path.exists(node.socket), "the daemon to listen")
            with support.python_process(MEMBER, nodes["b"].socket, "lost", "1", "2") as process:
                with shunt.connect(nodes["a"].socket) as session:
                    comm = session.join("lost", 0, 2)
                    comm.barrier()
                    self.assertEqual(process.stdout.readline(), "ready\n")
                    waiting = comm.all_reduce(session.array(np.ones(10)), async_op=True)
                    nodes["b"].process.kill()
                    began = time.monotonic()
                    with self.assertRaisesRegex(shunt.Unavailable, "node b"):
                        waiting.wait(support.PATIENCE)
                    print(f"named {time.monotonic() - began:.3f} s after the kill")


if __name__ == "__main__":
    support.main()
