"""Stores that libraries bring, in the daemon: the example plugin, which tests/storage/plugin_test.py has built."""

import os
import shutil
import subprocess
import tempfile
import unittest

import numpy

from files_test import BLOCK, READ_WRITE, Client, ids, strided
from harness import *

PLUGIN = os.environ["SHUNT_TEST_PLUGIN"]
HEADERS = ROOT / "runtime" / "storage" / "plugin"

OTHER_VERSION = """
#include "store_plugin.h"
static const shunt_store_plugin table = {.size = sizeof(table), .version = 99, .name = "other"};
const shunt_store_plugin* shunt_store_plugin_table(void) { return &table; }
"""


class Plugins(DaemonTest):
    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
            config.write(f'[[storage.plugins]]\nname = "memory"\nlibrary = "{PLUGIN}"\n')
            config.flush()
            cls.FLAGS = ("--config", config.name)
            super().setUpClass()

    def client(self):
        client = Client(self, self.id().replace("/", "-"))
        client.memory[:] = numpy.random.default_rng(3).integers(0, 256, client.memory.size, dtype=numpy.uint8)
        return client

    def test_an_object_is_written_and_read_back_by_transfers(self):
        a = self.client()
        before = a.memory.copy().reshape(64, BLOCK)
        region = a.store("CreateFile", root="memory", path="a/b", size_bytes=64 * BLOCK).region_id
        order = numpy.random.default_rng(4).permutation(64)
        own = a.prepare().list_id
        self.assertEqual(a.move(own, a.list_of(region, 64), ids(order), dict(all=True), push=True).route, "write")
        with self.refused(NOT_FOUND, "a/b"):
            a.store("OpenFile", root="memory", path="a/b")
        a.store("CommitDraft", region_id=region)
        opened = a.store("OpenFile", root="memory", path="a/b", access=READ_WRITE)
        self.assertEqual(opened.size_bytes, 64 * BLOCK)
        stored = a.list_of(opened.region_id, 64)
        a.memory[:] = 0
        report = a.move(own, stored, ids(order))
        self.assertEqual((report.route, report.bytes), ("read", 64 * BLOCK))
        self.assertTrue((a.memory.reshape(64, BLOCK) == before).all())
        # In place, as the plugin says that it can.
        a.memory[:BLOCK] = 9
        a.move(own, stored, ids([0]), ids([63]), push=True)
        a.store("SyncFile", region_id=opened.region_id)
        a.move(own, stored, ids([1]), ids([63]))
        self.assertTrue((a.memory[BLOCK : 2 * BLOCK] == 9).all())

    def test_a_draft_that_is_given_up_leaves_nothing(self):
        a = self.client()
        for end in ("AbortDraft", "CommitDraft"):
            region = a.store("CreateFile", root="memory", path="left", size_bytes=BLOCK).region_id
            if end == "CommitDraft":
                with self.refused(FAILED_PRECONDITION, "left", "0 bytes were written"):
                    a.store(end, region_id=region)
            else:
                a.store(end, region_id=region)
            names = a.store("OpenFile", root="memory", path=".names")
            if names.size_bytes == 0:
                continue
            a.move(a.prepare([strided(a.region, 0, names.size_bytes)]).list_id, a.prepare([strided(names.region_id, 0, names.size_bytes)]).list_id)
            self.assertNotIn(b"left", bytes(a.memory[: names.size_bytes]))


class Starts(unittest.TestCase):
    def start(self, plugins):
        daemon = Shuntd("--storage-plugins", plugins, check=False)
        status, log = daemon.process.wait(timeout=30), daemon.log()
        daemon.stop()
        self.assertNotEqual(status, 0)
        return log

    def test_a_library_of_another_version_stops_the_start(self):
        with tempfile.TemporaryDirectory(prefix="shunt-plugin-") as directory:
            library = os.path.join(directory, "other.so")
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-I", HEADERS, "-x", "c", "-", "-o", library],
                input=OTHER_VERSION, text=True, check=True,
            )
            log = self.start(f"cache={library}")
        for word in ("--storage-plugins", "storage.plugins: plugin cache", library, "version 99", "expected version 1"):
            self.assertIn(word, log)

    def test_what_is_no_plugin_stops_the_start(self):
        for plugins, words in (
            ("cache=/nonexistent/x.so", ("plugin cache", "/nonexistent/x.so")),
            ("cache=/lib/x86_64-linux-gnu/libc.so.6", ("exports no shunt_store_plugin_table",)),
            (f"cache={PLUGIN} what", ("plugin cache", PLUGIN, "'what'", "expected none")),
            ("cache=relative.so", ("storage-plugins", "not absolute")),
            (f"a={PLUGIN},a={PLUGIN}", ("name is there twice",)),
        ):
            with self.subTest(plugins):
                log = self.start(plugins)
                for word in words:
                    self.assertIn(word, log)

    def test_a_library_that_others_may_change_stops_the_start(self):
        with tempfile.TemporaryDirectory(prefix="shunt-plugin-") as directory:
            library = os.path.join(directory, "p.so")
            shutil.copy(PLUGIN, library)
            for place, kind in ((library, "library"), (directory, "directory")):
                with self.subTest(kind):
                    mode = os.stat(place).st_mode & 0o777
                    os.chmod(place, mode | 0o020)
                    log = self.start(f"cache={library}")
                    os.chmod(place, mode)
                    for word in ("plugin cache", f"{kind} {place} has owner", f"mode {mode | 0o020:04o}", "expected owner 0"):
                        self.assertIn(word, log)

    def test_checking_a_configuration_makes_no_store(self):
        # Whose options only a store can find wrong.
        for plugin, status in ((f"{PLUGIN} what", 0), ("/lib/x86_64-linux-gnu/libc.so.6", 1)):
            with self.subTest(plugin):
                checked = subprocess.run([SHUNTD, "--check-config", "--storage-plugins", f"cache={plugin}"],
                                         capture_output=True, text=True)
                self.assertEqual(checked.returncode, status, checked.stderr)

    def test_a_root_and_a_plugin_have_different_names(self):
        daemon = Shuntd("--storage-plugins", f"x={PLUGIN}", "--storage-roots", "x=/tmp", check=False)
        self.assertNotEqual(daemon.process.wait(timeout=30), 0)
        self.assertIn("storage.roots has that name too", daemon.log())
        daemon.stop()


if __name__ == "__main__":
    unittest.main()
