#!/usr/bin/env python3
"""Hangs that are prepared on one node: shuntctl hang names each with its cause, its ranks and where they are."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import ranks as r
import support

SILENT_FILES = support.BUILD / "bin" / "tests" / "silent-files"
REDUCE = "comm.all_reduce(np.ones({count}, np.float32))"


class SilentFiles:
    """A file system of one file, whose server falls silent when it is told."""

    def __init__(self, test):
        self.directory = tempfile.mkdtemp(prefix="shunt-silent-")
        self.process = subprocess.Popen(
            [SILENT_FILES, self.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        if self.process.stdout.readline() != "mounted\n":
            raise unittest.SkipTest("may not mount a file system of one's own")
        self.path = f"/proc/{self.process.pid}/root{self.directory}/a"

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == word + "\n"

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        os.rmdir(self.directory)


class OneNode(unittest.TestCase):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = support.Daemon(*cls.FLAGS)
        cls.addClassCleanup(cls.daemon.stop)
        cls.socket = cls.daemon.socket

    def start(self, world):
        return r.start_ranks(self, [self.socket] * world, self.id())

    def mine(self, one):
        return one["communicator"] == self.id()

    def cause(self, cause, *arguments):
        return r.wait_for_cause(self.socket, cause, *arguments, where=self.mine)

    def test_nothing_is_stuck_where_nothing_waits(self):
        ranks = self.start(2)
        r.tell_all(ranks, REDUCE.format(count=1))
        self.assertEqual([one for one in r.hang(self.socket, "--older-than", "0s") if self.mine(one)], [])
        result = r.shuntctl(self.socket, "hang", "--older-than", "1h")
        self.assertEqual(result.returncode, 0)
        self.assertIn("nothing is stuck", result.stdout)

    def test_a_missing_rank(self):
        ranks = self.start(3)
        r.tell_all(ranks, REDUCE.format(count=7))
        ranks[0].tell(REDUCE.format(count=8))
        ranks[2].tell(REDUCE.format(count=8))
        # Both have come, or one would be missing too.
        found = r.wait_for_cause(self.socket, "missing_rank",
                                 where=lambda one: self.mine(one) and len(one["missing"]) == 1)
        self.assertEqual((r.numbers(found["waiting"]), r.numbers(found["missing"])), ([0, 2], [1]))
        missing = found["missing"][0]
        self.assertEqual((missing["pid"], missing["session"]), (ranks[1].pid, "process 1"))
        self.assertEqual((missing["collectives"], missing["last_call"]), (1, "all_reduce #1 float32 sum count 7"))
        self.assertEqual(found["sequence"], 2)
        self.assertGreaterEqual(found["waited_seconds"], 0.2)
        self.assertIn("all_reduce #2 float32 sum count 8", found["what"])
        self.assertIn("sleeps, outside of Shunt", found["reason"])
        text = r.shuntctl(self.socket, "hang", "--older-than", "0s")
        self.assertEqual(text.returncode, 3)
        for words in ("cause: missing_rank", f"rank 1 (pid {ranks[1].pid}", "waiting: ranks 0 and 2"):
            self.assertIn(words, text.stdout)
        ranks[1].tell(REDUCE.format(count=8))
        for rank in ranks:
            rank.expect("done")

    def test_calls_in_another_order(self):
        ranks = self.start(2)
        ranks[0].tell("comm.send(np.ones(3, np.float32), 1); comm.barrier()")
        ranks[1].tell("comm.barrier(); comm.recv(np.empty(3, np.float32), 0)")
        found = self.cause("wrong_order")
        self.assertIn("different orders", found["reason"])
        # Both of them say so.
        both = [one for one in r.hang(self.socket, "--older-than", "200ms") if self.mine(one)]
        self.assertEqual([one["cause"] for one in both], ["wrong_order"] * 2)
        self.assertEqual(sorted(one["what"].split(" #")[0] for one in both), ["barrier", "send"])

    def test_two_communicators_in_another_order(self):
        ranks = self.start(2)
        for rank in ranks:
            rank.tell(f"other = join({self.id() + ' other'!r})")
        for rank in ranks:
            rank.expect("done")
        ranks[0].tell("comm.barrier(); other.barrier()")
        ranks[1].tell("other.barrier(); comm.barrier()")
        self.assertIn("other", self.cause("wrong_order")["reason"])

    def test_a_stopped_process(self):
        ranks = self.start(2)
        os.kill(ranks[1].pid, signal.SIGSTOP)
        ranks[0].tell(REDUCE.format(count=1))
        found = self.cause("stopped_process")
        self.assertEqual((r.numbers(found["missing"]), found["missing"][0]["process_state"]), ([1], "T"))
        self.assertIn("SIGSTOP", found["reason"])
        os.kill(ranks[1].pid, signal.SIGCONT)
        ranks[1].tell(REDUCE.format(count=1))
        ranks[0].expect("done")

    def test_a_process_that_waits_for_a_file(self):
        files = SilentFiles(self)
        ranks = self.start(2)
        ranks[1].tell(f"file = open({files.path!r}, 'rb', buffering=0)")
        ranks[1].expect("done")
        files.tell("silence")
        ranks[1].tell("file.read(1)")
        ranks[0].tell(REDUCE.format(count=1))
        found = self.cause("waiting_on_file")
        self.assertEqual(r.numbers(found["missing"]), [1])
        if os.geteuid() == 0:
            self.assertIn("read of ", found["missing"][0]["file"])
        self.assertIn("waits for a file", found["reason"])
        files.tell("speak")
        ranks[1].expect("done")

    def test_a_store_that_does_not_answer(self):
        files = SilentFiles(self)
        ranks = self.start(1)
        ranks[0].tell(f"file = session.open_file({files.path!r}); memory = session.zeros(4096, np.uint8)")
        ranks[0].expect("done")
        files.tell("silence")
        ranks[0].tell("session.pull(session.prepare(memory), session.prepare([file.piece(0, 4096)])).wait()")
        found = r.wait_for_cause(self.socket, "waiting_on_file", where=lambda one: one["transfer"] != 0)
        self.assertIn("read of 4.0 KiB", found["what"])
        self.assertIn("store has not answered", found["reason"])
        files.tell("speak")

    def test_calls_that_differ_before_the_last_one_has_come(self):
        ranks = self.start(3)
        # Ranks look at the others in order, and no further than the first that is missing.
        ranks[1].tell(REDUCE.format(count=1000))
        ranks[2].tell(REDUCE.format(count=2000))
        found = self.cause("different_calls")
        self.assertIn("count 1000", found["reason"])
        self.assertIn("count 2000", found["reason"])
        self.assertIn("when rank 0 calls", found["reason"])

    def test_a_send_without_a_receive(self):
        ranks = self.start(2)
        ranks[0].tell("comm.send(np.ones(3, np.float32), 1)")
        found = self.cause("send_without_receive")
        self.assertEqual((r.numbers(found["waiting"]), r.numbers(found["missing"])), ([0], [1]))
        ranks[1].tell("comm.recv(np.empty(3, np.float32), 0)")
        ranks[0].expect("done")
        ranks[0].tell("comm.recv(np.empty(3, np.float32), 1)")
        found = self.cause("receive_without_send")
        self.assertEqual((r.numbers(found["waiting"]), r.numbers(found["missing"])), ([0], [1]))

    def test_a_world_that_is_never_complete(self):
        for number in (0, 2):
            rank = r.Rank(self.socket, self.id(), number, 4)
            self.addCleanup(rank.end)
        found = r.wait_for_cause(self.socket, "world_incomplete",
                                 where=lambda one: self.mine(one) and len(one["waiting"]) == 2)
        self.assertEqual((r.numbers(found["waiting"]), r.numbers(found["missing"])), ([0, 2], [1, 3]))
        self.assertIn("2 of 4 ranks have asked to join; missing: ranks 1 and 3", found["reason"])

    def test_a_duration_that_is_none(self):
        result = r.shuntctl(self.socket, "hang", "--older-than", "soon")
        self.assertEqual(result.returncode, 1)
        self.assertIn('--older-than is "soon"; expected a duration', result.stderr)

    @unittest.skipIf(os.geteuid() != 0, "needs root to become another user")
    def test_another_user_sees_nothing_of_it(self):
        ranks = self.start(2)
        ranks[0].tell(REDUCE.format(count=1))
        self.cause("missing_rank")
        os.chmod(self.daemon.directory, 0o755)
        os.chmod(self.socket, 0o666)
        result = r.shuntctl(self.socket, "hang", "--older-than", "0s", "--json", user=65534)
        self.assertEqual((result.returncode, json.loads(result.stdout)["stuck"]), (0, []), result.stderr)


class WithoutTheRecorder(OneNode):
    """The cause is found without times, too."""

    FLAGS = ("--recorder-calls", "0")

    def test_a_missing_rank(self):
        ranks = self.start(2)
        ranks[0].tell(REDUCE.format(count=1))
        found = self.cause("missing_rank")
        self.assertEqual(found["waited_seconds"], -1)


if __name__ == "__main__":
    support.main()
