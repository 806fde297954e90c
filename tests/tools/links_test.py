"""What shuntctl shows of links, transfers, the machine and rates, over two daemons between which something moves."""

import contextlib
import json
import os
import pty
import re
import threading
import unittest
import xml.etree.ElementTree

from world import FINE, USAGE, ctl, ctl_json, support

import shunt  # noqa: E402
from loopback import Job, static_cluster  # noqa: E402

PALETTE = re.compile(r"\033\[[0-9;]*m")


class Links(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.nodes = cls.stack.enter_context(static_cluster(["a", "b"], others={"gone": "127.0.0.1:1"}))
        cls.socket = cls.nodes["a"].socket
        for node in cls.nodes.values():
            node.wait_log("link measured")

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_a_link_shows_what_was_measured_and_what_it_carries_now(self):
        with Job([node.socket for node in self.nodes.values()], "carried"):
            links = {link["node"]: link for link in ctl_json("links", "--interval", "1s", socket=self.socket)}
        self.assertEqual(set(links), {"b", "gone"})
        b, gone = links["b"], links["gone"]
        self.assertEqual(b["state"], "up")
        self.assertTrue(b["connected"])
        for key in ("latency_ns", "bytes_per_second", "bytes_sent", "bytes_received", "messages_sent", "connection"):
            self.assertGreater(b[key], 0, key)
        self.assertGreater(b["sent_bytes_per_second_now"], 0)
        self.assertGreater(b["received_bytes_per_second_now"], 0)
        self.assertFalse(gone["connected"])
        self.assertEqual(gone["bytes_sent"], 0)
        self.assertIn("127.0.0.1:1", gone["why"])

    def test_counts_only_grow_while_the_connection_lasts(self):
        with Job([node.socket for node in self.nodes.values()], "growing"):
            first = ctl_json("links", "--interval", "50ms", socket=self.socket)
            second = ctl_json("links", "--interval", "500ms", socket=self.socket)
        b = [next(link for link in links if link["node"] == "b") for links in (first, second)]
        self.assertEqual(b[0]["connection"], b[1]["connection"])
        self.assertGreater(b[1]["bytes_sent"], b[0]["bytes_sent"])

    def test_a_transfer_in_flight_is_seen_from_both_ends_and_gone_when_it_is_over(self):
        with shunt.connect(self.nodes["b"].socket) as there, shunt.connect(self.socket) as here:
            blocks = there.zeros((64, 1 << 20), "uint8")
            there.agent("prefill").publish("kv", blocks, access="read")
            here.agent("decode")
            mine = here.zeros((64, 1 << 20), "uint8")
            own, theirs = here.prepare(mine), here.fetch("prefill", "kv")
            stop, ids = threading.Event(), list(range(64))

            def pull():
                while not stop.is_set():
                    here.pull(own.ids(ids), theirs.ids(ids)).wait()

            puller = threading.Thread(target=pull)
            puller.start()
            try:
                seen = {}

                def both():
                    for name in ("a", "b"):
                        for row in ctl_json("transfers", socket=self.nodes[name].socket):
                            seen[name] = row
                    return len(seen) == 2

                support.wait_until(both, "the transfer to be seen")
            finally:
                stop.set()
                puller.join()
            asked, answered = seen["a"], seen["b"]
            self.assertEqual((asked["agent"], asked["other"]), ("decode", "prefill@b"))
            self.assertEqual((asked["route"], asked["class"], asked["bytes"]), ("pull", "bulk", 64 << 20))
            self.assertLessEqual(asked["bytes_done"], asked["bytes"])
            self.assertGreater(asked["session_id"], 0)
            self.assertGreater(asked["age_seconds"], 0)
            self.assertEqual((answered["agent"], answered["other"]), ("decode@a", "prefill"))
            self.assertEqual((answered["session_id"], answered["bytes"]), (0, 64 << 20))
            self.assertEqual(ctl_json("transfers", socket=self.socket), [])
            self.assertEqual(ctl("transfers", socket=self.socket).stdout, "no transfers in flight\n")

    def test_top_takes_samples_without_a_terminal(self):
        with Job([node.socket for node in self.nodes.values()], "watched"):
            text = ctl("top", "--once", "--interval", "300ms", socket=self.socket).stdout
            lines = ctl("top", "--samples", "2", "--interval", "300ms", "--json", socket=self.socket).stdout
        self.assertIn("watched", text)
        self.assertRegex(text, r"\nb +node +up ")
        self.assertNotIn("\033", text)
        samples = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual(len(samples), 2)
        for sample in samples:
            self.assertGreater(sample["sent_bytes_per_second"], 0)
            self.assertGreaterEqual(sample["seconds"], 0.3)

    def on_a_terminal(self, *arguments, keys=b"", **environment):
        """What the program writes to a terminal, until it ends."""
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", **environment}
        environment.pop("LC_ALL", None)
        import subprocess
        from world import SHUNTCTL

        process = subprocess.Popen([SHUNTCTL, "--socket", self.socket, *arguments], stdin=theirs, stdout=theirs,
                                   env=environment)
        os.close(theirs)
        written = b""
        pressed = not keys
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            written += chunk
            if not pressed and b"\033[H" in written:
                os.write(ours, keys)
                pressed = True
        os.close(ours)
        self.assertEqual(process.wait(timeout=30), FINE)
        return written.decode()

    def test_top_on_a_terminal_draws_a_page_and_gives_the_terminal_back(self):
        written = self.on_a_terminal("top", "--interval", "200ms", keys=b"q")
        self.assertIn("\033[?1049h", written)
        self.assertIn("q: quit" if "q: quit" in written else "shuntd", written)
        self.assertTrue(written.rstrip().endswith("\033[?1049l"), written[-40:])

    def test_colours_are_for_terminals_that_want_them(self):
        self.assertIn("\033[32mup", self.on_a_terminal("links", "--interval", "50ms"))
        self.assertIn("\033[31mdown", self.on_a_terminal("links", "--interval", "50ms"))
        self.assertNotIn("\033", self.on_a_terminal("links", "--interval", "50ms", NO_COLOR="1"))
        self.assertNotIn("\033", self.on_a_terminal("links", "--interval", "50ms", TERM="dumb"))
        self.assertNotIn("\033", ctl("links", "--interval", "50ms", socket=self.socket).stdout)

    def test_the_topology_is_a_tree(self):
        text = ctl("topology", socket=self.socket, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout
        self.assertRegex(text, "(├|└)─ NUMA node 0: CPUs ")
        plain = ctl("topology", socket=self.socket, env={**os.environ, "LC_ALL": "C"}).stdout
        self.assertRegex(plain, r"(\||`)- NUMA node 0: CPUs ")
        self.assertTrue(plain.isascii())
        shown = ctl_json("topology", socket=self.socket)
        for nic in shown["nics"]:
            self.assertIn(nic["name"], text)

    def test_the_picture_is_svg_that_needs_nothing_else(self):
        with Job([node.socket for node in self.nodes.values()], "drawn"):
            svg = ctl("topology", "--svg", "-", "--interval", "300ms", socket=self.socket).stdout
        root = xml.etree.ElementTree.fromstring(svg)
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, space + "svg")
        texts = ["".join(text.itertext()) for text in root.iter(space + "text")]
        self.assertIn("b", texts)
        self.assertIn("gone", texts)
        self.assertTrue(any(text.startswith("out ") and text.endswith("/s") for text in texts), texts)
        self.assertIn("prefers-color-scheme: dark", svg)
        self.assertEqual(re.findall(r"https?://[^\"'<> ]+", svg), ["http://www.w3.org/2000/svg"])
        for foreign in ("href", "url(", "@import", "<script", "<image"):
            self.assertNotIn(foreign, svg)

    def test_a_picture_that_cannot_be_written_is_an_error(self):
        done = ctl("topology", "--svg", "/no/such/place.svg", "--interval", "50ms", socket=self.socket)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("/no/such/place.svg", done.stderr)


if __name__ == "__main__":
    unittest.main()
