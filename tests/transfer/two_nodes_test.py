"""Transfers between the agents of two nodes, through libshunt: the same as on one, but for the route."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for directory in ("cluster", "python"):
    sys.path.insert(0, str(ROOT / "tests" / directory))

import loopback  # noqa: E402
import support  # noqa: E402

import numpy as np  # noqa: E402
import shunt  # noqa: E402

BLOCKS, WORDS = 128, 2048


class TwoNodes(unittest.TestCase):
    def setUp(self):
        self.daemons = self.enterContext(loopback.static_cluster("ab"))
        self.there = self.connect("a")
        self.here = self.connect("b")
        self.prefill = self.there.agent("prefill")
        self.decode = self.here.agent("decode")
        self.source = self.there.array(np.arange(BLOCKS * WORDS, dtype=np.uint32).reshape(BLOCKS, WORDS))
        self.target = self.here.zeros((BLOCKS, WORDS), np.uint32)
        self.prefill.publish("kv", self.source)
        self.own = self.decode.publish("kv", self.target)

    def connect(self, node):
        session = shunt.connect(socket=self.daemons[node].socket, name=node)
        self.addCleanup(session.close)
        return session

    def assert_notified(self, payload):
        self.assertEqual(self.prefill.notifications(support.PATIENCE), [shunt.Notification("decode@b", payload)])

    def test_notifications_alone_name_the_senders_node(self):
        self.here.notify("prefill@a", b"alone")
        self.assertEqual(self.prefill.notifications(support.PATIENCE), [shunt.Notification("decode@b", b"alone")])

    def test_permuted_blocks_are_pulled_and_pushed_with_a_notification_each(self):
        theirs = self.here.fetch("prefill@a", "kv", access="read_write")
        self.assertEqual(theirs.node, "a")
        permuted = np.random.default_rng(3).permutation(BLOCKS).astype(np.uint32)
        pull = self.here.pull(self.own.ids(permuted[:50]), theirs.ids(permuted[50:100]), notify=b"pulled")
        pull.wait(support.PATIENCE)
        expected = np.zeros_like(self.target)
        expected[permuted[:50]] = self.source[permuted[50:100]]
        np.testing.assert_array_equal(self.target, expected)
        report = pull.report()
        self.assertEqual((report.bytes, report.route), (50 * WORDS * 4, "pull"))
        self.assert_notified(b"pulled")

        before = self.source.copy()
        push = self.here.push(self.own.ids(permuted[:50]), theirs.runs([(0, 50)]), notify=b"pushed")
        self.assert_notified(b"pushed")
        before[:50] = expected[permuted[:50]]
        np.testing.assert_array_equal(self.source, before)
        push.wait(support.PATIENCE)
        self.assertEqual(push.report().route, "push")
        self.assertEqual(self.prefill.notifications(), [])

    def test_what_is_refused_is_refused_in_the_same_words(self):
        theirs = self.here.fetch("prefill", "kv")
        for error, words, mine, others in (
            (shunt.InvalidArgument, "8192 bytes.*16384", [1, 2], [1]),
            (shunt.InvalidArgument, "written twice", [1, 1], [1, 2]),
            (shunt.OutOfRange, "128", [1], [BLOCKS]),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                self.here.pull(self.own.ids(mine), theirs.ids(others)).wait(support.PATIENCE)
        self.prefill.publish("kv", self.source[:4])
        with self.assertRaisesRegex(shunt.FailedPrecondition, "kv.*fetch"):
            self.here.pull(self.own.ids([1]), theirs.ids([1])).wait(support.PATIENCE)
        self.assertFalse(self.target.any())
        with self.assertRaisesRegex(shunt.NotFound, "nobody"):
            self.here.fetch("nobody@a", "kv")


class Example(unittest.TestCase):
    def test_the_example_hands_over_between_nodes(self):
        daemons = self.enterContext(loopback.static_cluster("ab"))
        script = str(ROOT / "examples" / "kv_handoff" / "kv_handoff.py")
        environment = {**os.environ, "PYTHONPATH": str(support.PACKAGE), **support.sanitizer_environment()}

        def start(role, node):
            return subprocess.Popen(
                [sys.executable, "-B", script, role], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**environment, "SHUNT_SOCKET": daemons[node].socket},
            )

        decode = start("decode", "b")
        self.assertEqual(decode.stdout.readline(), "decode: waits\n")
        prefill = start("prefill", "a")
        printed = prefill.communicate(timeout=support.PATIENCE)[0] + decode.communicate(timeout=support.PATIENCE)[0]
        self.assertEqual((prefill.returncode, decode.returncode), (0, 0), printed)
        self.assertRegex(printed, "decode@b has request-7")
        self.assertIn("1024 KiB by pull", printed)
        self.assertIn("as they were sent", printed)


if __name__ == "__main__":
    support.main()
