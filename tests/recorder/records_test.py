#!/usr/bin/env python3
"""What shuntctl trace and stragglers give for calls that are known, on two nodes; and that memory has its bounds."""

import collections
import json
import os
import pathlib
import tempfile
import unittest

import ranks as r
import loopback
import support

REDUCE = "comm.all_reduce(np.ones({count}, np.float32))"


class Trace:
    """A trace file that has been looked through: what every event must have is there."""

    def __init__(self, test, path):
        self.whole = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.lanes = {}
        self.nodes = {}
        self.events = collections.defaultdict(list)  # by lane's name
        last = {}
        for event in self.whole["traceEvents"]:
            for key in ("name", "ph", "pid", "tid", "args"):
                test.assertIn(key, event)
            lane = (event["pid"], event["tid"])
            if event["ph"] == "M":
                names = {"process_name": (self.nodes, event["pid"]), "thread_name": (self.lanes, lane)}
                if event["name"] in names:
                    where, key = names[event["name"]]
                    test.assertNotIn(key, where)
                    where[key] = event["args"]["name"]
                continue
            test.assertEqual(event["ph"], "X")
            test.assertIn("cat", event)
            test.assertGreaterEqual(event["dur"], 0)
            if event["cat"] != "phase":
                # In order, and none begins before the one before it has ended.
                test.assertGreaterEqual(event["ts"], last.get(lane, 0))
                last[lane] = round(event["ts"] + event["dur"], 3)
                self.events[lane].append(event)
            else:
                # Within its call.
                parent = self.events[lane][-1]
                test.assertGreaterEqual(event["ts"], parent["ts"])
                test.assertLessEqual(round(event["ts"] + event["dur"], 3), last[lane])
        for pid, tid in self.events:
            test.assertIn(pid, self.nodes)
            test.assertIn((pid, tid), self.lanes)

    def lane(self, word):
        """Events of the lanes whose name has the word, by the lane's name."""
        return {self.lanes[lane]: events for lane, events in self.events.items() if word in self.lanes[lane]}


class TwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemons = cls.enterClassContext(loopback.static_cluster("ab"))
        cls.directory = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shunt-trace-"))

    def trace(self, node):
        path = os.path.join(self.directory, self.id() + node)
        result = r.shuntctl(self.daemons[node].socket, "trace", "--out", path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["silent_nodes"], [])
        return Trace(self, path)

    def start(self, places):
        return r.start_ranks(self, [self.daemons[node].socket for node in places], self.id())

    def test_a_trace_has_every_call_of_both_nodes(self):
        ranks = self.start("aab")
        counts = [1, 5000, 1 << 20]
        for count in counts:
            r.tell_all(ranks, REDUCE.format(count=count))
        ranks[0].tell("comm.send(np.ones(7, np.int64), 1)")
        ranks[1].tell("comm.recv(np.ones(7, np.int64), 0)")
        ranks[0].expect("done")
        ranks[1].expect("done")
        for node in "ab":
            trace = self.trace(node)
            self.assertEqual(sorted(trace.nodes.values()), ["node a", "node b"])
            for rank in ranks:
                lanes = trace.lane(f"'{self.id()}' epoch 1 rank {rank.rank} (pid {rank.pid})")
                self.assertEqual(len(lanes), 1, trace.lanes)
                events = next(iter(lanes.values()))
                reduces = [event for event in events if event["name"] == "all_reduce"]
                self.assertEqual([event["args"]["count"] for event in reduces], counts)
                self.assertEqual([event["args"]["bytes"] for event in reduces], [4 * count for count in counts])
                self.assertEqual([event["args"]["sequence"] for event in reduces], [1, 2, 3])
                self.assertEqual({event["args"]["state"] for event in events}, {"ok"})
                self.assertEqual({event["args"]["route"] for event in reduces}, {"daemon"})
                pairs = [event["name"] for event in events if event["cat"] == "pair"]
                self.assertEqual(pairs, [["send"], ["recv"], []][rank.rank])
                for event in reduces:
                    self.assertIn(event["args"]["last_rank"], (0, 1, 2))
            # Each node's side of the link.
            for name in ("link a - b", "link b - a"):
                exchanges = [e for e in next(iter(trace.lane(name).values()))
                             if e["args"].get("communicator") == self.id()]
                self.assertEqual([event["args"]["sequence"] for event in exchanges], [1, 2, 3])
                self.assertTrue(all(event["args"]["algorithm"] for event in exchanges))
            clocks = {clock["node"]: clock for clock in trace.whole["otherData"]["nodes"]}
            self.assertEqual(trace.whole["otherData"]["clock"], f"CLOCK_MONOTONIC of node {node}")
            other = clocks["b" if node == "a" else "a"]
            # One machine, one clock: what was estimated is as right as it says.
            self.assertLessEqual(abs(other["clock_offset_ns"]), other["clock_uncertainty_ns"])
            self.assertEqual((clocks[node]["clock_offset_ns"], clocks[node]["clock_uncertainty_ns"]), (0, 0))

    def test_what_has_ended_is_still_there(self):
        ranks = self.start("ab")
        r.tell_all(ranks, REDUCE.format(count=3))
        for rank in ranks:
            rank.end()
        seen = lambda: len(self.trace("a").lane(f"'{self.id()}'")) == 2
        support.wait_until(seen, "the communicator's records after its end")

    def test_transfers_are_on_lanes_by_their_way(self):
        owner = r.start_ranks(self, [self.daemons["b"].socket], self.id() + "owner")[0]
        taker = r.start_ranks(self, [self.daemons["a"].socket], self.id() + "taker")[0]
        owner.tell("data = session.zeros((8, 1 << 10), np.float32); session.agent('owner').publish('d', data)")
        owner.expect("done")
        for line in ("mine = session.zeros((8, 1 << 10), np.float32); own = session.prepare(mine)",
                     "theirs = session.fetch('owner', 'd')",
                     "session.pull(own.ids([1, 2]), theirs.ids([3, 4])).wait()",
                     "session.pull(own.ids([1]), own.ids([2])).wait()"):
            taker.tell(line)
            taker.expect("done")
        lanes = self.trace("a").lane("")
        pulls = lanes["link a - b: pull"]
        self.assertEqual([(e["args"]["bytes"], e["args"]["state"], e["args"]["with"]) for e in pulls],
                         [(8192, "ok", 'agent "owner"')])
        self.assertEqual([e["args"]["bytes"] for e in lanes["transfers: copy"]], [4096])

    def test_who_comes_late_is_named(self):
        ranks = self.start("ab")
        late = "import time; time.sleep(0.03); " + REDUCE.format(count=1)
        for _ in range(5):
            ranks[0].tell(REDUCE.format(count=1))
            ranks[1].tell(late)
            ranks[0].expect("done")
            ranks[1].expect("done")
        result = r.shuntctl(self.daemons["a"].socket, "stragglers", "--json", "--communicator", self.id())
        found = json.loads(result.stdout)
        self.assertEqual(len(found), 1, result.stderr)
        self.assertEqual(found[0]["operations"], 5)
        first, second = found[0]["ranks"]
        self.assertEqual((first["rank"], first["node"], first["times_last"]), (1, "b", 5))
        self.assertGreater(first["median_ns"], 10_000_000)
        self.assertGreaterEqual(first["p99_ns"], first["median_ns"])
        self.assertEqual((second["rank"], second["times_last"], second["median_ns"]), (0, 0, 0))
        text = r.shuntctl(self.daemons["b"].socket, "stragglers").stdout
        self.assertIn("5 of 5", text)

    def test_a_file_that_cannot_be_written_is_an_error(self):
        for path, words in ((os.path.join(self.directory, "none", "t.json"), "No such file"), ("/dev/full", "No space"),
                            (self.directory, "is a directory")):
            result = r.shuntctl(self.daemons["a"].socket, "trace", "--out", path)
            self.assertEqual(result.returncode, 1)
            self.assertIn(path, result.stderr)
            self.assertIn(words, result.stderr)

    def test_a_node_that_gives_no_answer_is_named(self):
        daemons = self.enterContext(loopback.static_cluster("cd"))
        daemons["d"].stop()
        seen = lambda: "no answer from node d" in r.shuntctl(daemons["c"].socket, "stragglers").stdout
        support.wait_until(seen, "the loss of node d")


class Bounds(unittest.TestCase):
    """A daemon's memory after many operations, transfers and communicators is what it was after some."""

    def test_a_million_calls_take_no_memory(self):
        daemon = support.Daemon("--recorder-memory", "1MiB", "--recorder-calls", "64")
        self.addCleanup(daemon.stop)
        ranks = r.start_ranks(self, [daemon.socket] * 2, self.id())

        def resident():
            with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
                return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

        def run(calls, communicators, transfers):
            for rank in ranks:
                rank.tell(f"x = np.ones(1, np.float32); [comm.all_reduce(x) for _ in range({calls})]")
            for rank in ranks:
                rank.expect("done")
            r.tell_all(ranks, f"for i in range({communicators}): c = join(f'c{{i}}'); c.barrier(); c.leave()")
            ranks[0].tell("y = session.zeros((2, 16), np.float32); l = session.prepare(y)")
            ranks[0].expect("done")
            ranks[0].tell(f"for i in range({transfers}): session.pull(l.ids([0]), l.ids([1])).wait()")
            ranks[0].expect("done")

        run(1000, 300, 3000)
        before = resident()
        run(500_000, 2000, 10_000)
        self.assertLess(resident(), before + (2 << 20))
        shown = r.shuntctl(daemon.socket, "trace", "--out", "/dev/null", "--json")
        self.assertLess(json.loads(shown.stdout)["events"], 30_000)


if __name__ == "__main__":
    support.main()
