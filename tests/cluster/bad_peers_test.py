#!/usr/bin/env python3
"""Who comes to a daemon's data port and does not keep to the rules is turned away or cut off with words, and the jobs
of honest nodes go on."""

import random
import socket
import struct
import tempfile
import unittest

import numpy as np

import fake_node
import loopback
import support
import shunt


def noise(count):
    return random.Random(count).randbytes(count)


class WithFake(unittest.TestCase):
    """Daemons a and b, with a job between them all the while. Node 0 is the test's; its name is the smallest, so it is
    the one that connects."""

    @classmethod
    def setUpClass(cls):
        directory = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shunt-fake-"))
        port = loopback.free_ports(1)[0]
        cls.fake = cls.enterClassContext(fake_node.FakeNode(fake_node.load_protocol(directory), "test", "0", port))
        cls.daemons = cls.enterClassContext(loopback.static_cluster("ab", {"0": f"127.0.0.1:{port}"}))
        cls.victim = cls.daemons["b"]
        cls.job = cls.enterClassContext(loopback.Job([daemon.socket for daemon in cls.daemons.values()], "honest"))

    def setUp(self):
        # Whoever proves to be node 0 is given the token for the data port.
        self.answer = self.fake.introduce(self.victim.cluster_status()["address"])
        self.log_before = self.victim.log()

    def tearDown(self):
        self.job.goes_on()
        self.assertEqual(self.victim.log().count('data connection lost node=a'), 0)

    def wait_log(self, *words):
        """For a line that this test has caused."""
        self.victim.wait_log(*words, times=1 + sum(all(word in line for word in words)
                                                   for line in self.log_before.splitlines()))

    def admitted(self):
        """A connection as node 0, with which all is well so far."""
        connection = fake_node.connect(self.answer)
        self.addCleanup(connection.close)
        connection.sendall(self.fake.hello(self.answer))
        self.wait_log("node connected", " node=0")
        return connection


class BadPeers(WithFake):
    def refused(self, first_bytes, *words):
        """A connection that begins so is closed without an answer, and the log says why."""
        with fake_node.connect(self.answer) as connection:
            connection.sendall(first_bytes)
            self.assertEqual(fake_node.rest_of(connection), b"")
            self.wait_log("data connection refused", "127.0.0.1:%d" % connection.getsockname()[1], *words)

    def test_random_first_bytes(self):
        self.refused(noise(fake_node.HELLO_BYTES), "hello: magic is ")
        self.refused(b"SHNT" + noise(fake_node.HELLO_BYTES), "hello: ")

    def test_half_a_hello_and_then_the_end(self):
        with fake_node.connect(self.answer) as connection:
            connection.sendall(self.fake.hello(self.answer)[:100])
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(fake_node.rest_of(connection), b"")
            self.wait_log("data connection refused", "%d: closed" % connection.getsockname()[1])

    def test_half_a_hello_and_then_silence(self):
        self.refused(self.fake.hello(self.answer)[:100], "has sent 100 bytes in ", "expected 256")

    def test_a_token_that_was_not_issued(self):
        words = "the token of 0 is not the one issued to it"
        self.refused(self.fake.hello(self.answer, token=noise(32)), words)
        self.refused(self.fake.hello(self.answer, token=bytes(32)), words)
        self.assertNotIn(self.answer.data_token.hex(), self.victim.log())

    def test_the_name_of_a_node_that_is_connected(self):
        # With the token of another one.
        self.refused(self.fake.hello(self.answer, sender="a"), "the token of a is not the one issued to it")

    def test_another_version_of_the_protocol(self):
        self.refused(self.fake.hello(self.answer, versions=(2, 3)), "wire version: the peer speaks 2 to 3, expected one of 1 to 1")

    def test_another_cluster(self):
        self.refused(self.fake.hello(self.answer, cluster="other"), "cluster is other, expected test")

    def test_another_incarnation(self):
        self.refused(self.fake.hello(self.answer, incarnation=7), "incarnation of 0 is 7, expected ")

    def test_who_was_refused_may_come_as_it_should(self):
        self.refused(self.fake.hello(self.answer, token=noise(32)), "token of 0")
        self.admitted()

    def test_a_node_that_sends_noise_once_it_is_known(self):
        self.admitted().sendall(noise(1000))
        self.wait_log("data connection lost", " node=0", "frame: magic is ")

    def test_a_node_that_ends_in_the_middle_of_a_header(self):
        connection = self.admitted()
        connection.sendall(struct.pack("<HBB", 0x4853, 1, 12))
        connection.shutdown(socket.SHUT_WR)
        self.wait_log("data connection lost", " node=0", "closed the connection")

    def test_a_node_that_announces_more_payload_than_may_follow_a_header(self):
        ping = bytearray(struct.pack("<HBB", 0x4853, 1, 12).ljust(80, b"\0"))
        ping[8:12] = struct.pack("<I", 1 << 31)
        self.admitted().sendall(ping)
        self.wait_log("data connection lost", " node=0", "payload bytes is 2147483648, expected at most 1048576")

    def test_a_node_that_says_nothing_once_it_is_known(self):
        self.admitted()
        self.wait_log("data connection lost", " node=0", "silent for ")


class Crowd(WithFake):
    def test_strangers_who_say_nothing_keep_no_honest_node_out_and_do_not_fill_the_log(self):
        for _ in range(200):
            self.addCleanup(fake_node.connect(self.answer).close)
        self.wait_log("data connection refused", "64 connections have not shown a token")
        self.admitted()
        self.assertLess(self.victim.log().count("data connection refused"), 60)


class OneConnection(unittest.TestCase):
    """What goes wrong in one communicator, with another on the same connection."""

    @classmethod
    def setUpClass(cls):
        cls.daemons = cls.enterClassContext(loopback.static_cluster("ab"))
        cls.sockets = [daemon.socket for daemon in cls.daemons.values()]
        cls.job = cls.enterClassContext(loopback.Job(cls.sockets, "honest"))

    def tearDown(self):
        self.job.goes_on()
        for daemon in self.daemons.values():
            self.assertEqual(daemon.log().count("node connected"), 1, daemon.log())

    def both(self, name, body):
        """body(comm) for a rank at each daemon: what they raise."""
        with shunt.connect(self.sockets[0]) as a, shunt.connect(self.sockets[1]) as b:
            comms = loopback.join_all([a, b], name)
            return loopback.outcomes([lambda comm=comm: body(comm) for comm in comms])[1]

    def test_calls_of_other_lengths_end_alone(self):
        for error in self.both("lengths", lambda comm: comm.all_reduce(np.ones(100_000 + comm.rank, np.float32))):
            self.assertIsInstance(error, shunt.FailedPrecondition)
            self.assertIn("count 100000", str(error))
            self.assertIn("count 100001", str(error))

    def test_a_rank_that_never_calls_holds_up_its_own_communicator_only(self):
        def body(comm):
            if comm.rank == 1:
                self.job.goes_on()
                return
            comm.all_reduce(np.ones(4_000_000, np.float32), timeout=1)

        first, second = self.both("late", body)
        self.assertIsNone(second)
        self.assertIsInstance(first, shunt.Error)
        self.assertIn("rank 1", str(first))


if __name__ == "__main__":
    support.main()
