"""Agents, sections and transfers, and the example that hands a KV cache over."""

import asyncio
import gc
import itertools
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

import numpy as np
import shunt
import support

BLOCKS, WORDS = 64, 512
NUMBERS = itertools.count()


class Pair:
    """Two agents of the test, each with a cache of BLOCKS rows under "kv"."""

    def __init__(self, test, access="read_write"):
        self.sessions = [shunt.connect(name="a"), shunt.connect(name="b")]
        for session in self.sessions:
            test.addCleanup(session.close)
        self.a, self.b = (s.agent(f"{n}-{next(NUMBERS)}") for s, n in zip(self.sessions, "ab"))
        self.session = self.sessions[1]
        self.source = self.sessions[0].array(np.arange(BLOCKS * WORDS, dtype=np.uint32).reshape(BLOCKS, WORDS))
        self.target = self.session.zeros((BLOCKS, WORDS), np.uint32)
        self.a.publish("kv", self.source, access=access)
        self.own = self.b.publish("kv", self.target)
        self.theirs = self.session.fetch(self.a.name, "kv", "write" if access == "write" else "read")


class Transfers(support.DaemonTest):
    def test_a_pull_puts_the_named_rows_where_they_are_named(self):
        permuted = np.random.default_rng(1).permutation(BLOCKS)
        for dtype in (np.int8, np.int32, np.uint32, np.int64, np.uint64):
            with self.subTest(dtype=dtype):
                p = Pair(self)
                here, there = permuted[:20].astype(dtype), permuted[20:40].astype(dtype)
                transfer = p.session.pull(p.own.ids(here), p.theirs.ids(there))
                self.assertIsNone(transfer.wait(support.PATIENCE))
                expected = np.zeros_like(p.target)
                expected[here] = p.source[there]
                np.testing.assert_array_equal(p.target, expected)

    def test_a_push_and_the_other_forms(self):
        p = Pair(self)
        remote = p.session.fetch(p.a.name, "kv", access="write")
        region = p.sessions[0].region_id(p.source)
        size = WORDS * 4
        before = p.source.copy()
        p.target[...] = 7
        for mine, theirs, rows in (
            (p.own.runs([(3, 2)]), remote.places([(region, 9 * size, size), (region, 1 * size, size)]), (9, 1)),
            (p.own.arrays([p.target[5:7], p.target[8]]), remote.runs([(10, 3, 2)]), (10, 12, 14)),
            (p.own.ids([1]), remote.ids(np.uint64([30]), unit=1, repeats=1, repeat_step=4), (30,)),
        ):
            p.session.push(mine, theirs).wait(support.PATIENCE)
            for row in rows:
                before[row] = 7
            np.testing.assert_array_equal(p.source, before)

    def test_blocks_of_every_layer_are_named_once(self):
        p = Pair(self)
        cache = p.sessions[0].array(np.arange(3 * 8 * 16, dtype=np.float32).reshape(3, 8, 2, 8))
        mine = p.session.zeros((8, 3, 2, 8), np.float32)  # blocks first
        p.a.publish("layers", shunt.Blocks(cache, axes=2))
        remote = p.session.fetch(p.a.name, "layers")
        self.assertEqual((remote.pieces, remote.piece_bytes, remote.bytes, remote.version, remote.node),
                         (24, 64, 24 * 64, 1, ""))
        local = p.session.prepare(shunt.Blocks(np.swapaxes(mine, 0, 1), axes=2))
        p.session.pull(local.ids([0, 5], repeats=3, repeat_step=8), remote.ids([6, 2], repeats=3, repeat_step=8)).wait()
        np.testing.assert_array_equal(mine[0], cache[:, 6])
        np.testing.assert_array_equal(mine[5], cache[:, 2])
        self.assertFalse(mine[[1, 2, 3, 4, 6, 7]].any())

    def test_notifications_come_with_the_data_and_alone(self):
        p = Pair(self)
        p.session.pull(p.own, p.theirs, notify=b"all\0of it", priority="latency").wait(support.PATIENCE)
        self.assertEqual(p.a.notifications(support.PATIENCE), [shunt.Notification(p.b.name, b"all\0of it")])
        self.assertEqual(p.a.notifications(), [])
        begun = time.monotonic()
        self.assertEqual(p.a.notifications(timeout=0.05), [])
        self.assertGreater(time.monotonic() - begun, 0.04)
        self.assertFalse(select.select([p.a], [], [], 0)[0] and p.a.notifications())
        waiter = threading.Timer(0, p.b.notify, (p.a.name, b""))
        waiter.start()
        self.assertEqual(p.a.notifications(timeout=math.inf), [shunt.Notification(p.b.name, b"")])
        waiter.join()
        with self.assertRaisesRegex(shunt.InvalidArgument, "1025 bytes, expected at most 1024"):
            p.session.notify(p.a.name, b"x" * 1025)

    def test_asyncio_awaits_transfers_beside_other_tasks(self):
        p = Pair(self)

        async def work():
            transfers = [p.session.pull(p.own.ids([i]), p.theirs.ids([i])) for i in range(BLOCKS)]
            await asyncio.gather(*transfers)
            with self.assertRaisesRegex(shunt.OutOfRange, "64"):
                await p.session.pull(p.own.ids([BLOCKS]), p.theirs.ids([0]))
            await p.session.pull(p.own, p.theirs)

        asyncio.run(asyncio.wait_for(work(), support.PATIENCE))
        np.testing.assert_array_equal(p.target, p.source)

    def test_a_handle_tells_its_state_and_what_it_did(self):
        p = Pair(self)
        transfer = p.session.pull(p.own, p.theirs)
        self.assertTrue(select.select([transfer], [], [], support.PATIENCE)[0])
        transfer.wait(support.PATIENCE)
        self.assertTrue(transfer.done())
        self.assertIn("done", repr(transfer))
        report = transfer.report()
        self.assertEqual((report.bytes, report.route), (p.source.nbytes, "copy"))
        self.assertGreater(report.moved, 0)
        transfer.cancel()
        failed = p.session.pull(p.own.ids([0, 0]), p.theirs.ids([1, 2]))
        for call in (failed.wait, failed.wait, failed.report):
            with self.assertRaisesRegex(shunt.InvalidArgument, "destination .* twice"):
                call()
        self.assertIn("failed", repr(failed))
        explained = p.session.explain("pull", p.own.ids([1, 5]), p.theirs.ids([2, 9]))
        self.assertEqual((explained.bytes, explained.route, explained.copy_runs), (2 * WORDS * 4, "copy", 2))

    def test_a_handle_that_is_dropped_in_flight_waits_and_warns(self):
        p = Pair(self)
        p.session.pull(p.own.ids([0]), p.theirs.ids([0])).wait()
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED)
        resume = threading.Timer(0.02, os.kill, (self.daemon.process.pid, signal.SIGCONT))
        try:
            transfer = p.session.pull(p.own.ids([1]), p.theirs.ids([1]))
            self.assertFalse(transfer.done())
            with self.assertRaisesRegex(shunt.DeadlineExceeded, "still running"):
                transfer.wait(0.01)
            resume.start()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                del transfer
                gc.collect()
        finally:
            os.kill(self.daemon.process.pid, signal.SIGCONT)
            resume.cancel()
        self.assertEqual([w.category for w in caught], [ResourceWarning])
        np.testing.assert_array_equal(p.target[1], p.source[1])

    def test_what_was_published_stays_while_its_section_does(self):
        p = Pair(self)
        array = p.sessions[0].array(np.arange(8, dtype=np.uint8))
        p.a.publish("short", array)
        del array
        gc.collect()
        remote = p.session.fetch(p.a.name, "short")
        p.session.pull(p.own.arrays([p.target.view(np.uint8)[0, :8]]), remote).wait()
        self.assertEqual(bytes(p.target.view(np.uint8)[0, :8]), bytes(range(8)))
        p.a.withdraw("short")
        with self.assertRaisesRegex(shunt.FailedPrecondition, "short.*withdrawn"):
            p.session.pull(p.own.arrays([p.target.view(np.uint8)[0, :8]]), remote).wait()
        with self.assertRaisesRegex(shunt.NotFound, "short"):
            p.a.withdraw("short")

    def test_grants_are_kept(self):
        p = Pair(self, access="read")
        with self.assertRaisesRegex(shunt.PermissionDenied, "published for reading, not for writing"):
            p.session.fetch(p.a.name, "kv", access="write")
        with self.assertRaisesRegex(shunt.PermissionDenied, "published for reading, not for writing"):
            p.session.push(p.own, p.theirs).wait()

    def test_wrong_arguments_are_named(self):
        p = Pair(self)
        for words, call in (
            ("axes is 4, expected 0 to 2", lambda: shunt.Blocks(p.source, axes=4)),
            ("a list, expected a NumPy array", lambda: shunt.Blocks([1])),
            ("expected contiguous pieces", lambda: shunt.Blocks(p.source.T)),
            ("-3 is among them", lambda: p.own.ids([1, -3])),
            ("dtype float64", lambda: p.own.ids([1.0])),
            ("0 of dtype", lambda: p.own.ids([])),
            ("unit is -1", lambda: p.own.ids([1], unit=-1)),
            (r"runs: \(1, 2, 3, 4\)", lambda: p.own.runs([(1, 2, 3, 4)])),
            ("access is 'all'", lambda: p.session.fetch(p.a.name, "kv", access="all")),
            ("priority is 'high'", lambda: p.session.pull(p.own, p.theirs, priority="high")),
            ("remote: a ndarray", lambda: p.session.pull(p.own, p.source)),
            ("timeout is -1", lambda: p.session.pull(p.own, p.theirs, timeout=-1)),
            ("direction is 'up'", lambda: p.session.explain("up", p.own, p.theirs)),
            ("lie in no region", lambda: p.b.publish("x", np.zeros(3))),
            ("no sets", lambda: p.b.publish("x", [])),
            ("local.list is another agent's", lambda: p.session.pull(p.theirs, p.own)),
            ("zero byte", lambda: p.session.agent("a\0b")),
        ):
            with self.subTest(words), self.assertRaisesRegex(shunt.InvalidArgument, words):
                call()

    def test_a_closed_session_refuses(self):
        session = shunt.connect()
        agent = session.agent(self.id())
        array = session.zeros((4, 4))  # keeps the daemon's side
        agent.publish("kv", array)
        session.close()
        with shunt.connect() as other, self.assertRaisesRegex(shunt.NotFound, "kv"):
            other.fetch(agent.name, "kv")
        for call in (agent.notifications, lambda: session.fetch("a", "b"), lambda: agent.withdraw("kv")):
            with self.assertRaisesRegex(shunt.FailedPrecondition, "the session is closed"):
                call()


class Example(support.DaemonTest):
    def test_the_cache_is_handed_over(self):
        environment = {**os.environ, "PYTHONPATH": str(support.PACKAGE), **support.sanitizer_environment()}
        done = subprocess.run(
            [sys.executable, "-B", str(support.ROOT / "examples" / "kv_handoff" / "kv_handoff.py")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=support.PATIENCE,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("decode has request-7; blocks [17, 200, 3, 42] are free", done.stdout)
        self.assertIn("1024 KiB by copy", done.stdout)
        self.assertIn("as they were sent", done.stdout)


