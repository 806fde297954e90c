#!/usr/bin/env python3
"""A real Prometheus scrapes two daemons while their ranks exchange over a shaped link: what the daemons count is what the
interfaces count, and utilisation is what bytes, time and capacity say."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/cluster"), str(ROOT / "tests/python"), str(ROOT / "tests/daemon")]
import metrics_page  # noqa: E402

metrics_page.need("prometheus", "tc", "setpriv")
import netns  # noqa: E402

if __name__ == "__main__":
    netns.enter_user_namespace()
import support  # noqa: E402
import shunt  # noqa: E402

RATE = "200mbit"
METRICS = 9464
MIB = 1 << 20


class Prometheus:
    """On node 0, which sees both."""

    def __init__(self, cluster, interval="1s"):
        self.node = cluster.nodes[0]
        directory = pathlib.Path(cluster.directory) / "prometheus"
        directory.mkdir()
        targets = [f"{node.address}:{METRICS}" for node in cluster.nodes]
        (directory / "prometheus.yaml").write_text(json.dumps({
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(ROOT / "deploy/prometheus/rules.yaml")],
            "scrape_configs": [{"job_name": "shuntd", "static_configs": [{"targets": targets}]}],
        }))
        self.log = directory / "log"
        with open(self.log, "wb") as log:
            self.process = self.node.popen(
                ["prometheus", f"--config.file={directory}/prometheus.yaml", f"--storage.tsdb.path={directory}/data",
                 "--web.listen-address=127.0.0.1:9090"], stdout=log, stderr=log)
        support.wait_until(self.ready, "Prometheus")

    def get(self, path, **query):
        with self.node.inside():
            url = f"http://127.0.0.1:9090{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.read()

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        with contextlib.suppress(OSError):
            return b"Ready" in self.get("/-/ready")
        return False

    def query(self, text):
        """[(labels, value)]."""
        answer = json.loads(self.get("/api/v1/query", query=text))
        assert answer["status"] == "success", answer
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def value(self, text):
        results = self.query(text)
        return results[0][1] if len(results) == 1 else None

    def samples(self, selector):
        """[(time, value)] of one series, all of the last minutes."""
        answer = json.loads(self.get("/api/v1/query", query=f"{selector}[10m]"))
        assert len(answer["data"]["result"]) == 1, (selector, answer)
        return [(float(at), float(value)) for at, value in answer["data"]["result"][0]["values"]]


class Scraped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = netns.Cluster(nodes=2, rate=RATE)
        cls.addClassCleanup(cls.cluster.close)
        cls.daemons = [
            node.shuntd(flags=["--metrics-address", f"{node.address}:{METRICS}"]) for node in cls.cluster.nodes]
        for daemon in cls.daemons:
            support.wait_until(lambda daemon=daemon: "link measured" in daemon.log(), "the link to be measured")
        cls.prometheus = Prometheus(cls.cluster)
        support.wait_until(lambda: cls.prometheus.value('sum(up{job="shuntd"})') == 2, "both daemons to be scraped")

    def page(self, index):
        node = self.cluster.nodes[index]
        return metrics_page.scrape(f"{node.address}:{METRICS}", node)

    def ranks(self, body, name):
        """body(session, comm) for a rank on each node, in a thread each."""
        results = [None, None]

        def run(rank):
            try:
                with shunt.connect(self.daemons[rank].socket) as session:
                    results[rank] = body(session, session.join(name, rank, 2, timeout=support.PATIENCE))
            except Exception as error:  # told below, by rank
                results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rank, result in enumerate(results):
            if isinstance(result, Exception):
                raise AssertionError(f"rank {rank}: {result!r}") from result
        return results

    def test_bytes_are_those_of_the_interface_and_utilisation_follows(self):
        def body(session, comm):
            x = session.zeros(4 * MIB, "float32")  # 16 MiB
            comm.all_reduce(x[:8])
            comm.barrier()
            for _ in range(6):
                comm.all_reduce(x)
            comm.barrier()

        link = 'shunt_link_bytes_total{instance="%s:%d"' % (self.cluster.nodes[1].address, METRICS)
        before, nic_before = self.page(1), self.cluster.nodes[1].bytes()
        self.ranks(body, "shaped")
        after, nic_after = self.page(1), self.cluster.nodes[1].bytes()
        # Two nodes: the vector goes each way once. Node 1 has no Prometheus of its own on the link but its scrapes,
        # which are counted: a few hundred KB of a hundred MB.
        payload = 6 * 16 * MIB
        for direction, nic in (("out", nic_after.sent - nic_before.sent), ("in", nic_after.received - nic_before.received)):
            grown = (after.total("shunt_link_bytes_total", link="n0", direction=direction) -
                     before.total("shunt_link_bytes_total", link="n0", direction=direction))
            self.assertGreaterEqual(grown, payload)
            self.assertLess(abs(grown / nic - 1), 0.05, f"{direction}: {grown} of {nic}")
            bulk = (after.value("shunt_link_bytes_total", link="n0", direction=direction, **{"class": "bulk"}) -
                    before.value("shunt_link_bytes_total", link="n0", direction=direction, **{"class": "bulk"}))
            self.assertGreaterEqual(bulk, payload)
            self.assertLess(bulk, 1.01 * payload)
        capacity = after.value("shunt_link_capacity_bytes_per_second", link="n0")
        self.assertGreater(capacity, 0)

        # What Prometheus has seen: between two samples, bytes over time over capacity is the second one's utilisation.
        total = after.total("shunt_link_bytes_total", link="n0", direction="out")
        support.wait_until(lambda: (self.prometheus.value(f'sum({link},direction="out"}})') or 0) >= total, "the last scrape")
        series = self.prometheus.samples(f'sum({link},direction="out"}})'.replace("sum(", "").replace("})", ',class="bulk"}'))
        used = dict(self.prometheus.samples(
            f'shunt_link_utilization_ratio{{instance="{self.cluster.nodes[1].address}:{METRICS}",direction="out"}}'))
        busiest = max(used, key=used.get)
        times = [at for at, _ in series]
        index = times.index(busiest)
        (t0, bytes0), (t1, bytes1) = series[index - 1], series[index]
        # A scrape's time is when it began, the daemon's is when it looked; control traffic is the rest.
        self.assertLess(abs((bytes1 - bytes0) / (t1 - t0) / capacity / used[busiest] - 1), 0.15)
        # The link was full, and no more than that: tbf lets through what its rate says.
        rate = used[busiest] * capacity
        self.assertLess(rate, 1.3 * 200e6 / 8)

    def test_operations_and_their_durations_are_seen_on_both_nodes(self):
        before = [self.page(index) for index in range(2)]
        count = 5

        def body(session, comm):
            x = session.zeros(MIB, "uint8")
            for _ in range(count):
                comm.all_reduce(x)

        self.ranks(body, "counted")
        for index in range(2):
            page = self.page(index)
            def grown(name, **labels):
                return page.total(name, **labels) - before[index].total(name, **labels)
            self.assertEqual(grown("shunt_operations_total", op="all_reduce", outcome="success"), count)
            self.assertEqual(grown("shunt_operation_bytes_total", op="all_reduce"), count * MIB)
            self.assertEqual(grown("shunt_operation_duration_seconds_count", op="all_reduce"), count)
            self.assertGreater(grown("shunt_operation_duration_seconds_sum", op="all_reduce"), 0)
            self.assertGreater(page.value("shunt_operation_busbw_bytes_per_second", op="all_reduce"), 0)
            self.assertEqual(page.values("shunt_operation_duration_seconds_count", algorithm="board"), [])

    def test_the_rank_that_comes_last_is_named(self):
        """On one node: ranks of two nodes have no clock in common."""
        seen = threading.Event()
        results = []

        def run(rank):
            with shunt.connect(self.daemons[0].socket) as session:
                comm = session.join("late", rank, 2, timeout=support.PATIENCE)
                x = session.zeros(4, "float32")
                comm.all_reduce(x)
                if rank == 1:
                    seen.wait(support.PATIENCE)
                comm.all_reduce(x)
                results.append(rank)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        try:
            support.wait_until(lambda: self.page(0).values("shunt_slowest_rank", communicator="late") == [1] and
                               self.page(0).value("shunt_rank_arrival_skew_seconds", communicator="late") > 0.05,
                               "rank 1 to be missing")
        finally:
            seen.set()
            for thread in threads:
                thread.join()
        self.assertEqual(sorted(results), [0, 1])

    def test_transfers_are_counted_where_they_were_posted(self):
        before = [self.page(index) for index in range(2)]
        with shunt.connect(self.daemons[0].socket) as a, shunt.connect(self.daemons[1].socket) as b:
            theirs = a.zeros((64, 16 << 10), "uint8")
            a.agent("owner").publish("blocks", theirs, access="read")
            mine = b.zeros((64, 16 << 10), "uint8")
            own, there = b.prepare(mine), b.fetch("owner", "blocks")
            b.pull(own.ids(list(range(64))), there.ids(list(range(64))), timeout=support.PATIENCE).wait()
        pages = [self.page(index) for index in range(2)]
        for index, grown in ((0, 0), (1, 1)):
            self.assertEqual(pages[index].value("shunt_transfers_total", route="pull", outcome="success") -
                             before[index].value("shunt_transfers_total", route="pull", outcome="success"), grown)
            self.assertEqual(pages[index].total("shunt_transfer_bytes_total", route="pull") -
                             before[index].total("shunt_transfer_bytes_total", route="pull"), grown * MIB)
        self.assertEqual(pages[1].value("shunt_transfers_in_flight"), 0)

    def test_peers_and_rules_are_there(self):
        for index, peer in ((0, "n1"), (1, "n0")):
            page = self.page(index)
            self.assertEqual(page.value("shunt_peer_up", peer=peer), 1)
            support.wait_until(lambda: self.page(index).values("shunt_peer_rtt_seconds", peer=peer), "a round trip")
            self.assertLess(self.page(index).value("shunt_peer_rtt_seconds", peer=peer), 5)
            self.assertEqual(len(page.values("shunt_event_loop_lag_seconds")), 3)
        support.wait_until(lambda: len(self.prometheus.query("instance_direction:shunt_link_utilization:ratio1m")) == 4,
                           "the recording rules")
        rules = json.loads(self.prometheus.get("/api/v1/rules"))["data"]["groups"]
        for group in rules:
            for rule in group["rules"]:
                self.assertIn(rule["health"], ("ok", "unknown"), rule)

    def test_zz_a_peer_that_is_gone_is_down(self):
        self.daemons[1].stop()
        support.wait_until(lambda: self.page(0).values("shunt_peer_up", peer="n1") == [0], "the peer to be down")
        # What passed stays counted.
        self.assertGreater(self.page(0).total("shunt_link_bytes_total", link="n1"), 0)


if __name__ == "__main__":
    unittest.main()
