#!/usr/bin/env python3
"""Four nodes with daemons of their own: who leaves, links that break and heal, ranks without libshunt."""
import contextlib
import json
import pathlib
import subprocess
import sys
import threading
import unittest

import numpy as np

import netns

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
import support  # noqa: E402  (finds the package)
import shunt  # noqa: E402


# In a process of its own: the modules made from the protos are named as our package.
PLAIN = """
import sys, tempfile, numpy
sys.path.insert(0, sys.argv[1])
import plain_grpc
count = int(sys.argv[3])
with tempfile.TemporaryDirectory() as directory:
    plain_grpc.generate_protos(directory)
    api = plain_grpc.Api(directory)
    session = plain_grpc.Session(api, sys.argv[2])
    region, memory = session.allocate(8 * count)
    values = numpy.frombuffer(memory, numpy.float32)
    values[:count] = 5
    communicator = session.join("mixed", 1, 3)
    session.all_reduce(communicator, region, 0, 4 * count, count)
    kinds = api.collective
    receive = session.submit(communicator, kinds.OPERATION_KIND_RECV, output=(region, 0), count=count, root=0)
    session.wait(receive)
    send = session.submit(communicator, kinds.OPERATION_KIND_SEND, input=(region, 4 * count), count=count, root=2)
    session.wait(send)
    print("right" if (values[count : 2 * count] == 9).all() and (values[:count] == 7).all() else "wrong")
"""


def met(node, times):
    """True when the daemon has its `times`-th connection for payload."""
    return node.log().count('node connected') >= times


class FourNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = netns.Cluster(nodes=4)
        cls.addClassCleanup(cls.cluster.close)
        cls.daemons = [node.shuntd() for node in cls.cluster.nodes]
        for daemon in cls.daemons:
            support.wait_until(lambda daemon=daemon: met(daemon, 3), "the nodes to meet")

    def ranks(self, places, body, name=None, **options):
        """body(session, comm) for each rank in a thread, on the node that `places` gives; results or errors."""
        name = name or self.id()
        results = [None] * len(places)

        def run(rank):
            try:
                with shunt.connect(self.daemons[places[rank]].socket) as session:
                    comm = session.join(name, rank, len(places), timeout=support.PATIENCE, **options)
                    results[rank] = body(session, comm)
            except Exception as error:
                results[rank] = error

        at_once([lambda rank=rank: run(rank) for rank in range(len(places))])
        return results

    def all_well(self, places, body, name=None, **options):
        for rank, result in enumerate(self.ranks(places, body, name, **options)):
            if isinstance(result, Exception):
                raise AssertionError(f"rank {rank} on node n{places[rank]}: {result!r}")

    def test_worlds_of_every_shape_agree(self):
        for places in ([0, 1], [3, 0, 2], [0, 1, 2, 3], [2, 2, 0, 1, 0, 2, 2], [3, 3, 3, 1, 0, 0, 2, 1]):
            world = len(places)

            def body(session, comm, world=world):
                for count in (1, 1000, 200_003):
                    x = session.empty(count, np.float64)
                    x[:] = np.arange(count) * (comm.rank + 1)
                    comm.all_reduce(x)
                    np.testing.assert_array_equal(x, np.arange(count) * (world * (world + 1) // 2))
                    for root in range(world):
                        x[:] = comm.rank
                        comm.broadcast(x, root=root)
                        self.assertTrue((x == root).all())
                    got = comm.all_to_all(np.repeat(np.arange(world) * 100 + comm.rank, count))
                    want = np.repeat(comm.rank * 100 + np.arange(world), count)
                    np.testing.assert_array_equal(got, want)
                comm.barrier()

            with self.subTest(places=places):
                self.all_well(places, body, name=f"shape {places}")

    def test_many_communicators_at_once_do_not_disturb_each_other(self):
        def one(name):
            def body(session, comm):
                x = session.array(np.full(30_000, comm.rank, np.int32))
                for _ in range(20):
                    x[:] = comm.rank
                    comm.all_reduce(x)
                    self.assertTrue((x == 6).all())

            self.all_well([0, 1, 2, 3], body, name=name)

        at_once([lambda i=i: one(f"side by side {i}") for i in range(4)])

    def test_a_rank_that_has_left_is_named_at_once_by_who_waits_for_it(self):
        def body(session, comm):
            comm.barrier()
            if comm.rank == 2:
                comm.leave()
                return
            comm.all_reduce(np.ones(5, np.float32), timeout=support.PATIENCE)

        results = self.ranks([0, 1, 2, 3], body)
        for rank in (0, 1, 3):
            self.assertIsInstance(results[rank], shunt.Unavailable, repr(results[rank]))
            self.assertRegex(str(results[rank]), r"rank 2 \(pid \d+\) on node n2 has left")
        self.assertIsNone(results[2])

    def test_a_rank_that_leaves_after_its_last_call_fails_nobody(self):
        def body(session, comm):
            for _ in range(30):
                x = np.full(1000, comm.rank, np.int32)
                comm.all_reduce(x)
                self.assertTrue((x == 6).all())
            comm.leave()

        self.all_well([0, 1, 2, 3], body)

    def explain(self, node, *arguments):
        command = [support.BUILD / "bin" / "shuntctl", "explain", *arguments, "--socket", self.daemons[node].socket]
        return subprocess.run(command, capture_output=True, text=True)

    def explained(self, node, *arguments):
        done = self.explain(node, *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_explain_shows_the_same_choice_on_every_node(self):
        seen = []

        def body(session, comm):
            comm.barrier()
            for operation in ("all_reduce", "all_to_all", "broadcast"):
                for size in ("8", "64K", "64M"):
                    seen.append((operation, size, self.explained(comm.rank, operation, "--bytes", size,
                                                                 "--communicator", "explained")))
            comm.barrier()

        self.all_well([0, 1, 2, 3], body, name="explained")
        self.assertEqual(len(seen), 36)
        for operation, size, view in seen:
            same = [v for o, s, v in seen if (o, s) == (operation, size)]
            for other in same:
                self.assertEqual({**other, "communicator_id": 0}, {**view, "communicator_id": 0})
            self.assertEqual([c["chosen"] for c in view["candidates"]].count(True), 1)
            self.assertTrue(view["candidates"][0]["chosen"])
            self.assertEqual((view["nodes"], view["world_size"], view["deterministic"]), (4, 4, False))
            self.assertGreater(view["bytes_per_second"], 0)

    def test_explain_says_what_it_does_not_know(self):
        done = self.explain(0, "all_reduce", "--communicator", "nobody's")
        self.assertEqual(done.returncode, 4)
        self.assertIn("no communicator 'nobody's'", done.stderr)

        def body(session, comm):
            if comm.rank == 0:
                done = self.explain(0, "all_reduc", "--communicator", "known")
                self.assertEqual(done.returncode, 4)
                self.assertRegex(done.stderr, 'operation "all_reduc", expected one of barrier, all_reduce, ')
            comm.barrier()

        self.all_well([0, 1], body, name="known")

    def test_a_wanted_algorithm_is_taken(self):
        def body(session, comm):
            x = np.full(100_000, comm.rank + 1.0)
            comm.all_reduce(x)
            self.assertTrue((x == 6).all())
            view = self.explained(comm.rank, "all_reduce", "--bytes", "8", "--communicator", "wanted")
            self.assertEqual([c["algorithm"] for c in view["candidates"] if c["chosen"]], ["double_tree"])
            comm.barrier()

        self.all_well([0, 1, 2], body, name="wanted", algorithm="double_tree")

    def test_ranks_that_want_different_algorithms_are_told(self):
        errors = at_once([lambda rank=rank, wanted=wanted: self.join_error(rank, "differ", algorithm=wanted)
                          for rank, wanted in ((0, "ring"), (1, "pairwise"))])
        told = [str(error) for error in errors if isinstance(error, shunt.FailedPrecondition)]
        self.assertTrue(told, errors)
        self.assertIn("algorithm ring", told[0])
        self.assertIn("algorithm pairwise", told[0])

    def join_error(self, rank, name, **options):
        with shunt.connect(self.daemons[rank].socket) as session:
            return error_of(lambda: session.join(name, rank, 2, timeout=2, **options))

    def test_an_unknown_algorithm_is_refused_with_the_known_ones(self):
        error = self.join_error(0, "unknown", algorithm="rings")
        self.assertIsInstance(error, shunt.InvalidArgument)
        self.assertIn("double_tree", str(error))

    def test_deterministic_results_depend_on_nothing_measured(self):
        def body(session, comm):
            x = np.random.default_rng(comm.rank).standard_normal(100_000).astype(np.float32)
            comm.all_reduce(x)
            view = self.explained(comm.rank, "all_reduce", "--communicator", "fixed")
            self.assertTrue(view["deterministic"])
            comm.barrier()
            return x.tobytes(), view["latency_ns"], view["bytes_per_second"]

        runs = [self.ranks([0, 1, 2, 3], body, name="fixed", deterministic=True) for _ in range(2)]
        self.assertEqual(len({run for ranks in runs for run in ranks}), 1)

    def test_ranks_without_libshunt_take_part(self):
        count = 70_000

        def rank(number):
            with shunt.connect(self.daemons[number].socket) as session:
                comm = session.join("mixed", number, 3, timeout=support.PATIENCE)
                x = np.full(count, number + 1, np.float32)
                comm.all_reduce(x)
                self.assertTrue((x == 1 + 5 + 3).all())
                if number == 0:
                    comm.send(np.full(count, 7, np.float32), 1)
                else:
                    comm.recv(x, 1)
                    self.assertTrue((x == 9).all())

        plain = [sys.executable, "-c", PLAIN, str(ROOT / "examples"), self.daemons[1].socket, str(count)]
        with subprocess.Popen(plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                at_once([lambda: rank(0), lambda: rank(2)])
            finally:
                output, _ = process.communicate(timeout=support.PATIENCE)
                self.assertEqual(output, "right\n")


class BrokenLinks(unittest.TestCase):
    def test_a_cut_link_is_named_and_serves_again_when_it_heals(self):
        with netns.Cluster(nodes=3) as cluster:
            daemons = [node.shuntd() for node in cluster.nodes]
            for daemon in daemons:
                support.wait_until(lambda daemon=daemon: met(daemon, 2), "the nodes to meet")
            with sessions_at(daemons) as sessions:
                comms = join_all(sessions, "cut")
                apart = join_all(sessions[1:], "apart")
                each = lambda comms, body: at_once([lambda comm=comm: body(comm) for comm in comms])
                each(comms, lambda comm: comm.barrier())
                cluster.partition(0, 1)
                reduce = lambda comm: comm.all_reduce(np.ones(10), timeout=support.PATIENCE)
                errors = each(comms, lambda comm: error_of(lambda: reduce(comm)))
                for error in errors[:2]:  # the third may have got everything that it needs
                    self.assertIsInstance(error, shunt.Unavailable, repr(error))
                self.assertTrue(any("node n1 is lost" in str(e) or "node n0 is lost" in str(e) for e in errors), errors)
                # Others are not touched.
                each(apart, reduce)
                cluster.heal()
                for daemon in daemons[:2]:
                    support.wait_until(lambda daemon=daemon: met(daemon, 3), "the link to serve again")
                each(join_all(sessions, "cut"), reduce)


def at_once(bodies):
    """Runs each in a thread, to the end of all. Their results; raises the first error."""
    results = [None] * len(bodies)
    errors = []

    def run(index):
        try:
            results[index] = bodies[index]()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def error_of(body):
    """What the body raises."""
    try:
        body()
    except shunt.Error as error:
        return error
    return None


@contextlib.contextmanager
def sessions_at(daemons):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(shunt.connect(daemon.socket)) for daemon in daemons]


def join_all(sessions, name):
    size = len(sessions)
    return at_once([lambda rank=rank: sessions[rank].join(name, rank, size, timeout=support.PATIENCE)
                    for rank in range(size)])


if __name__ == "__main__":
    netns.enter_user_namespace()
    support.main()
