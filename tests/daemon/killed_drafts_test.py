"""kill -9 of the daemon at every step from a draft's first byte to its durable name: under the name there is what was
there before or the whole new file, and the next daemon clears up what was left."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import grpc

from files_test import BLOCK, Client
from harness import *

SIZE = 8 * BLOCK


@unittest.skipIf(os.environ.get("SANITIZED"), "a sanitizer's library wants to be loaded first")
class KilledDrafts(unittest.TestCase):
    session = DaemonTest.session

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="shunt-kill-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.library = os.path.join(cls.directory, "kill.so")
        source = pathlib.Path(__file__).resolve().parent / "kill_at_call.c"
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", source, "-o", cls.library, "-ldl"], check=True)

    def write(self, root, kill_at, old):
        """Lets a daemon that dies there write the file "x": whether it lived, and the calls that it made."""
        log, armed = pathlib.Path(self.directory, "calls"), pathlib.Path(self.directory, "armed")
        log.write_text("")
        armed.unlink(missing_ok=True)
        if old is not None:
            pathlib.Path(root, "x").write_bytes(old)
        os.environ.update(LD_PRELOAD=self.library, KILL_AT=kill_at, KILL_LOG=str(log), KILL_ARMED=str(armed))
        try:
            self.shuntd = Shuntd("--storage-roots", f"data={root}")
        finally:
            for name in ("LD_PRELOAD", "KILL_AT", "KILL_LOG", "KILL_ARMED"):
                del os.environ[name]
        lived = True
        try:
            client = Client(self, "writer")
            client.memory[:] = ord("n")
            armed.write_text("")
            region = client.store("CreateFile", root="data", path="x", size_bytes=SIZE).region_id
            client.move(client.prepare(client.blocks(8)).list_id, client.list_of(region, 8), push=True)
            client.store("CommitDraft", region_id=region)
        except (grpc.RpcError, RuntimeError, OSError):
            lived = False
        self.assertEqual(self.shuntd.stop(), 0 if lived else -9)
        return lived, log.read_text().split()

    def everything(self, root):
        return sorted(os.path.relpath(os.path.join(at, name), root) for at, _, names in os.walk(root) for name in names)

    def check_every_step(self, old):
        root = os.path.join(self.directory, f"root-{self.id()}")
        os.mkdir(root)
        lived, calls = self.write(root, "never", old)
        self.assertTrue(lived)
        self.assertGreaterEqual(len(calls), 3)
        results, left_some = [], 0
        for number in range(1, len(calls) + 1):
            for when in ("before", "after"):
                with self.subTest(f"{when} {calls[number - 1]}, call {number}"):
                    shutil.rmtree(root)
                    os.mkdir(root)
                    lived, _ = self.write(root, f"{number} {when}", old)
                    self.assertFalse(lived)
                    visible = [name for name in self.everything(root) if not name.startswith(".shunt-partial/")]
                    left_some += len(self.everything(root)) > len(visible)
                    self.assertIn(visible, [["x"]] if old is not None else [[], ["x"]])
                    content = pathlib.Path(root, "x").read_bytes() if visible else None
                    self.assertIn(content, (old, b"n" * SIZE))
                    results.append(content != old)
                    self.shuntd = Shuntd("--storage-roots", f"data={root}")
                    self.assertEqual(self.shuntd.stop(), 0)
                    self.assertEqual(self.everything(root), visible)
        # Once it is there it stays: the steps are in order.
        self.assertEqual(results, sorted(results))
        self.assertEqual((results[0], results[-1]), (False, True))
        return left_some

    def test_a_new_file_is_whole_or_not_there(self):
        self.check_every_step(None)

    def test_a_file_that_is_replaced_is_the_old_or_the_new(self):
        # It has a temporary name for a moment, so that there is something to clear up.
        self.assertGreater(self.check_every_step(b"old" * 1000), 0)


if __name__ == "__main__":
    unittest.main()
