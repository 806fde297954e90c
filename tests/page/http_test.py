"""The status page as HTTP: two things to be read, bounded, and nothing else."""

import concurrent.futures
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools"))
from world import support  # noqa: E402

import shunt  # noqa: E402


class Page:
    """A shuntd with a status page on a port that was free."""

    def __init__(self, *flags, address="127.0.0.1:0"):
        self.directory = tempfile.TemporaryDirectory(prefix="shunt-page-")
        self.socket = os.path.join(self.directory.name, "s.sock")
        self.log_path = os.path.join(self.directory.name, "log")
        with open(self.log_path, "w") as log:
            command = [os.environ["SHUNTD"], "--socket", self.socket, "--page-address", address, *flags]
            self.process = subprocess.Popen(command, stderr=log)
        support.wait_until(lambda: self.process.poll() is not None or "shuntd is ready" in self.log(), "the daemon")
        found = re.search(r"status page host=\S+ port=(\d+)", self.log())
        self.port = int(found[1]) if found else None

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def ask(self, method, path, headers=None, host="127.0.0.1"):
        connection = http.client.HTTPConnection(host, self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def raw(self, data):
        """All that comes for these bytes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as s:
            s.sendall(data)
            got = b""
            try:
                while chunk := s.recv(1 << 16):
                    got += chunk
            except ConnectionResetError:
                pass
            return got

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(timeout=30)
        self.directory.cleanup()
        return status


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = Page()

    @classmethod
    def tearDownClass(cls):
        assert cls.page.stop() == 0

    def tearDown(self):
        self.assertIsNone(self.page.process.poll(), self.page.log())

    def test_the_page_is_small_and_asks_for_nothing_from_elsewhere(self):
        answer, body = self.page.ask("GET", "/")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.getheader("Content-Type"), "text/html; charset=utf-8")
        self.assertLess(len(body), 60 * 1024)
        self.assertEqual(re.findall(rb"https?://", body), [])
        self.assertEqual(re.findall(rb'(?:src|href)="(?!#|data:,")', body), [])
        self.assertNotIn(b"@NONCE@", body)
        policy = answer.getheader("Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        nonce = re.search("script-src 'nonce-([0-9a-f]{32})'", policy)[1]
        self.assertEqual(body.count(nonce.encode()), 2)
        self.assertNotIn(nonce.encode(), self.page.ask("GET", "/")[1])  # another each time
        for name, value in (("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"), ("Cache-Control", "no-store")):
            self.assertEqual(answer.getheader(name), value)

    def test_the_status_is_what_shuntctl_prints(self):
        with shunt.connect(self.page.socket, name='quote " <b>&') as session:
            comm = session.join("shown", 0, 1)

            def shown():
                answer, body = self.page.ask("GET", "/status.json")
                self.assertEqual((answer.status, answer.getheader("Content-Type")), (200, "application/json"))
                self.status = json.loads(body)
                return self.status["communicators"] and self.status["sessions"]

            support.wait_until(shown, "the communicator to be shown")
            comm.leave()
        self.assertEqual(self.status["sessions"][0]["name"], 'quote " <b>&')
        self.assertEqual(self.status["communicators"][0]["name"], "shown")
        self.assertEqual(self.status["status"]["pid"], self.page.process.pid)
        self.assertEqual(self.status["topology"]["cpus"], len(os.sched_getaffinity(0)))
        self.assertEqual(self.status["sessions_total"], 1)
        self.assertEqual(self.status["transfers"], [])

    def test_other_paths_are_not_found(self):
        for path in ("/etc/passwd", "/../../etc/passwd", "/%2e%2e/etc/passwd", "/status.json/", "/status.html", "//", "/index.html",
                     "/%00", "/status.json%00", "/" + "a" * 4000):
            answer, body = self.page.ask("GET", path)
            self.assertIn(answer.status, (400, 404), path)
            self.assertNotIn(b"root:", body)

    def test_what_comes_after_a_question_mark_does_not_count(self):
        self.assertEqual(self.page.ask("GET", "/status.json?x=1")[0].status, 200)

    def test_it_can_be_read_only(self):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            answer, _ = self.page.ask(method, "/")
            self.assertEqual(answer.status, 405, method)
            self.assertEqual(answer.getheader("Allow"), "GET, HEAD")
        self.assertIn(b" 405 ", self.page.raw(b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n")[0] + b" 405 ")

    def test_head_says_what_get_would(self):
        head, nothing = self.page.ask("HEAD", "/")
        self.assertEqual((head.status, nothing), (200, b""))
        self.assertEqual(head.getheader("Content-Length"), self.page.ask("GET", "/")[0].getheader("Content-Length"))

    def test_a_name_of_another_site_is_refused(self):
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"):
            self.assertEqual(self.page.ask("GET", "/status.json", {"Host": host})[0].status, 421, host)
        for host in ("localhost", f"LOCALHOST:{self.page.port}", "127.0.0.1", "[::1]:9465", socket.gethostname()):
            self.assertEqual(self.page.ask("GET", "/status.json", {"Host": host})[0].status, 200, host)

    def test_bytes_that_are_no_request_harm_nobody(self):
        for data in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00" * 50, b"\r\n" * 1000,
                     b"GET / HTTP/1.1\r\nHost: [\r\n\r\n", b"GET / HTTP/1.1\r\nHost: ]\r\n\r\n", b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
                     b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"):
            self.page.raw(data)
        self.assertEqual(self.page.ask("GET", "/")[0].status, 200)

    def test_a_thousand_requests_at_once_are_answered_by_few_threads(self):
        before = len(os.listdir(f"/proc/{self.page.process.pid}/task"))
        most = 0
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            asked = [pool.submit(self.page.ask, "GET", "/status.json" if i % 2 else "/") for i in range(1000)]
            while not all(a.done() for a in asked):
                concurrent.futures.wait(asked, timeout=0.05)
                most = max(most, len(os.listdir(f"/proc/{self.page.process.pid}/task")))
            self.assertEqual({a.result()[0].status for a in asked}, {200})
        self.assertLessEqual(most, before)
        with shunt.connect(self.page.socket) as session:  # nor is anybody else held up
            session.join("beside", 0, 1)

    def test_connections_that_say_nothing_are_dropped(self):
        silent = [socket.create_connection(("127.0.0.1", self.page.port)) for _ in range(300)]
        try:
            self.assertEqual(self.page.ask("GET", "/")[0].status, 200)
        finally:
            for s in silent:
                s.close()


class Starting(unittest.TestCase):
    def test_without_an_address_there_is_no_page(self):
        page = Page(address="")
        self.assertNotIn("status page", page.log())
        self.assertEqual(page.stop(), 0)

    def test_a_taken_port_ends_the_start_with_words(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            page = Page(address=address)
            log = page.log()
            self.assertEqual(page.stop(), 1)
            self.assertIn(f"page.address: cannot listen on {address}", log)
            self.assertIn("in use", log)
            self.assertNotIn("shuntd is ready", log)

    def test_an_address_that_is_none_is_refused_with_its_key(self):
        for address in ("9465", "127.0.0.1", "example.org:80", "127.0.0.1:http", "127.0.0.1:70000", "*:80", "[::1]:80"):
            page = Page(address=address)
            log = page.log()
            self.assertEqual(page.stop(), 1, address)
            self.assertIn("--page-address", log)
            self.assertIn("expected", log)

    def test_the_daemon_stops_while_requests_come(self):
        page = Page()
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            for _ in range(200):
                pool.submit(page.ask, "GET", "/status.json")
            self.assertEqual(page.stop(), 0)


if __name__ == "__main__":
    unittest.main()
