"""Agents of two daemons: what one publishes the other fetches through its own daemon, and notifications come over."""

import importlib
import os
import signal
import socket
import sys
import threading
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "daemon")]

from harness import *  # noqa: E402
from transfers_test import Agent, strided, t  # noqa: E402
import fake_node  # noqa: E402

peer = importlib.import_module("shunt.v1.peer_pb2"), importlib.import_module("shunt.v1.peer_pb2_grpc")


def free_ports(count):
    """Nobody else has them a moment before somebody binds them."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Node(Shuntd):
    def __init__(self, name, members):
        self.name = name
        self.address = members[name]
        super().__init__(
            "--cluster-name", "test", "--cluster-node", name, "--cluster-listen", members[name],
            "--cluster-members", ",".join(f"{n}={address}" for n, address in members.items()), name=name + ".sock",
        )

    def met(self, other):
        def there():
            return any("node connected" in line and f" node={other}" in line for line in self.log().splitlines())

        wait_until(there, 20, f"node {self.name}'s connection with {other}")


def members(names):
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)))}


class TwoNodes(unittest.TestCase):
    refused = DaemonTest.refused
    assert_code = DaemonTest.assert_code

    @classmethod
    def setUpClass(cls):
        cls.members = members("abf")
        cls.nodes = {name: Node(name, cls.members) for name in "ab"}
        cls.nodes["a"].met("b")
        cls.nodes["b"].met("a")

    @classmethod
    def tearDownClass(cls):
        for node in cls.nodes.values():
            status = node.stop()
            assert status == 0, f"exit status {status}"

    def tearDown(self):
        for node in self.nodes.values():
            self.assertIsNone(node.process.poll(), f"node {node.name} died: " + node.log())

    def session_on(self, node, name="test"):
        session = plain_grpc.Session(api, self.nodes[node].socket, name)
        self.addCleanup(session.channel.close)
        self.addCleanup(session.lease.socket.close)
        return session

    def agent(self, node, name, size=64 * 4096):
        return Agent(self, name, size, session=self.session_on(node))

    def test_a_section_is_fetched_by_name_and_by_name_and_node(self):
        a, b = self.agent("a", "one"), self.agent("b", "two")
        b.publish()
        for name in ("two", "two@b"):
            fetched = a.fetch(name)
            self.assertEqual((fetched.node, fetched.version, fetched.incarnation), ("b", 1, b.incarnation))
            self.assertEqual((fetched.list.pieces, fetched.list.piece_bytes), (64, 4096))
        # Here: with the node's name or without.
        for name in ("two", "two@b"):
            self.assertEqual(b.fetch(name).node, "")
        with self.refused(NOT_FOUND, '"two"', "on this node"):
            a.fetch("two@a")
        b.publish(sets=b.blocks(32))
        again = a.fetch("two")
        self.assertEqual((again.version, again.list.pieces), (2, 32))

    def test_the_lease_socket_asks_other_nodes_too(self):
        b = self.agent("b", "leased")
        b.publish()
        session = LeaseSession(self.nodes["a"].lease)
        self.addCleanup(session.close)
        reply, _ = session.call(fetch_section=t.FetchSectionRequest(agent="leased", section="kv"))
        self.assertEqual((reply.fetch_section.node, reply.fetch_section.list.pieces), ("b", 64))
        session.call(notify=t.NotifyRequest(agent="leased", payload=b"hello"))
        self.assertEqual([n.payload for n in b.take().notifications], [b"hello"])
        with self.refused(NOT_FOUND, "nobody"):
            session.call(fetch_section=t.FetchSectionRequest(agent="nobody", section="kv"))

    def test_what_is_not_there_or_not_allowed_is_said_in_words(self):
        a, b = self.agent("a", "asks"), self.agent("b", "offers")
        b.publish("in", access=t.SECTION_ACCESS_WRITE)
        with self.refused(NOT_FOUND, '"nobody"', "nor on the 1 other that was asked"):
            a.fetch("nobody")
        with self.refused(NOT_FOUND, "node 'b'", '"nobody"'):
            a.fetch("nobody@b")
        with self.refused(NOT_FOUND, "node 'z' is not among the members"):
            a.fetch("offers@z")
        with self.refused(NOT_FOUND, "node 'b'", '"offers" publishes no section "out"', "it has in"):
            a.fetch("offers", "out")
        with self.refused(PERMISSION_DENIED, "node 'b'", '"in"', "not for reading"):
            a.fetch("offers", "in")
        self.assertEqual(a.fetch("offers", "in", access=t.SECTION_ACCESS_WRITE).node, "b")
        b.ask("WithdrawSection", "WithdrawSection", name="in")
        with self.refused(NOT_FOUND, "it has none"):
            a.fetch("offers", "in", access=t.SECTION_ACCESS_WRITE)

    def test_an_agent_that_came_back_is_another(self):
        a, b = self.agent("a", "stays"), self.agent("b", "restarts")
        b.publish()
        before = a.fetch("restarts")
        b.session.close()
        with self.refused(NOT_FOUND, "restarts"):
            a.fetch("restarts")
        again = self.agent("b", "restarts")
        again.publish(sets=again.blocks(8))
        after = a.fetch("restarts")
        self.assertEqual((after.incarnation, after.version, after.list.pieces), (again.incarnation, 1, 8))
        self.assertNotEqual(after.incarnation, before.incarnation)
        with self.refused(FAILED_PRECONDITION, "restarts"):
            a.post(a.prepare().list_id, before.list.list_id)

    def test_many_fetch_at_once(self):
        b = self.agent("b", "busy")
        b.publish()
        agents = [self.agent("a", f"fetcher-{i}") for i in range(8)]
        got = []

        def fetch(agent):
            for _ in range(20):
                got.append(agent.fetch("busy").version)

        threads = [threading.Thread(target=fetch, args=(agent,)) for agent in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [1] * 160)

    def test_notifications_come_over_once_in_order_and_no_more_than_fit(self):
        a, b = self.agent("a", "sender"), self.agent("b", "receiver")
        for i in range(1024):
            a.ask("Notify", "Notify", agent="receiver" if i % 2 else "receiver@b", payload=b"%d" % i)
        with self.refused(RESOURCE_EXHAUSTED, "node 'b'", "receiver", 1024):
            a.ask("Notify", "Notify", agent="receiver", payload=b"too many")
        came = []
        while len(came) < 1024:
            came += [(getattr(n, "from"), int(n.payload)) for n in b.take().notifications]
        self.assertEqual(came, [("sender@a", i) for i in range(1024)])
        self.assertFalse(b.take().more)
        # Whom it came from can be answered.
        b.ask("Notify", "Notify", agent=came[0][0], payload=b"back")
        self.assertEqual([n.payload for n in a.take(wait_ms=10_000).notifications], [b"back"])
        with self.refused(NOT_FOUND, "nobody"):
            a.ask("Notify", "Notify", agent="nobody", payload=b"")
        with self.refused(INVALID_ARGUMENT, 1025):
            a.ask("Notify", "Notify", agent="receiver@b", payload=b"x" * 1025)

    def test_a_wait_for_notifications_ends_with_one_from_another_node(self):
        a, b = self.agent("a", "caller"), self.agent("b", "waiter")
        taken = []
        thread = threading.Thread(target=lambda: taken.append(b.take(wait_ms=15_000)))
        thread.start()
        a.ask("Notify", "Notify", agent="waiter", payload=b"now")
        thread.join()
        self.assertEqual([n.payload for n in taken[0].notifications], [b"now"])

    def ask_as_node(self, fake, node, **fields):
        """What the daemon of `node` answers to FetchSection of a node that this test plays."""
        hello = fake.introduce(self.members[node])
        with fake_node.grpc.insecure_channel(self.members[node], [("grpc.enable_http_proxy", 0)]) as channel:
            request = peer[0].FetchPeerSectionRequest(
                **{"caller": fake.identity, "incarnation": hello.identity.incarnation, "uid": os.getuid(), "read": True,
                   **fields})
            return peer[1].PeerStub(channel).FetchSection(request, timeout=20)

    def test_millions_of_blocks_are_a_few_hundred_bytes_on_the_wire(self):
        layers, blocks, length = 80, 40_960, 64
        b = self.agent("b", "large", 2 * layers * blocks * length)
        sets = [
            strided(b.region, layer * 2 * blocks * length, length, (2, blocks * length), (blocks, length))
            for layer in range(layers)
        ]
        b.publish("cache", sets)
        self.assertEqual(self.agent("a", "reads").fetch("large", "cache").list.pieces, 6_553_600)
        port = int(self.members["f"].rsplit(":", 1)[1])
        with fake_node.FakeNode(peer, "test", "f", port) as fake:
            whole = self.ask_as_node(fake, "b", agent="large", section="cache")
            self.assertEqual(whole.WhichOneof("content"), "whole")
            self.assertLessEqual(whole.ByteSize(), 4096)
            known = dict(known_incarnation=whole.agent_incarnation, known_version=whole.version)
            unchanged = self.ask_as_node(fake, "b", agent="large", section="cache", **known)
            self.assertTrue(unchanged.unchanged)
            self.assertLessEqual(unchanged.ByteSize(), 4096)
            b.publish("cache", sets[:-1])
            delta = self.ask_as_node(fake, "b", agent="large", section="cache", **known)
            self.assertEqual(delta.WhichOneof("content"), "delta")
            self.assertLess(delta.ByteSize(), whole.ByteSize())
            # Nonsense is refused in words, and harms nobody.
            for fields, code, words in (
                (dict(agent="x" * 256), INVALID_ARGUMENT, "256 bytes"),
                (dict(agent="large@b"), INVALID_ARGUMENT, '"large@b"'),
                (dict(agent="large", section="s" * 256), INVALID_ARGUMENT, "256 bytes"),
                (dict(agent="large", incarnation=1), UNAVAILABLE, "incarnation"),
                (dict(agent="large", section="cache", uid=12345), NOT_FOUND, "12345"),
            ):
                with self.subTest(words), self.refused(code, words):
                    self.ask_as_node(fake, "b", **{"section": "cache", **fields})


class NodeThatIsDown(unittest.TestCase):
    refused = DaemonTest.refused
    assert_code = DaemonTest.assert_code
    session_on = TwoNodes.session_on
    agent = TwoNodes.agent

    def setUp(self):
        self.members = members("abc")
        self.nodes = {name: Node(name, self.members) for name in "ab"}
        self.addCleanup(lambda: [node.stop() for node in self.nodes.values()])
        self.nodes["a"].met("b")

    def test_while_it_says_nothing_others_are_served_and_then_it_is_named(self):
        a, here, b = self.agent("a", "asks"), self.agent("a", "here"), self.agent("b", "silent")
        here.publish()
        b.publish()
        a.fetch("silent")
        self.nodes["b"].process.send_signal(signal.SIGSTOP)
        errors = {}

        def fetch(agent):
            try:
                a.fetch(agent)
            except grpc.RpcError as error:
                errors[agent] = error

        try:
            threads = [threading.Thread(target=fetch, args=(agent,)) for agent in ("silent", "silent@b", "unknown")]
            for thread in threads:
                thread.start()
            session = LeaseSession(self.nodes["a"].lease)  # whose requests the daemon's one loop reads
            self.addCleanup(session.close)
            for _ in range(20):
                session.call(fetch_section=t.FetchSectionRequest(agent="here", section="kv"))
            self.assertEqual(errors, {})
            for thread in threads:
                thread.join()
        finally:
            self.nodes["b"].process.send_signal(signal.SIGCONT)
        # It has missed its deadline, or was taken for lost before.
        self.assertIn(errors["silent@b"].code().value[0], (DEADLINE_EXCEEDED, UNAVAILABLE))
        for error in errors.values():
            self.assertIn("node 'b'", error.details())
        for agent in ("silent", "unknown"):
            self.assert_code(errors[agent], NOT_FOUND, f'"{agent}"')

    def test_it_is_named_and_welcome_when_it_is_back(self):
        a, b = self.agent("a", "left"), self.agent("b", "gone")
        b.publish()
        before = a.fetch("gone")
        self.nodes["b"].process.kill()
        self.nodes["b"].process.wait()
        wait_until(lambda: "peer is lost" in self.nodes["a"].log(), what="the loss of node b")
        with self.refused(NOT_FOUND, '"gone"', "no other node is up", "node 'b'", "node 'c'"):
            a.fetch("gone")
        for ask in (lambda: a.fetch("gone@b"), lambda: a.ask("Notify", "Notify", agent="gone@b")):
            with self.refused(UNAVAILABLE, "node 'b'"):
                ask()
        self.nodes["b"].stop()
        self.nodes["b"] = Node("b", self.members)
        again = self.agent("b", "gone")
        again.publish()
        # A node that is asked for by name is called at once.
        after = a.fetch("gone@b")
        self.assertEqual((after.incarnation, after.node), (again.incarnation, "b"))
        self.assertNotEqual(after.incarnation, before.incarnation)


class NoCluster(DaemonTest):
    def test_an_agent_at_a_node_is_nowhere(self):
        a = Agent(self, "alone")
        with self.refused(NOT_FOUND, '"alone@b"', "in no cluster"):
            a.fetch("alone@b")
        with self.refused(NOT_FOUND, '"x@"', "in no cluster"):
            a.ask("Notify", "Notify", agent="x@", payload=b"")


if __name__ == "__main__":
    unittest.main()
