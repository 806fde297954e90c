#!/usr/bin/env python3
"""The metrics of one daemon: what is shown, to whom and how, and that pages, rules, documents and dashboard agree."""

import concurrent.futures
import json
import re
import threading

import metrics_page
from harness import *
from metrics_page import Page, ask, free_address, promtool, scrape

metrics_page.need("promtool")

PROMETHEUS = ROOT / "deploy/prometheus"
# prometheus-cpp shows these of itself.
FOREIGN = ("exposer_", "process_")


def shown(name):
    """The family that a sample's name belongs to."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.address = free_address()
        cls.shuntd = Shuntd("--metrics-address", cls.address)
        cls.addClassCleanup(cls.shuntd.stop)

    def page(self):
        return scrape(self.address)

    def lease(self, *args, **kwargs):
        session = LeaseSession(self.shuntd.lease, *args, **kwargs)
        self.addCleanup(session.close)
        return session

    def test_nothing_listens_unless_it_is_asked_for(self):
        quiet = Shuntd()
        self.addCleanup(quiet.stop)
        listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(f"pid={quiet.process.pid},", listening)
        self.assertIn(f"pid={self.shuntd.process.pid},", listening)

    def test_promtool_finds_nothing_to_complain_of(self):
        done = promtool("check", "metrics", text=self.page().text)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_names_are_ours_with_help_and_few_labels(self):
        page = self.page()
        for name, kind in page.types.items():
            self.assertTrue(name.startswith(("shunt_", *FOREIGN)), name)
            self.assertTrue(page.help[name], name)
            self.assertEqual(name.endswith("_total"), kind == "counter", name)
        known = {"version", "kind", "op", "outcome", "algorithm", "communicator", "route", "class", "store", "link", "direction",
                 "peer", "code", "loop", "le", "quantile"}
        self.assertLessEqual({label for s in page.samples for label in s.labels}, known)
        for sample in page.samples:
            self.assertIn(shown(sample.name) if shown(sample.name) in page.types else sample.name, page.types)

    def test_the_document_has_every_metric_and_no_other(self):
        documented = set(re.findall(r"^\| `([a-z_]+)[`{]", (ROOT / "docs/metrics.md").read_text(encoding="utf-8"), re.M))
        self.assertEqual(documented, set(self.page().types))

    def test_what_sessions_hold_is_counted_and_given_back(self):
        before = self.page()
        session = LeaseSession(self.shuntd.lease, rings=8)
        os.close(session.allocate(1 << 20)[1])
        session.join("held", 0, 1)
        page = self.page()
        self.assertEqual(page.value("shunt_sessions"), before.value("shunt_sessions") + 1)
        self.assertEqual(page.value("shunt_regions"), before.value("shunt_regions") + 1)
        grown = page.value("shunt_regions_bytes", kind="memory") - before.value("shunt_regions_bytes", kind="memory")
        self.assertGreaterEqual(grown, 1 << 20)
        self.assertEqual(page.value("shunt_communicators"), before.value("shunt_communicators") + 1)
        self.assertEqual(page.value("shunt_communicator_operations_total", communicator="held"), 0)
        session.close()
        wait_until(lambda: self.page().value("shunt_sessions") == before.value("shunt_sessions"))
        self.assertEqual(self.page().values("shunt_communicator_operations_total", communicator="held"), [])
        self.assertEqual(self.page().value("shunt_regions"), before.value("shunt_regions"))

    def test_errors_are_counted_by_code_on_both_sockets(self):
        before = self.page()
        session = self.lease()
        with self.assertRaises(LeaseError):
            session.call(free_region=api.memory.FreeRegionRequest(region_id=99))
        plain = plain_grpc.Session(api, self.shuntd.socket, "plain")
        self.addCleanup(plain.channel.close)
        self.addCleanup(plain.lease.socket.close)
        with self.assertRaises(plain_grpc.grpc.RpcError):
            plain.submit(77, api.collective.OPERATION_KIND_BARRIER)
        self.assertEqual(self.page().value("shunt_errors_total", code="NOT_FOUND"),
                         before.value("shunt_errors_total", code="NOT_FOUND") + 2)

    def test_calls_that_the_daemon_posts_are_counted_like_any(self):
        before = self.page()
        session = plain_grpc.Session(api, self.shuntd.socket, "plain")
        self.addCleanup(session.channel.close)
        self.addCleanup(session.lease.socket.close)
        region, memory = session.allocate(8192)
        communicator = session.join("alone", 0, 1)
        session.all_reduce(communicator, region, 0, 4096, 1000)
        page = self.page()
        labels = {"op": "all_reduce"}
        for name, grown in (("shunt_operation_bytes_total", 4000), ("shunt_operations_total", 1)):
            more = labels | ({"outcome": "success"} if name == "shunt_operations_total" else {})
            self.assertEqual(page.value(name, **more) - before.value(name, **more), grown, name)
        self.assertEqual(page.value("shunt_operation_duration_seconds_count", op="all_reduce", algorithm="board") -
                         before.total("shunt_operation_duration_seconds_count", op="all_reduce", algorithm="board"), 1)
        del memory

    def test_a_name_that_a_job_chose_breaks_no_line(self):
        session = self.lease()
        session.join('a"b\\c {x="y"} 1', 0, 1)
        page = self.page()
        self.assertEqual(len(page.values("shunt_communicator_operations_total", communicator=r'a\"b\\c {x=\"y\"} 1')), 1)
        self.assertEqual(promtool("check", "metrics", text=page.text).returncode, 0)

    def test_other_paths_and_methods_are_answered(self):
        cases = [
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
            (b"GET /metrics/x HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
            (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
            (b"GET /metrics%2f.. HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
            (b"GET /metrics?name[]=up HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
            (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
            (b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
            (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd", b"405"),
            (b"PUT /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"405"),
            (b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
            (b"OPTIONS /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
            (b"NONSENSE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/9.9\r\nHost: x\r\n\r\n", b"505"),
            (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"4"),
        ]
        for request, status in cases:
            with self.subTest(request[:60]):
                answer = ask(self.address, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                self.assertTrue(answer.split(b"\r\n")[0].split(b" ")[1].startswith(status), answer[:200])
                if request.startswith(b"HEAD"):
                    self.assertTrue(answer.endswith(b"\r\n\r\n"))
                if status == b"405":
                    self.assertIn(b"Allow: GET, HEAD\r\n", answer)
        self.assertIsNone(self.shuntd.process.poll())
        self.assertEqual(self.page().value("shunt_build_info"), 1)

    def test_a_thousand_scrapes_at_once_are_all_answered_by_a_few_threads(self):
        def threads():
            count = 0
            for task in pathlib.Path(f"/proc/{self.shuntd.process.pid}/task").iterdir():
                try:
                    count += (task / "comm").read_text() == "shunt-metrics\n"
                except OSError:
                    pass  # it has ended
            return count

        before = most = threads()
        self.assertIn(before, range(1, 9))

        def one(_):
            return self.page().value("shunt_build_info")

        with concurrent.futures.ThreadPoolExecutor(250) as pool:
            answers = [pool.submit(one, i) for i in range(1000)]
            for answer in concurrent.futures.as_completed(answers):
                most = max(most, threads())
        self.assertEqual([answer.result() for answer in answers], [1] * 1000)
        self.assertEqual(most, before)
        # Sessions are served as ever.
        os.close(self.lease().allocate(4096)[1])

    def test_connections_that_say_nothing_hold_up_nobody_for_good(self):
        host, port = self.address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(8)]
        for connection in silent:
            self.addCleanup(connection.close)
            connection.sendall(b"GET /met")
        self.assertEqual(self.page().value("shunt_build_info"), 1)

    def test_a_taken_port_is_named_with_its_key_and_what_to_do(self):
        with tempfile.TemporaryDirectory() as directory:
            config = pathlib.Path(directory) / "shuntd.toml"
            config.write_text(f'socket = "{directory}/s.sock"\n[metrics]\naddress = "{self.address}"\n')
            done = subprocess.run([SHUNTD, "--config", config], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(
                done.stderr.strip().splitlines()[-1],
                f'shuntd: {config}:3: metrics.address is "{self.address}": another process listens there; name another port, '
                'or "" for no metrics')
            self.assertEqual(os.listdir(directory), ["shuntd.toml"])

    def test_a_name_or_another_machines_address_is_refused(self):
        for address, words in (("localhost:9464", "expected an IP address and a port"),
                               ("192.0.2.1:9464", "this machine has no such address")):
            done = subprocess.run([SHUNTD, "--socket", "/tmp/none.sock", "--metrics-address", address], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertIn(address, done.stderr)

    def test_a_stopped_daemon_leaves_no_scrape_waiting(self):
        address = free_address()
        daemon = Shuntd("--metrics-address", address)
        stop = threading.Event()

        def scrapes():
            while not stop.is_set():
                try:
                    scrape(address)
                except OSError:
                    return  # it has gone

        threads = [threading.Thread(target=scrapes) for _ in range(8)]
        for thread in threads:
            thread.start()
        self.assertEqual(daemon.stop(), 0)
        stop.set()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())


class Files(unittest.TestCase):
    """What lies in deploy/prometheus."""

    def test_alerts_fire_when_they_should_and_only_then(self):
        for command in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"], ["check", "config", "prometheus.yaml"]):
            done = promtool(*command, cwd=PROMETHEUS)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_is_tested_and_explained(self):
        rules = (PROMETHEUS / "rules.yaml").read_text(encoding="utf-8")
        tests = (PROMETHEUS / "rules_test.yaml").read_text(encoding="utf-8")
        manual = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
        alerts = re.findall(r"- alert: (\w+)", rules)
        self.assertGreaterEqual(len(alerts), 8)
        for alert in alerts:
            self.assertIn(f"alertname: {alert}\n", tests)
            self.assertIn(f"| `{alert}` |", manual)
        for alert in re.findall(r"`(Shunt[A-Z]\w+)`", manual):
            self.assertIn(alert, alerts)

    def expressions(self):
        dashboard = json.loads((PROMETHEUS / "dashboard.json").read_text(encoding="utf-8"))
        found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(found), 30)
        return found

    def test_every_query_of_the_dashboard_can_be_parsed(self):
        lines = ["groups:", "- name: dashboard", "  rules:"]
        for number, (title, query) in enumerate(self.expressions()):
            # What Grafana puts in.
            query = query.replace("$__rate_interval", "1m").replace("$instance", ".+")
            self.assertNotIn("$", query, title)
            lines += [f"  - record: panel:{number}", f"    expr: {json.dumps(query)}"]
        with tempfile.TemporaryDirectory() as directory:
            rules = pathlib.Path(directory) / "rules.yaml"
            rules.write_text("\n".join(lines) + "\n", encoding="utf-8")
            done = promtool("check", "rules", rules)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_dashboard_and_rules_ask_for_nothing_that_is_not_shown(self):
        address = free_address()
        daemon = Shuntd("--metrics-address", address)
        self.addCleanup(daemon.stop)
        types = scrape(address).types
        rules = (PROMETHEUS / "rules.yaml").read_text(encoding="utf-8")
        recorded = set(re.findall(r"- record: (\S+)", rules))
        texts = [query for _, query in self.expressions()]
        texts += re.sub(r"#.*|summary:.*", "", rules).splitlines()
        for text in texts:
            for name in re.findall(r"\b((?:\w+:)?(?:shunt|process)_\w+(?::\w+)?)", text):
                if ":" in name:
                    self.assertIn(name, recorded)
                else:
                    self.assertIn(name if name in types else shown(name), types, text)


if __name__ == "__main__":
    unittest.main()
