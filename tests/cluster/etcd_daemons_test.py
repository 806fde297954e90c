#!/usr/bin/env python3
"""Daemons whose members are in etcd, with etcd absent at first, gone for a while, and back."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import loopback
import support
import shunt


class Etcd:
    """A private etcd that can go and come back with what it knew."""

    def __init__(self, directory):
        self._directory = directory
        ports = loopback.free_ports(2)
        self.url, self._peer = (f"http://127.0.0.1:{port}" for port in ports)
        self._process = None

    def start(self):
        command = ["etcd", "--name", "test", "--data-dir", os.path.join(self._directory, "etcd"),
                   "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                   "--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer,
                   "--initial-cluster", f"test={self._peer}", "--logger", "zap"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None


class EtcdComesAndGoes(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory(prefix="shunt-etcd-"))
        self.etcd = Etcd(self.directory)
        self.addCleanup(self.etcd.kill)

    def start_daemons(self):
        self.daemons = {}
        for name in "ab":
            self.daemons[name] = loopback.Daemon(
                self.directory, name,
                f'listen = "127.0.0.1:0"\nmembership = "etcd"\netcd_endpoints = ["{self.etcd.url}"]\netcd_lease = "3s"')
            self.addCleanup(self.daemons[name].stop)
        self.sockets = [daemon.socket for daemon in self.daemons.values()]

    def job(self, name):
        return loopback.Job(self.sockets, name)

    def joining_says_why_it_cannot(self):
        """At each daemon, long before the join's own deadline, and shuntctl says so too."""

        def try_to_join(daemon, name, timeout):
            with shunt.connect(daemon.socket) as session:
                session.join(name, 0, 2, timeout=timeout)

        # One that is in a hurry hears the same.
        tries = [lambda daemon=daemon, join=join: try_to_join(daemon, *join)
                 for daemon in self.daemons.values()
                 for join in (("in vain", 2 * support.PATIENCE), ("in a hurry", 0.5))]
        for error in loopback.outcomes(tries)[1]:
            self.assertIsInstance(error, shunt.Unavailable)
            self.assertIn(f"etcd at {self.etcd.url}", str(error))
        for daemon in self.daemons.values():
            self.assertIn(self.etcd.url, daemon.cluster_status()["membership_trouble"])
            self.assertIn("members not known", daemon.shuntctl("status"))
            self.assertIn("the membership is not known", daemon.log())

    def all_is_well(self):
        for daemon in self.daemons.values():
            support.wait_until(lambda daemon=daemon: not daemon.cluster_status()["membership_trouble"], "etcd to be seen")

    def test_daemons_start_without_etcd_and_say_so_and_meet_once_it_is_there(self):
        self.start_daemons()
        self.joining_says_why_it_cannot()
        # Ranks of one node do not need the others to be known.
        with loopback.Job([self.sockets[0]] * 2, "on one node"):
            self.etcd.start()
            self.all_is_well()
            loopback.connected(self.daemons)
            with self.job("across"):
                pass

    def test_jobs_go_on_while_etcd_is_gone_and_new_ones_begin_when_it_is_back(self):
        self.etcd.start()
        self.start_daemons()
        loopback.connected(self.daemons)
        with self.job("running") as running:
            self.etcd.kill()
            for daemon in self.daemons.values():
                daemon.wait_log("the membership is not known", self.etcd.url)
            self.joining_says_why_it_cannot()
            running.goes_on()
            self.etcd.start()
            self.all_is_well()
            with self.job("new"):
                running.goes_on()
        for daemon in self.daemons.values():
            self.assertNotIn("peer is lost", daemon.log())


if __name__ == "__main__":
    if shutil.which("etcd") is None:
        print("skipped: etcd is not installed (Debian: etcd-server)")
        sys.exit(77)
    support.main()
