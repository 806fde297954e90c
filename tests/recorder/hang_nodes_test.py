#!/usr/bin/env python3
"""Hangs between nodes: shuntctl hang names links, peers and grants. Nodes are network namespaces."""

import os
import signal
import subprocess
import unittest

import ranks as r
import netns
import shuntd_node
import support

REDUCE = "comm.all_reduce(np.ones({count}, np.float32))"
# What a daemon that does not answer is waited for: links are given up after 2.5 s.
SOON = ("--older-than", "100ms", "--answer-within", "200ms")


class TwoNodes(unittest.TestCase):
    def setUp(self):
        self.cluster = netns.Cluster(nodes=2)
        self.addCleanup(self.cluster.close)
        self.daemons = [node.shuntd() for node in self.cluster.nodes]
        for daemon in self.daemons:
            support.wait_until(lambda daemon=daemon: "node connected" in daemon.log(), "the nodes to meet")

    def start(self, places):
        return r.start_ranks(self, [self.daemons[node].socket for node in places], self.id(),
                             [self.cluster.nodes[node].popen for node in places])

    def drop_payload(self):
        """Packets of data connections, silently; the daemons reach each other all the same."""
        rules = "table inet cut {\nchain input {\ntype filter hook input priority 0; policy accept;\n"
        rules += f"tcp dport {shuntd_node.DATA_PORT} drop\ntcp sport {shuntd_node.DATA_PORT} drop\n}}\n}}\n"
        for node in self.cluster.nodes:
            node.namespace.run("nft", "-f", "-", text=rules)

    def test_a_rank_of_another_node_is_missing(self):
        ranks = self.start([0, 1, 1])
        r.tell_all(ranks, REDUCE.format(count=7))
        for rank in ranks[:2]:
            rank.tell(REDUCE.format(count=8))
        for daemon in self.daemons:
            found = r.wait_for_cause(daemon.socket, "missing_rank", where=lambda one: len(one["missing"]) == 1)
            missing = found["missing"][0]
            self.assertEqual((missing["rank"], missing["node"], missing["pid"]), (2, "n1", ranks[2].pid))
            self.assertEqual(missing["last_call"], "all_reduce #1 float32 sum count 7")
            self.assertEqual(r.numbers(found["waiting"]), [0, 1])
        ranks[2].tell(REDUCE.format(count=8))
        for rank in ranks:
            rank.expect("done")
        # Long enough to wait for the receiver's memory.
        ranks[0].tell("comm.send(np.ones(1 << 20, np.float32), 2)")
        found = r.wait_for_cause(self.daemons[1].socket, "send_without_receive")
        self.assertEqual((r.numbers(found["waiting"]), r.numbers(found["missing"])), ([0], [2]))

    def test_a_link_that_is_stuck(self):
        ranks = self.start([0, 1])
        r.tell_all(ranks, REDUCE.format(count=7))
        self.drop_payload()
        for rank in ranks:
            rank.tell(REDUCE.format(count=100_000))
        found = r.wait_for_cause(self.daemons[0].socket, "stuck_link", *SOON,
                                 where=lambda one: one["communicator"] != "")
        self.assertEqual((r.numbers(found["waiting"]), found["missing"]), ([0, 1], []))
        for words in ("node n0", "node n1", "heard nothing", "unacknowledged", "both daemons answer"):
            self.assertIn(words, found["reason"])

    def test_a_peer_that_is_dead(self):
        ranks = self.start([0, 1])
        r.tell_all(ranks, REDUCE.format(count=7))
        self.cluster.partition(0, 1)  # a node without power says nothing, not even that it ends
        self.daemons[1].process.kill()
        ranks[0].tell(REDUCE.format(count=100_000))
        found = r.wait_for_cause(self.daemons[0].socket, "dead_peer", *SOON,
                                 where=lambda one: one["communicator"] != "")
        self.assertIn("node n1 gives no answer", found["reason"])
        self.assertEqual(r.numbers(found["waiting"]), [0])

    def test_grants_that_are_exhausted(self):
        owner = r.start_ranks(self, [self.daemons[1].socket], "owner", [self.cluster.nodes[1].popen])[0]
        taker = r.start_ranks(self, [self.daemons[0].socket], "taker", [self.cluster.nodes[0].popen])[0]
        owner.tell("data = session.zeros((8, 1 << 20), np.float32); session.agent('owner').publish('d', data)")
        owner.expect("done")
        taker.tell("mine = session.zeros((8, 1 << 20), np.float32); agent = session.agent('taker')")
        taker.expect("done")
        taker.tell("theirs = session.fetch('owner', 'd'); own = session.prepare(mine)")
        taker.expect("done")
        os.kill(self.daemons[1].process.pid, signal.SIGSTOP)
        try:
            # Each may have 2 MiB on its way, all together 8; beyond that one slice each.
            taker.tell("pulls = [session.pull(own.ids([i]), theirs.ids([i])) for i in range(8)]")
            taker.expect("done")
            found = r.wait_for_cause(self.daemons[0].socket, "grants_exhausted", *SOON)
        finally:
            os.kill(self.daemons[1].process.pid, signal.SIGCONT)
        self.assertIn("pull of 4.0 MiB", found["what"])
        self.assertRegex(found["reason"], r"is granted \((8|9)\.\d MiB of 8\.0 MiB\)")
        self.assertIn("with node n1 hold", found["reason"])


if __name__ == "__main__":
    netns.enter_user_namespace()
    support.main()
