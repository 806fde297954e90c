"""Three nodes and two aggregators, each a daemon of its own: sums through them, and what their loss does."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

from two_nodes_test import Node, free_ports, support
import shunt

NODES, AGGREGATORS = "abc", "xy"
# Node of each rank: uneven, and not in order.
PLACES = "abbcab"
WORLD = len(PLACES)
REDUCED = {
    "sum": lambda all_of: sum(all_of),
    "prod": lambda all_of: np.prod(all_of, axis=0),
    "min": lambda all_of: np.min(all_of, axis=0),
    "max": lambda all_of: np.max(all_of, axis=0),
    "avg": lambda all_of: sum(all_of) / len(all_of),
}


class Daemons:
    """All that have met one another; `nodes` by name."""

    def __init__(self, aggregators=AGGREGATORS):
        self.directory = tempfile.TemporaryDirectory(prefix="shunt-aggregated-")
        names = NODES + aggregators
        ports = dict(zip(names, free_ports(len(names))))
        self.nodes = {
            name: Node(self.directory.name, name, ports, "node" if name in NODES else "aggregator") for name in names
        }
        try:
            for node in self.nodes.values():
                support.wait_until(
                    lambda node=node: node.log().count("node connected") >= len(names) - 1, "the daemons to meet")
                support.wait_until(lambda node=node: os.path.exists(node.socket + ".lease"), "the daemon to listen")
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name):
        return self.nodes[name]

    def close(self):
        for node in self.nodes.values():
            node.process.send_signal(signal.SIGCONT)
            node.stop()
        self.directory.cleanup()

    def ranks(self, body, places=PLACES, name="job", algorithm="aggregated", **options):
        """body(session, comm) for each rank in a thread; its results, or the errors it raised, in rank order."""
        results = [None] * len(places)

        def run(rank):
            try:
                with shunt.connect(self.nodes[places[rank]].socket) as session:
                    comm = session.join(name, rank, len(places), timeout=support.PATIENCE, algorithm=algorithm, **options)
                    results[rank] = body(session, comm)
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

    def forgotten(self, name):
        """Waits until that aggregator adds for nobody."""
        support.wait_until(
            lambda: self.nodes[name].log().count("adds no more for") == self.nodes[name].log().count("adds for") > 0,
            f"aggregator {name} to forget")

    def freezes(self, names=NODES):
        """Waits until those nodes have noticed the loss of an aggregator."""
        for name in names:
            support.wait_until(
                lambda name=name: "no aggregators any more" in self.nodes[name].log(), f"node {name} to notice")


def right(x, value=WORLD * (WORLD + 1) / 2):
    return bool((x == value).all())


class Sums(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemons = Daemons()
        cls.addClassCleanup(cls.daemons.close)

    def test_every_type_and_reduction_in_place_and_not(self):
        types = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64]

        def body(session, comm):
            for count in (1, 3001):
                for dtype in types:
                    inputs = [np.arange(count) % 3 + rank % 3 for rank in range(WORLD)]
                    for op, combined in REDUCED.items():
                        if op == "avg" and not issubclass(dtype, np.floating):
                            continue
                        expected = np.asarray(combined(inputs), np.float64).astype(dtype)
                        x = session.array(inputs[comm.rank].astype(dtype))
                        out = session.empty(count, dtype)
                        comm.all_reduce(x, op, out=out)
                        comm.all_reduce(x, op)
                        for got in (x, out):
                            if op == "avg":
                                np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=2e-3)
                            else:
                                np.testing.assert_array_equal(got, expected, f"{dtype} {op} {count}")
                x = session.array(np.ones(count, np.float32))
                comm.all_reduce(x, "premul_sum", scalar=comm.rank + 1)
                self.assertTrue(right(x))

        self.daemons.all_well(body, name="types")

    def test_large_sums_and_other_calls_in_turn(self):
        def body(session, comm):
            x, out = session.empty(3_000_001, np.float32), session.empty(3_000_001, np.float32)
            for turn in range(3):
                x[:] = comm.rank + 1
                comm.all_reduce(x, out=out)
                self.assertTrue(right(out))
                comm.all_reduce(x)
                self.assertTrue(right(x))
                gathered = comm.all_gather(np.full(10, comm.rank, np.int32))
                self.assertTrue((gathered.reshape(WORLD, 10) == np.arange(WORLD)[:, None]).all())
                comm.broadcast(x, root=turn)
            comm.barrier()

        self.daemons.all_well(body, name="large")

    def test_results_have_the_same_bits_on_every_rank_and_run(self):
        def body(session, comm):
            x = np.random.default_rng(comm.rank).standard_normal(700_000).astype(np.float32)
            comm.all_reduce(x)
            return x.tobytes()

        first = self.daemons.ranks(body, name="bits")
        self.assertEqual(len(set(first)), 1)
        self.assertEqual(self.daemons.ranks(body, name="bits"), first)

    def test_calls_that_differ_end_with_both_shown(self):
        def body(session, comm):
            x = session.array(np.ones(2000 if PLACES[comm.rank] == "a" else 2001, np.float32))
            comm.all_reduce(x)

        for rank, error in enumerate(self.daemons.ranks(body, name="differ")):
            self.assertIsInstance(error, shunt.FailedPrecondition, f"rank {rank}: {error!r}")
            self.assertIn("float32 sum count 2000", str(error))
            self.assertIn("float32 sum count 2001", str(error))

    def test_another_operation_on_one_node_is_told(self):
        def body(session, comm):
            x = session.array(np.ones(2000, np.float32))
            if PLACES[comm.rank] == "c":
                comm.all_gather(x)
            else:
                comm.all_reduce(x)

        for rank, error in enumerate(self.daemons.ranks(body, name="other")):
            self.assertIsInstance(error, shunt.FailedPrecondition, f"rank {rank}: {error!r}")
            self.assertIn("all_gather", str(error))

    def test_explain_lists_it_where_the_communicator_has_aggregators(self):
        shuntctl = support.BUILD / "bin" / "shuntctl"
        explained = {}

        def body(session, comm):
            comm.barrier()
            if comm.rank == 0:
                done = subprocess.run(
                    [shuntctl, "--socket", self.daemons["a"].socket, "explain", "all_reduce", "--communicator", comm.name,
                     "--bytes", "16M", "--json"], capture_output=True, text=True)
                explained[comm.name] = done.stdout + done.stderr
            comm.barrier()

        self.daemons.all_well(body, name="with", algorithm=None)
        self.daemons.all_well(body, name="without", algorithm="ring")
        self.daemons.all_well(body, name="fixed", algorithm=None, deterministic=True)
        self.assertIn("aggregated", explained["with"])
        self.assertNotIn("aggregated", explained["without"])
        self.assertNotIn("aggregated", explained["fixed"])

    def test_deterministic_results_are_refused_in_words(self):
        for rank, error in enumerate(self.daemons.ranks(lambda session, comm: None, deterministic=True)):
            self.assertIsInstance(error, shunt.InvalidArgument, f"rank {rank}: {error!r}")
            self.assertIn('algorithm "aggregated" with deterministic results', str(error))

    def status(self, **popen):
        done = subprocess.run(
            [support.BUILD / "bin" / "shuntctl", "--socket", self.daemons["a"].socket, "status", "--json"],
            capture_output=True, text=True, check=True, **popen)
        return json.loads(done.stdout)

    def test_shuntctl_shows_who_aggregates(self):
        roles = {node["name"]: node["role"] for node in self.status()["cluster"]["nodes"]}
        self.assertEqual(roles, {"b": "node", "c": "node", "x": "aggregator", "y": "aggregator"})

    def test_another_user_sees_nothing_of_the_other_nodes(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to become another user")
        os.chmod(self.daemons.directory.name, 0o711)
        os.chmod(self.daemons["a"].socket, 0o666)
        status = self.status(user=65534)
        self.assertEqual(status["pid"], self.daemons["a"].process.pid)
        self.assertNotIn("cluster", status)

    def test_an_aggregator_takes_no_ranks(self):
        with shunt.connect(self.daemons["x"].socket) as session:
            with self.assertRaisesRegex(shunt.FailedPrecondition, "node x is an aggregator"):
                session.join("mine", 0, 1)


class Losses(unittest.TestCase):
    def setUp(self):
        self.daemons = Daemons()
        self.addCleanup(self.daemons.close)

    def test_one_that_is_lost_while_a_rank_has_not_called_costs_no_result(self):
        killed = threading.Event()
        begun = threading.Barrier(WORLD - 1)

        def body(session, comm):
            x, out = session.array(np.full(1_000_000, comm.rank + 1.0)), session.empty(1_000_000, np.float64)
            comm.all_reduce(x, out=out)
            self.assertTrue(right(out))
            if PLACES[comm.rank] == "c":
                killed.wait(support.PATIENCE)
                comm.all_reduce(x, out=out)
            else:
                out[:] = 0
                pending = comm.all_reduce(x, out=out, async_op=True)
                if begun.wait() == 0:
                    self.daemons["y"].process.kill()
                    self.daemons.freezes()
                    killed.set()
                pending.wait(support.PATIENCE)
            self.assertTrue(right(out))
            comm.all_reduce(x)
            self.assertTrue(right(x))
            gathered = comm.all_gather(np.full(10, comm.rank, np.int32))
            self.assertTrue((gathered.reshape(WORLD, 10) == np.arange(WORLD)[:, None]).all())

        self.daemons.all_well(body)

        # Others that come later use the one that is left.
        def later(session, comm):
            x = session.array(np.full(1_000_000, comm.rank + 1.0))
            comm.all_reduce(x)
            self.assertTrue(right(x))

        self.daemons.all_well(later, name="later")
        self.daemons.forgotten("x")

    def cut(self, in_place):
        """One aggregator is killed as soon as a rank has the first of a large sum. What the ranks got."""
        count = 10_000_000

        def body(session, comm):
            x = session.array(np.full(count, comm.rank + 1.0, np.float32))
            out = x if in_place else session.array(np.zeros(count, np.float32))
            comm.barrier()
            pending = comm.all_reduce(x, out=None if in_place else out, async_op=True)
            if comm.rank == 0:
                while out[0] != WORLD * (WORLD + 1) / 2:
                    pass  # the rest is not far behind
                self.daemons["y"].process.kill()
            pending.wait(support.PATIENCE)
            self.assertTrue(right(out))
            comm.all_reduce(out, "avg")
            self.assertTrue(right(out))

        return self.daemons.ranks(body)

    def test_one_that_is_lost_in_the_middle_costs_no_result(self):
        self.assertEqual(self.cut(in_place=False), [None] * WORLD)
        for name in NODES:
            self.assertIn("run again without aggregators", self.daemons[name].log())

    def test_in_place_the_loss_in_the_middle_is_an_error_on_every_rank(self):
        for rank, error in enumerate(self.cut(in_place=True)):
            self.assertIsInstance(error, shunt.Unavailable, f"rank {rank}: {error!r}")
            self.assertIn("aggregator y is lost", str(error))
            self.assertIn("all_reduce #2", str(error))
            self.assertIn("inputs were overwritten already", str(error))

    def test_one_that_leaves_while_nothing_runs_goes_unnoticed(self):
        def body(session, comm):
            x = session.array(np.full(100_000, comm.rank + 1.0))
            out = session.empty(100_000, np.float64)
            comm.all_reduce(x, out=out)
            self.assertTrue(right(out))
            comm.barrier()
            if comm.rank == 0:
                self.daemons["x"].stop()
                self.daemons.freezes()
            comm.barrier()
            for _ in range(3):
                comm.all_reduce(x, out=out)
                self.assertTrue(right(out))

        self.daemons.all_well(body)

    def test_a_node_that_dies_beside_an_aggregator_is_named(self):
        called = threading.Barrier(WORLD)

        def body(session, comm):
            x = session.array(np.ones(1_000_000))
            comm.barrier()
            if called.wait() == 0:
                self.daemons["y"].process.kill()
                self.daemons["c"].process.kill()
            comm.all_reduce(x)

        for rank, error in enumerate(self.daemons.ranks(body)):
            if PLACES[rank] == "c":
                continue
            self.assertIsInstance(error, shunt.Unavailable, f"rank {rank}: {error!r}")
            self.assertIn("node c", str(error))
        self.daemons.forgotten("x")


class Without(unittest.TestCase):
    def test_aggregated_is_refused_in_words_where_nobody_aggregates(self):
        daemons = Daemons(aggregators="")
        self.addCleanup(daemons.close)
        for rank, error in enumerate(daemons.ranks(lambda session, comm: None)):
            self.assertIsInstance(error, shunt.FailedPrecondition, f"rank {rank}: {error!r}")
            self.assertIn('algorithm "aggregated" needs an aggregator', str(error))


if __name__ == "__main__":
    support.main()
