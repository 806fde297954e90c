"""Payload between agents of two daemons: right bytes, each transfer ended once, in words if it failed."""

import os
import subprocess
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "daemon")]

from harness import *  # noqa: E402
from transfers_test import BLOCK, Agent, ids, strided, t  # noqa: E402
from transfers_two_nodes_test import Node, members  # noqa: E402
import grpc  # noqa: E402
import numpy  # noqa: E402


class Moved(unittest.TestCase):
    refused = DaemonTest.refused
    assert_code = DaemonTest.assert_code

    @classmethod
    def setUpClass(cls):
        cls.members = members("ab")
        cls.nodes = {name: Node(name, cls.members) for name in "ab"}
        cls.nodes["a"].met("b")
        cls.nodes["b"].met("a")

    @classmethod
    def tearDownClass(cls):
        for node in cls.nodes.values():
            status = node.stop()
            assert status == 0, f"exit status {status}"

    def setUp(self):
        self.names = iter(f"{self._testMethodName}-{i}" for i in range(100))
        self.random = numpy.random.default_rng(5)

    def tearDown(self):
        for node in self.nodes.values():
            self.assertIsNone(node.process.poll(), f"node {node.name} died: " + node.log())

    def session_on(self, node, name="test"):
        session = plain_grpc.Session(api, self.nodes[node].socket, name)
        self.addCleanup(session.channel.close)
        self.addCleanup(session.lease.socket.close)
        return session

    def agent(self, node, size=64 * BLOCK):
        name = next(self.names)
        return Agent(self, name, size, session=self.session_on(node, name))

    def pair(self, size=64 * BLOCK):
        a, b = self.agent("a", size), self.agent("b", size)
        a.memory[:] = self.random.integers(0, 256, a.memory.size, dtype=numpy.uint8)
        a.publish(sets=a.blocks(size // BLOCK))
        remote = b.fetch(a.name, access=t.SECTION_ACCESS_READ_WRITE)
        self.assertEqual(remote.node, "a")
        return a, b, remote.list.list_id, b.prepare(b.blocks(size // BLOCK)).list_id

    def test_a_pull_moves_named_blocks_and_nothing_else(self):
        a, b, remote, local = self.pair()
        here, there = [5, 0, 63], [7, 62, 1]
        report = b.move(local, remote, ids(here), ids(there), notify=True, notification=b"done")
        self.assertEqual((report.bytes, report.route), (3 * BLOCK, "pull"))
        expected = numpy.zeros_like(b.memory).reshape(64, BLOCK)
        expected[here] = a.memory.reshape(64, BLOCK)[there]
        self.assertTrue((b.memory.reshape(64, BLOCK) == expected).all())
        taken = a.take(wait_ms=5000).notifications
        self.assertEqual([(getattr(n, "from"), n.payload) for n in taken], [(b.name + "@b", b"done")])

    def test_a_push_moves_the_other_way(self):
        a, b, remote, local = self.pair()
        before = a.memory.copy().reshape(64, BLOCK)
        b.memory[:] = self.random.integers(0, 256, b.memory.size, dtype=numpy.uint8)
        runs = dict(runs=t.PieceRuns(runs=[t.PieceRun(first=3, count=4, step=5)]))
        report = b.move(local, remote, ids([1, 2, 3, 4]), runs, push=True)
        self.assertEqual(report.route, "push")
        before[[3, 8, 13, 18]] = b.memory.reshape(64, BLOCK)[[1, 2, 3, 4]]
        self.assertTrue((a.memory.reshape(64, BLOCK) == before).all())

    def test_large_transfers_are_whole_in_every_class_and_both_ways_at_once(self):
        size = 32 << 20
        a, b, remote, local = self.pair(size)
        half = size // BLOCK // 2
        b.memory[size // 2 :] = self.random.integers(0, 256, size // 2, dtype=numpy.uint8)
        for transfer_class in range(3):
            b.memory[: size // 2] = 0
            order = self.random.permutation(half)
            pull = b.post(local, remote, ids(order), ids(range(half)), transfer_class=transfer_class)
            push = b.post(
                local, remote, ids(range(half, 2 * half)), ids(order + half), push=True, transfer_class=transfer_class
            )
            b.wait(pull)
            b.wait(push)
            mine, theirs = b.memory.reshape(-1, BLOCK), a.memory.reshape(-1, BLOCK)
            self.assertTrue((mine[order] == theirs[:half]).all())
            self.assertTrue((theirs[order + half] == mine[half:]).all())

    def test_notifications_come_after_the_data_and_once(self):
        a, b, remote, local = self.pair(4 << 20)
        got = []

        def receive():
            while len(got) < 20:
                for n in a.take(wait_ms=10_000).notifications:
                    index = int(n.payload)
                    got.append(index)
                    assert a.memory[(index + 1) * (128 << 10) - 1] == index + 1, index

        thread = threading.Thread(target=receive)
        thread.start()
        transfers = []
        for index in range(20):
            b.memory[index * (128 << 10) : (index + 1) * (128 << 10)] = index + 1
            run = dict(runs=t.PieceRuns(runs=[t.PieceRun(first=index * 32, count=32)]))
            transfers.append(b.post(local, remote, run, run, push=True, notification=str(index).encode()))
        thread.join(timeout=30)
        self.assertEqual(sorted(got), list(range(20)))
        for transfer in transfers:
            b.wait(transfer)

    def test_what_the_other_node_refuses_is_the_outcome_in_words(self):
        a, b, remote, local = self.pair()
        b.memory[:] = 3
        self.assertEqual(a.publish(sets=a.blocks(32)).version, 2)
        with self.refused(FAILED_PRECONDITION, "node a", '"kv"', "version 2 now", "version 1"):
            b.move(local, remote)
        a.publish()
        again = b.fetch(a.name, access=t.SECTION_ACCESS_READ_WRITE).list.list_id
        a.session.memory.FreeRegion(api.memory.FreeRegionRequest(token=a.session.token, region_id=a.region))
        with self.refused(NOT_FOUND, "node a", f"region {a.region}", "has freed it"):
            b.move(local, again)
        with self.refused(NOT_FOUND, f"region {a.region}"):
            b.move(local, again, push=True)
        a.ask("WithdrawSection", "WithdrawSection", name="kv")
        with self.refused(NOT_FOUND, "node a", "no section"):
            b.move(local, again)
        self.assertTrue((b.memory == 3).all())

    def test_an_inbox_that_is_full_is_an_error_and_nothing_moves(self):
        a, b, remote, local = self.pair()
        for _ in range(1024):
            b.ask("Notify", "Notify", agent=a.name, payload=b"x")
        before = a.memory.copy()
        with self.refused(RESOURCE_EXHAUSTED, a.name, 1024):
            b.move(local, remote, push=True, notify=True)
        self.assertTrue((a.memory == before).all())

    def test_a_cancelled_or_late_transfer_ends_so_or_is_whole(self):
        a, b, remote, local = self.pair(64 << 20)
        for fields in (dict(), dict(timeout_ms=1)):
            transfers = [b.post(local, remote, push=False, **fields) for _ in range(8)]
            if not fields:
                for transfer in transfers:
                    b.ask("CancelTransfer", "CancelTransfer", transfer_id=transfer)
            ended = 0
            for transfer in transfers:
                try:
                    b.wait(transfer)
                except grpc.RpcError as error:
                    self.assert_code(error, DEADLINE_EXCEEDED if fields else CANCELLED, f"transfer {transfer}")
                    ended += 1
            self.assertGreater(ended, 0)
        b.move(local, remote)
        self.assertTrue((a.memory == b.memory).all())

    CHILD = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import harness, transfers_test as tt\n"
        "class T:\n"
        "    def session(self, name): return harness.plain_grpc.Session(harness.api, sys.argv[3], name)\n"
        "a = tt.Agent(T(), 'mortal', 256 << 20); a.memory[:] = 1; a.publish(sets=a.blocks(65536))\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )

    def test_an_agent_that_is_killed_ends_transfers_with_it(self):
        child = subprocess.Popen(
            [sys.executable, "-c", self.CHILD, HERE, os.path.join(HERE, "..", "daemon"), self.nodes["a"].socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.assertEqual(child.stdout.readline(), "ready\n")
            b = self.agent("b", 256 << 20)
            local = b.prepare(b.blocks(65536)).list_id
            remote = b.fetch("mortal").list.list_id
            transfers = [b.post(local, remote) for _ in range(10)]
            child.kill()
            child.wait()
            failed = 0
            for transfer in transfers:
                try:
                    b.wait(transfer)
                except grpc.RpcError as error:
                    self.assertIn(error.code().value[0], (UNAVAILABLE, NOT_FOUND), error.details())
                    self.assertIn("node a", error.details())
                    failed += 1
            self.assertGreater(failed, 0)
        finally:
            child.kill()
            child.stdin.close()
            child.stdout.close()
            child.wait()


class Lost(unittest.TestCase):
    refused = DaemonTest.refused
    assert_code = DaemonTest.assert_code

    def test_a_killed_daemon_ends_transfers_with_its_node(self):
        places = members("ab")
        nodes = {name: Node(name, places) for name in "ab"}
        self.addCleanup(lambda: [node.stop() for node in nodes.values()])
        nodes["a"].met("b")
        nodes["b"].met("a")
        sessions = {name: plain_grpc.Session(api, nodes[name].socket, name) for name in "ab"}
        a, b = (Agent(self, "agent-" + name, 256 << 20, session=sessions[name]) for name in "ab")
        a.publish(sets=a.blocks(65536))
        local = b.prepare(b.blocks(65536)).list_id
        remote = b.fetch("agent-a", access=t.SECTION_ACCESS_READ_WRITE).list.list_id
        transfers = [b.post(local, remote, push=i % 2 == 1) for i in range(6)]
        nodes["a"].process.kill()
        nodes["a"].process.wait()
        failed = 0
        for transfer in transfers:
            try:
                b.wait(transfer)
            except grpc.RpcError as error:
                self.assert_code(error, UNAVAILABLE, "node a", "lost")
                failed += 1
        self.assertGreater(failed, 0)
        with self.refused(UNAVAILABLE, "node a"):
            b.move(local, remote)
        for session in sessions.values():
            session.channel.close()
            session.lease.socket.close()


if __name__ == "__main__":
    unittest.main()
