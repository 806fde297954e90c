"""A user whose file system does not answer: others go on, and the daemon ends in time."""

import os
import pathlib
import select
import subprocess
import tempfile
import unittest

from files_test import BLOCK, READ, Client, s, strided
from harness import *

SILENT_FILES = pathlib.Path(os.environ["SHUNT_BUILD_DIR"]) / "bin" / "tests" / "silent-files"
ALICE, BOB = 12001, 12002
GRACE_S = 1


class SilentFiles:
    """A file system of one file, seen by its server's process and by who opens it through that. Lives half a minute."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="shunt-silent-")
        self.process = subprocess.Popen(
            [SILENT_FILES, self.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self.process.stdout.readline() != "mounted\n":
            raise unittest.SkipTest("may not mount a file system of one's own")
        self.path = f"/proc/{self.process.pid}/root{self.directory}/a"

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == word + "\n"

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        os.rmdir(self.directory)


@unittest.skipIf(os.geteuid() != 0, "needs root to become other users")
class Silence(unittest.TestCase):
    refused = DaemonTest.refused
    assert_code = DaemonTest.assert_code
    session = DaemonTest.session

    def setUp(self):
        self.names = iter(f"{self.id()}-{i}" for i in range(100))
        self.root = tempfile.mkdtemp(prefix="shunt-root-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.shuntd = Shuntd(
            "--socket-mode", "0666", "--grace-period", f"{GRACE_S}s", "--storage-roots", f"data={self.root}"
        )
        self.addCleanup(self.shuntd.stop)
        self.files = SilentFiles()
        self.addCleanup(self.files.end)

    def client(self, uid):
        name = next(self.names)
        return Client(self, name, session=self.session(name, uid=uid))

    def hang(self, client, count=8):
        """A read and opens that wait for the silent server: more of these than a store has threads."""
        region = client.pass_path(self.files.path)
        silent = client.prepare([strided(region, 0, BLOCK)]).list_id
        own = client.prepare(client.blocks(1)).list_id
        fds = [os.open(self.files.path, os.O_RDONLY) for _ in range(count)]
        self.files.tell("silence")
        lease = client.session.lease
        for fd in fds:
            packet = api.session.LeaseRequest(id=lease.next_id, open_file=s.OpenFileRequest(access=READ))
            lease.next_id += 1
            socket.send_fds(lease.socket, [packet.SerializeToString()], [fd])
        transfer = client.post(own, silent)
        return fds, transfer

    def test_a_silent_file_system_holds_up_nobody_else(self):
        alice, bob = self.client(ALICE), self.client(BOB)
        fds, transfer = self.hang(alice)
        path = os.path.join(self.root, "quick")
        with open(path, "wb") as out:
            out.write(b"q" * BLOCK)
        for _ in range(20):
            region = bob.pass_path(path)
            bob.move(bob.prepare(bob.blocks(1)).list_id, bob.list_of(region, 1))
            bob.free(region)
        self.assertTrue((bob.memory[:BLOCK] == ord("q")).all())
        region = bob.store("CreateFile", root="data", path="new", size_bytes=BLOCK).region_id
        bob.move(bob.prepare(bob.blocks(1)).list_id, bob.list_of(region, 1), push=True)
        bob.store("CommitDraft", region_id=region)
        self.assertEqual(os.path.getsize(os.path.join(self.root, "new")), BLOCK)
        # Nothing of it has ended meanwhile, and it goes on once the server answers.
        self.assertEqual(select.select([alice.session.lease.socket], [], [], 0)[0], [])
        self.files.tell("speak")
        self.assertEqual(alice.wait(transfer).bytes, BLOCK)
        self.assertTrue((alice.memory[:BLOCK] == ord("a")).all())
        for fd in fds:
            os.close(fd)
        alice.session.close()
        bob.session.close()
        self.shuntd.process.terminate()
        self.assertEqual(self.shuntd.process.wait(timeout=20), 0)
        self.assertNotIn("left behind", self.shuntd.log())

    def test_the_daemon_ends_in_time_and_says_what_it_left(self):
        alice, bob = self.client(ALICE), self.client(BOB)
        fds, _ = self.hang(alice)
        bob.pass_path(__file__)
        self.shuntd.process.terminate()
        # Its grace period, a second to tell everybody, and one for the stores.
        wait_until(lambda: " stopped " in self.shuntd.log(), seconds=GRACE_S + 5, what="the daemon's end")
        log = self.shuntd.log()
        for word in ("left behind", f"uid={ALICE}", "store=files"):
            self.assertIn(word, log)
        self.assertNotIn(f"uid={BOB} session=0", log)
        # The kernel keeps a process whose call a server has taken and does not answer, whatever kills it. All
        # else is over.
        self.assertFalse(os.path.exists(self.shuntd.socket) or os.path.exists(self.shuntd.lease))
        self.files.tell("speak")
        self.assertEqual(self.shuntd.process.wait(timeout=20), 0)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    unittest.main()
