#!/usr/bin/env python3
"""A daemon that has proved who it is, and then stops in the middle of the work: its sockets stay open, but nobody reads."""

import contextlib
import os
import signal
import time
import unittest

import numpy as np

import loopback
import netns
import support
import shunt

# Silence of 2.5 s ends a connection; looked at every half second. The rest is this machine's.
NOTICED_SECONDS = 5
COUNT = 16 << 20  # 64 MiB: seconds of work for these links
RATE = "250mbit"


class StoppedDaemon(unittest.TestCase):
    def test_ranks_elsewhere_are_told_in_time_and_other_communicators_go_on(self):
        with netns.Cluster(nodes=3, rate=RATE) as cluster, contextlib.ExitStack() as stack:
            daemons = [node.shuntd() for node in cluster.nodes]
            for daemon in daemons:
                support.wait_until(lambda daemon=daemon: daemon.log().count("node connected") >= 2, "the nodes to meet")
            job = stack.enter_context(loopback.Job([daemon.socket for daemon in daemons[:2]], "remaining"))
            sessions = [stack.enter_context(shunt.connect(daemon.socket)) for daemon in daemons]
            comms = loopback.join_all(sessions, "big", default_timeout=10 * support.PATIENCE)
            before = cluster.nodes[2].bytes().received
            waiting = [comm.all_reduce(session.array(np.ones(COUNT, np.float32)), async_op=True)
                       for session, comm in zip(sessions, comms)]
            support.wait_until(lambda: cluster.nodes[2].bytes().received > before + (4 << 20), "the data to flow")

            os.kill(daemons[2].process.pid, signal.SIGSTOP)
            began = time.monotonic()
            try:
                _, errors = loopback.outcomes(
                    [lambda operation=operation: operation.wait(support.PATIENCE) for operation in waiting[:2]])
                took = time.monotonic() - began
                print(f"named {took:.3f} s after the stop")
                for error in errors:
                    self.assertIsInstance(error, shunt.Unavailable, repr(error))
                    # Whoever notices first: both connections to it are watched.
                    self.assertRegex(str(error), r"node n2 is lost \((its control connection: |node n2 at .*: silent for )")
                self.assertLess(took, NOTICED_SECONDS)
                job.goes_on()
                with loopback.Job([daemon.socket for daemon in daemons[:2]], "new"):
                    pass
            finally:
                os.kill(daemons[2].process.pid, signal.SIGCONT)

            # It is told what it has missed, and welcome again.
            with self.assertRaisesRegex(shunt.Unavailable, "node n[01] is lost|rank [01]"):
                waiting[2].wait(support.PATIENCE)
            with loopback.Job([daemon.socket for daemon in daemons], "again"):
                job.goes_on()


if __name__ == "__main__":
    netns.enter_user_namespace()
    support.main()
