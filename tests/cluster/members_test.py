#!/usr/bin/env python3
"""Member lists as people write them: with the node itself, twice the same, with hosts that are not there."""

import json
import os
import subprocess
import tempfile
import unittest

import loopback
import netns
import support
import shunt


class MemberLists(unittest.TestCase):
    def test_the_node_itself_and_entries_given_twice_make_no_difference(self):
        a, b = loopback.free_ports(2)
        entries = {"a": [f"a=127.0.0.1:{a}", f"b=127.0.0.1:{b}", f"b=127.0.0.1:{b}", f"a=127.0.0.1:{a}"],
                   "b": [f"a=127.0.0.1:{a}"]}
        with tempfile.TemporaryDirectory(prefix="shunt-members-") as directory:
            daemons = {}
            for name, port in (("a", a), ("b", b)):
                daemons[name] = loopback.Daemon(
                    directory, name, f'listen = "127.0.0.1:{port}"\nmembers = {json.dumps(entries[name])}')
                self.addCleanup(daemons[name].stop)
            loopback.connected(daemons)
            for daemon in daemons.values():
                daemon.wait_log("the membership is known", "members=2")
                others = [node["name"] for node in daemon.cluster_status()["nodes"]]
                self.assertEqual(others, ["b" if daemon.name == "a" else "a"])
            # If they saw different members, they would look for each other at different coordinators.
            for number in range(8):
                with loopback.Job([daemon.socket for daemon in daemons.values()], f"job {number}"):
                    pass

    def refused(self, *members):
        with tempfile.TemporaryDirectory(prefix="shunt-members-") as directory:
            command = [os.environ["SHUNTD"], "--socket", os.path.join(directory, "s"), "--cluster-node", "a",
                       "--cluster-listen", "127.0.0.1:0", "--cluster-members", ",".join(members)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=support.PATIENCE)
            self.assertNotEqual(done.returncode, 0)
            return done.stderr

    def test_a_node_at_two_addresses_keeps_the_daemon_from_starting(self):
        self.assertIn("node 'b' twice, at 127.0.0.1:7001 and at 127.0.0.1:7002",
                      self.refused("b=127.0.0.1:7001", "b=127.0.0.1:7002"))

    def test_two_nodes_at_one_address_keep_the_daemon_from_starting(self):
        self.assertIn("two nodes at 127.0.0.1:7001, 'b' and 'c'", self.refused("b=127.0.0.1:7001", "c=127.0.0.1:7001"))


class AbsentHosts(unittest.TestCase):
    def absent(self, daemons, sockets, name, address):
        """The others run jobs; who is missing is told in the logs and by shuntctl."""
        for daemon in daemons:
            support.wait_until(lambda daemon=daemon: f"node '{name}' ({address}) cannot be reached" in daemon.log(),
                               "the absent node to be named")
        # Whichever node coordinates them: the absent one's are met elsewhere.
        for number in range(8):
            with loopback.Job(sockets, f"job {number}"):
                pass

    def test_a_host_that_refuses_connections_is_named_and_the_others_go_on(self):
        address = f"127.0.0.1:{loopback.free_ports(1)[0]}"
        with loopback.static_cluster("ab", {"c": address}) as daemons:
            self.absent(daemons.values(), [daemon.socket for daemon in daemons.values()], "c", address)
            for daemon in daemons.values():
                nodes = {node["name"]: node for node in daemon.cluster_status()["nodes"]}
                self.assertEqual(nodes["a" if daemon.name == "b" else "b"]["state"], "up")
                self.assertIn(nodes["c"]["state"], ("down", "calling"))
                self.assertIn(f"node 'c' ({address}) cannot be reached", nodes["c"]["why"])
                text = daemon.shuntctl("status")
                self.assertIn("2, of which up 1", text)
                self.assertIn(f"node 'c' ({address}) cannot be reached", text)

    def test_a_rank_on_the_absent_host_is_missed_by_name(self):
        address = f"127.0.0.1:{loopback.free_ports(1)[0]}"
        with loopback.static_cluster("ab", {"c": address}) as daemons:
            def join(name, rank):
                with shunt.connect(daemons[name].socket) as session:
                    session.join("incomplete", rank, 3, timeout=2)

            _, errors = loopback.outcomes([lambda: join("a", 0), lambda: join("b", 1)])
            missing = "2 of 3 ranks joined in time; missing rank 2"
            for error in errors:
                self.assertIsInstance(error, shunt.DeadlineExceeded)
                # The one whose deadline is later misses the other one, too.
                self.assertRegex(str(error), f"{missing}|missing ranks (0, 2|1-2) .*came and went: its deadline passed")
            self.assertTrue(any(missing in str(error) for error in errors), errors)

    def test_a_host_that_answers_nothing_is_named_and_the_others_go_on(self):
        with netns.Cluster(nodes=3) as cluster:
            cluster.unplug(2)  # packets to it are lost: nobody says that there is nobody
            daemons = [node.shuntd() for node in cluster.nodes[:2]]
            for daemon in daemons:
                support.wait_until(lambda daemon=daemon: "node connected" in daemon.log(), "the nodes to meet")
            self.absent(daemons, [daemon.socket for daemon in daemons], "n2", f"{cluster.nodes[2].address}:7000")
            # It comes late, and is welcome.
            cluster.heal()
            daemons.append(cluster.nodes[2].shuntd())
            support.wait_until(lambda: daemons[2].log().count("node connected") >= 2, "the third node to come")
            with loopback.Job([daemon.socket for daemon in daemons], "all three"):
                pass


if __name__ == "__main__":
    netns.enter_user_namespace()
    support.main()
