#!/usr/bin/env python3
"""The cluster fixture itself: reachability, shaping, partitions, counters, and that nothing stays behind."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import unittest

import measure
import netns
import shuntd_node

HERE = pathlib.Path(__file__).resolve().parent
PORT = 9000
MIB = 1 << 20


def wait_until(condition, what, seconds=20):
    """Polls; for states of the kernel and of other processes, which send no event."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {seconds} s")
        time.sleep(0.005)


def listen(node):
    with node.inside():
        server = socket.create_server((node.address, PORT))
    server.settimeout(30)
    return server


def connect(node, to, timeout=30):
    with node.inside():
        return socket.create_connection((to.address, PORT), timeout=timeout)


def transfer(sender, receiver, size):
    """Seconds from the first byte sent to the last one received."""
    with listen(receiver) as server:
        out = connect(sender, receiver)
        into, _ = server.accept()
    with out, into:
        into.settimeout(60)
        thread = threading.Thread(target=lambda: (out.sendall(bytes(size)), out.shutdown(socket.SHUT_WR)))
        start = time.monotonic()
        thread.start()
        got = 0
        while piece := into.recv(MIB):
            got += len(piece)
        elapsed = time.monotonic() - start
        thread.join()
    assert got == size, f"{got} of {size} bytes arrived"
    return elapsed


def hears(sender, receiver, seconds):
    """True if a datagram from sender reaches receiver. Several are sent: the first ones also ask for the address."""
    with receiver.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as into:
        into.bind((receiver.address, PORT))
        into.settimeout(seconds / 5)
        with sender.inside():
            out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with out:
            for _ in range(5):
                with contextlib.suppress(OSError):  # no carrier, no answer to the question for the address
                    out.sendto(b"hello", (receiver.address, PORT))
                with contextlib.suppress(TimeoutError):
                    return into.recv(16) == b"hello"
    return False


def qdiscs(namespace, device):
    return namespace.run("tc", "qdisc", "show", "dev", device)


class Spy:
    """Tells when a node's namespace is gone: one end of a veth pair is in it, and goes with it."""

    def __init__(self):
        self.namespace = netns.Namespace()

    def attach(self, node, name="spy"):
        node.namespace.run("ip", "link", "add", f"in-{name}", "type", "veth", "peer", "name", name, "netns", self.namespace.path)

    def gone(self, name="spy"):
        return f" {name}@" not in self.namespace.run("ip", "-o", "link")


def root_links():
    return sorted(line.split(": ")[1] for line in subprocess.check_output(["ip", "-o", "link"], text=True).splitlines())


class ClusterTest(unittest.TestCase):
    def cluster(self, *args, **kwargs):
        cluster = netns.Cluster(*args, **kwargs)
        self.addCleanup(cluster.close)
        return cluster

    def test_every_node_reaches_every_other_by_its_address(self):
        cluster = self.cluster(3)
        for a in cluster.nodes:
            with listen(a) as server:
                for b in cluster.nodes:
                    with connect(b, a) as out:
                        into, peer = server.accept()
                        into.close()
                        self.assertEqual(peer[0], b.address)
                        self.assertEqual(out.getpeername()[0], a.address)

    def test_the_interface_counts_what_crosses_it(self):
        cluster = self.cluster(3)
        a, b, c = cluster.nodes
        before = [node.bytes() for node in cluster.nodes]
        transfer(a, b, 8 * MIB)
        after = [node.bytes() for node in cluster.nodes]
        sent, received = after[0].sent - before[0].sent, after[1].received - before[1].received
        for counted in (sent, received):
            self.assertGreaterEqual(counted, 8 * MIB)
            self.assertLess(counted, 8 * MIB * 1.06)  # headers of every packet would be 4.6 %
        self.assertLess(after[0].received - before[0].received, MIB)
        self.assertLess(after[2].received + after[2].sent, MIB / 16)
        self.assertEqual(c.name, "n2")

    def test_a_shaped_link_is_no_faster_than_its_rate_in_either_direction(self):
        cluster = self.cluster(2, rate="40mbit")
        a, b = cluster.nodes
        # The buckets of both ends are full at first: 256 kB each go at once.
        least = 0.9 * (4 * MIB - 2 * 256_000) / 5e6
        self.assertGreater(transfer(a, b, 4 * MIB), least)
        self.assertGreater(transfer(b, a, 4 * MIB), least)
        for namespace, device in ((a.namespace, "eth0"), (cluster.switch, "p0"), (cluster.switch, "p1")):
            self.assertIn("tbf", qdiscs(namespace, device))
        cluster.shape("80mbit")
        self.assertIn("80Mbit", qdiscs(a.namespace, "eth0"))
        cluster.shape(None)
        for namespace, device in ((a.namespace, "eth0"), (cluster.switch, "p0"), (cluster.switch, "p1")):
            self.assertNotIn("tbf", qdiscs(namespace, device))

    def test_iperf3_sees_the_rate(self):
        cluster = self.cluster(2, rate="100mbit")
        try:
            link = measure.iperf(cluster, 0, 1, 2)
        except netns.Unavailable as error:
            self.skipTest(str(error))
        # Never above the rate; how near depends on who else is on this machine.
        self.assertLess(link.gbps, 0.0130)
        self.assertGreater(link.gbps, 0.0030)
        self.assertIn(link.congestion_control, ("bbr", "cubic", "reno"))

    def test_a_partition_drops_packets_between_two_nodes_until_it_heals(self):
        cluster = self.cluster(3)
        a, b, c = cluster.nodes
        server = listen(b)
        self.addCleanup(server.close)
        with connect(a, b) as out:
            into, _ = server.accept()
            with into:
                cluster.partition(0, 1)
                self.assertFalse(hears(a, b, 0.5))
                self.assertFalse(hears(b, a, 0.5))
                self.assertTrue(hears(a, c, 10))
                self.assertTrue(hears(c, b, 10))
                with self.assertRaises(TimeoutError):
                    connect(a, b, timeout=0.3)
                # A connection that was there is silent, not closed; what it sent comes after the healing.
                out.sendall(b"kept")
                into.settimeout(0.3)
                with self.assertRaises(TimeoutError):
                    into.recv(4)
                cluster.heal()
                into.settimeout(20)
                self.assertEqual(into.recv(4), b"kept")
        self.assertTrue(hears(b, a, 10))

    def test_an_unplugged_node_has_no_carrier(self):
        cluster = self.cluster(3)
        a, b, c = cluster.nodes
        cluster.unplug(0)
        self.assertIn("NO-CARRIER", a.namespace.run("ip", "link", "show", "eth0"))
        self.assertFalse(hears(b, a, 0.5))
        self.assertTrue(hears(b, c, 10))
        cluster.heal()
        self.assertTrue(hears(b, a, 10))

    def test_closing_leaves_no_namespace_process_or_file(self):
        links = root_links()
        spy = Spy()
        self.addCleanup(spy.namespace.close)
        cluster = self.cluster(2)
        directory = cluster.directory
        self.assertEqual(root_links(), links)
        spy.attach(cluster.nodes[0])
        polite = cluster.nodes[0].popen(["sleep", "1000"])
        # A program that leaves its parent and ignores the polite signal.
        stray = cluster.nodes[1].popen(
            [sys.executable, "-c",
             "import os, signal, sys\n"
             "if os.fork(): os._exit(0)\n"
             "os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
             "print(os.getpid(), flush=True); signal.pause()"],
            stdout=subprocess.PIPE, text=True)
        pid = int(stray.stdout.readline())
        stray.stdout.close()
        self.assertFalse(spy.gone())
        cluster.close()
        self.assertEqual(polite.returncode, -signal.SIGTERM)
        wait_until(lambda: not running(pid), "the stray's end")
        wait_until(spy.gone, "the namespace's end")
        self.assertFalse(os.path.exists(directory))
        self.assertEqual(root_links(), links)
        cluster.close()  # again

    def test_a_killed_owner_leaves_no_namespace_or_process_and_the_next_one_removes_its_files(self):
        spy = Spy()
        self.addCleanup(spy.namespace.close)
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import netns, signal\n"
            "cluster = netns.Cluster(2)\n"
            "program = cluster.nodes[0].popen(['sleep', '1000'])\n"
            "cluster.nodes[1].namespace.run('ip', 'link', 'add', 'in-spy', 'type', 'veth', 'peer', 'name', 'spy', 'netns',"
            " sys.argv[2])\n"
            "print(program.pid, cluster.directory, flush=True)\n"
            "signal.pause()\n")
        owner = subprocess.Popen([sys.executable, "-c", code, HERE, spy.namespace.path], stdout=subprocess.PIPE, text=True)
        with owner.stdout:
            pid, directory = owner.stdout.readline().split()
        self.assertFalse(spy.gone())
        living = self.cluster(1)
        owner.kill()
        owner.wait()
        wait_until(lambda: not running(int(pid)), "the end of the node's program")
        wait_until(spy.gone, "the namespace's end")
        self.cluster(1)
        self.assertFalse(os.path.exists(directory))
        self.assertTrue(os.path.exists(living.directory))

    def test_two_clusters_at_once_do_not_meet(self):
        first, second = self.cluster(2), self.cluster(2)
        self.assertNotEqual(first.directory, second.directory)
        with listen(first.nodes[0]) as one, listen(second.nodes[0]) as other:  # same address and port
            with connect(first.nodes[1], first.nodes[0]), connect(second.nodes[1], second.nodes[0]):
                for server in (one, other):
                    server.accept()[0].close()
                one.settimeout(0.2)
                with self.assertRaises(TimeoutError):
                    one.accept()
        first.partition(0, 1)
        first.close()
        self.assertTrue(hears(second.nodes[0], second.nodes[1], 10))

    def test_refuses_what_it_cannot_make(self):
        for nodes, aggregators in ((0, 0), (-1, 3), (250, 1), (2, -1)):
            with self.assertRaises(ValueError):
                netns.Cluster(nodes, aggregators=aggregators)
        cluster = self.cluster(1)
        with self.assertRaisesRegex(RuntimeError, "rate"):
            cluster.shape("fast")

    def test_the_daemons_configuration_names_every_member(self):
        cluster = self.cluster(2, aggregators=1)
        for node in cluster.nodes:
            config = tomllib.loads(shuntd_node.cluster_config(cluster, node))["cluster"]
            self.assertEqual(config["node"], node.name)
            self.assertEqual(config["membership"], "static")
            self.assertEqual(config["members"], ["n0=10.77.0.1:7000", "n1=10.77.0.2:7000", "n2=10.77.0.3:7000"])
            self.assertEqual(config["listen"], f"{node.address}:7000")
            self.assertEqual(config.get("role"), "aggregator" if node.index == 2 else None)

    def test_a_daemon_that_ends_at_once_is_an_error_with_its_words(self):
        cluster = self.cluster(1)
        program = pathlib.Path(cluster.directory) / "shuntd"
        program.write_text('#!/bin/sh\necho "cannot read $2" >&2\nexit 3\n', encoding="ascii")
        program.chmod(0o755)
        before = os.environ.get("SHUNTD")
        os.environ["SHUNTD"] = str(program)
        try:
            with self.assertRaisesRegex(RuntimeError, "node n0 ended with 3: cannot read .*shuntd.toml"):
                cluster.nodes[0].shuntd()
        finally:
            os.environ.pop("SHUNTD")
            if before is not None:
                os.environ["SHUNTD"] = before

    def test_serves_a_program_over_pipes_until_its_input_ends(self):
        with subprocess.Popen([sys.executable, HERE / "serve.py", "--nodes", "2"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as server:
            def ask(line):
                print(line, file=server.stdin, flush=True)
                return server.stdout.readline().split()

            self.assertEqual(server.stdout.readline(), "ok\n")
            ok, path, address, interface, role, *rest = ask("nodes")
            self.assertEqual((ok, address, interface, role), ("ok", "10.77.0.1", "eth0", "node"))
            self.assertEqual(len(rest), 4)
            inside = subprocess.check_output(["nsenter", f"--net={path}", "ip", "-o", "-4", "addr"], text=True)
            self.assertIn("10.77.0.1/24", inside)
            self.assertEqual(len(ask("bytes")), 5)
            self.assertEqual(ask("shape 10mbit"), ["ok"])
            self.assertEqual(ask("shape none"), ["ok"])
            self.assertEqual(ask("shape fast")[0], "error")
            self.assertEqual(ask("dance")[0], "error")
            self.assertEqual(ask("")[0], "error")
            server.stdin.close()
            self.assertEqual(server.wait(timeout=20), 0)


def running(pid):
    """False for a zombie too: who waits for it is not our concern."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    netns.enter_user_namespace()
    unittest.main()
