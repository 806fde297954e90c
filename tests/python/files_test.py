"""Files, and the objects of an S3 server if there is one, as sides of transfers."""

import gc
import os
import shutil
import subprocess
import tempfile
import threading
import unittest

import numpy as np
import shunt
import support

BLOCK, BLOCKS = 4096, 64
SERVER = os.environ.get("SHUNT_TEST_S3")


class FilesTest(support.DaemonTest):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="shunt-root-")
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.daemon = support.Daemon("--storage-roots", f"data={cls.root}", *cls.FLAGS)
        cls.addClassCleanup(cls.daemon.stop)
        os.environ["SHUNT_SOCKET"] = cls.daemon.socket

    def setUp(self):
        self.random = np.random.default_rng(3)
        self.session = shunt.connect()
        self.addCleanup(self.session.close)
        self.memory = self.session.array(self.noise(BLOCKS))
        self.list = self.session.prepare(self.memory)

    def noise(self, blocks):
        return self.random.integers(0, 256, (blocks, BLOCK), dtype=np.uint8)

    def path(self, name):
        return os.path.join(self.root, name)

    def file(self, name, blocks=BLOCKS):
        data = self.noise(blocks)
        with open(self.path(name), "wb") as out:
            out.write(data.tobytes())
        return data

    def contents(self, name):
        with open(self.path(name), "rb") as file:
            return np.frombuffer(file.read(), np.uint8)

    def refused(self, kind, words, call, *arguments, **options):
        with self.assertRaisesRegex(kind, words) as caught:
            call(*arguments, **options)
        self.assertIsInstance(caught.exception, shunt.Error)


class Files(FilesTest):
    def test_blocks_are_read_by_path_descriptor_file_object_and_root(self):
        data = self.file("read")
        order = self.random.permutation(BLOCKS).astype(np.uint32)
        with open(self.path("read"), "rb") as opened:
            for arguments, options in (
                ((self.path("read"),), {}),
                ((opened,), {}),
                ((opened.fileno(),), {}),
                ((), {"root": "data", "path": "read"}),
            ):
                with self.subTest(arguments), self.session.open_file(*arguments, **options) as file:
                    self.assertEqual(file.bytes, data.nbytes)
                    self.memory[...] = 0
                    blocks = self.session.prepare(file.blocks(0, BLOCK, BLOCKS))
                    self.assertEqual((blocks.pieces, blocks.piece_bytes), (BLOCKS, BLOCK))
                    transfer = self.session.pull(self.list, blocks.ids(order))
                    transfer.wait(support.PATIENCE)
                    self.assertEqual(transfer.report()[:2], (data.nbytes, "read"))
                    np.testing.assert_array_equal(self.memory, data[order])
            self.assertFalse(opened.closed)
            self.assertEqual(os.fstat(opened.fileno()).st_size, data.nbytes)

    def test_blocks_are_written_in_place(self):
        expected = self.file("write")
        with self.session.open_file(self.path("write"), writable=True) as file:
            transfer = self.session.push(self.list.ids([1, 2]), self.session.prepare(file.blocks(0, BLOCK, BLOCKS)).ids([9, 0]))
            transfer.wait(support.PATIENCE)
            self.assertEqual(transfer.report().route, "write")
            expected[[9, 0]] = self.memory[[1, 2]]
            odd = self.session.prepare([file.piece(5 * BLOCK + 1, 3), file.strided(10 * BLOCK, 2, (2, 100), (3, 10))])
            self.session.push(self.list.arrays([self.memory[3, :15]]), odd).wait(support.PATIENCE)
            flat = expected.reshape(-1)
            flat[5 * BLOCK + 1 :][:3] = self.memory[3, :3]
            for i in range(6):
                flat[10 * BLOCK + i // 3 * 100 + i % 3 * 10 :][:2] = self.memory[3, 3 + 2 * i :][:2]
            # The same place by its region.
            self.session.push(
                self.list.arrays([self.memory[4, :7]]), self.session.prepare(file).places([(file.region_id, 77, 7)])
            ).wait(support.PATIENCE)
            flat[77:84] = self.memory[4, :7]
            file.sync()
        np.testing.assert_array_equal(self.contents("write"), flat)

    def test_a_draft_appears_with_its_commit(self):
        with self.session.create_file("data", "made", self.memory.nbytes, if_absent=True) as draft:
            self.session.push(self.list, self.session.prepare(draft)).wait(support.PATIENCE)
            self.assertFalse(os.path.exists(self.path("made")))
            draft.commit()
            self.assertTrue(draft.closed)
        np.testing.assert_array_equal(self.contents("made"), self.memory.reshape(-1))
        self.refused(shunt.AlreadyExists, "made", self.session.create_file, "data", "made", 1, if_absent=True)

    def test_a_draft_that_is_closed_or_dropped_leaves_nothing(self):
        os.mkdir(self.path("drafts"))
        with self.session.create_file("data", "drafts/x", self.memory.nbytes) as draft:
            self.session.push(self.list, self.session.prepare(draft)).wait(support.PATIENCE)
        self.assertEqual(os.listdir(self.path("drafts")), [])
        self.refused(shunt.NotFound, "drafts/x.*closed", draft.commit)
        with self.assertRaises(KeyError), self.session.create_file("data", "drafts/x", 1):
            raise KeyError
        self.session.create_file("data", "drafts/x", 1)
        gc.collect()
        self.assertEqual(os.listdir(self.path("drafts")), [])

    def test_a_list_keeps_its_file(self):
        data = self.file("kept")
        kept = self.session.prepare(self.session.open_file(self.path("kept")))
        gc.collect()
        self.session.pull(self.list, kept).wait(support.PATIENCE)
        np.testing.assert_array_equal(self.memory, data)

    def test_others_read_a_section_of_a_file(self):
        data = self.file("shared")
        agent = self.session.agent("owner")
        agent.publish("file", self.session.open_file(self.path("shared")).blocks(0, BLOCK, BLOCKS), access="read")
        with shunt.connect() as other:
            mine = other.zeros((BLOCKS, BLOCK), np.uint8)
            other.pull(other.prepare(mine), other.fetch("owner", "file"), notify=b"read").wait(support.PATIENCE)
            np.testing.assert_array_equal(mine, data)
        self.assertEqual(agent.notifications(support.PATIENCE)[0].payload, b"read")

    def test_threads_open_files_at_the_same_time(self):
        data = self.file("threads")
        failures = []

        def read():
            try:
                for _ in range(20):
                    with self.session.open_file(self.path("threads")) as file:
                        mine = self.session.zeros((BLOCKS, BLOCK), np.uint8)
                        self.session.pull(self.session.prepare(mine), self.session.prepare(file)).wait(support.PATIENCE)
                        np.testing.assert_array_equal(mine, data)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_what_is_wrong_is_told_in_words(self):
        self.file("inside", 1)
        os.symlink("inside", self.path("link"))
        os.mkfifo(self.path("fifo"))
        opened = self.session.open_file
        with self.assertRaises(FileNotFoundError):
            opened(self.path("missing"))
        self.refused(shunt.NotFound, "missing", opened, root="data", path="missing")
        self.refused(shunt.NotFound, "nowhere", opened, root="nowhere", path="x")
        self.refused(shunt.PermissionDenied, "link", opened, root="data", path="link")
        self.refused(shunt.InvalidArgument, "fifo", opened, root="data", path="fifo")
        self.refused(shunt.InvalidArgument, r"\.\./x", opened, root="data", path="../x")
        self.refused(shunt.InvalidArgument, "regular file", opened, self.root)
        self.refused(shunt.InvalidArgument, "fd is 9999", opened, 9999)
        for options in ({}, {"root": "data"}, {"path": "x"}):
            self.refused(shunt.InvalidArgument, "a root and a path", opened, **options)
        self.refused(shunt.InvalidArgument, "zero byte", opened, root="data", path="a\0b")
        self.refused(shunt.InvalidArgument, "size is -1", self.session.create_file, "data", "x", -1)
        self.refused(shunt.NotFound, "endpoint 'minio'", self.session.open_object, "minio", "bucket", "key")
        with open(self.path("inside"), "rb") as reading:
            self.refused(shunt.PermissionDenied, ".", opened, reading, writable=True)
        with opened(self.path("inside")) as file:
            one = self.session.prepare(file)
            self.refused(shunt.PermissionDenied, "for reading",
                         self.session.push(self.list.ids([0]), one).wait, support.PATIENCE)
            self.refused(shunt.OutOfRange, "4096", self.session.prepare, file.piece(1, BLOCK))
            self.refused(shunt.InvalidArgument, "memory", self.session.prepare, [file, self.memory])
            self.refused(shunt.InvalidArgument, "offset is -1", file.piece, -1, 1)
            self.refused(shunt.InvalidArgument, "4 dimensions", file.strided, 0, 1, *[(1, 1)] * 4)
        self.refused(shunt.NotFound, "inside|closed", file.sync)
        self.refused(shunt.NotFound, "region", self.session.pull(self.list.ids([0]), one).wait, support.PATIENCE)
        with self.session.create_file("data", "short", 10) as draft:
            self.refused(shunt.FailedPrecondition, "0 bytes.*10", draft.commit)

    def test_a_forked_child_is_refused_and_ends_nothing(self):
        data = self.file("forked")
        file = self.session.open_file(self.path("forked"))
        draft = self.session.create_file("data", "forked-draft", 0)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.refused(shunt.FailedPrecondition, "forked", file.sync)
                self.refused(shunt.FailedPrecondition, "forked", self.session.open_file, self.path("forked"))
                del file, draft
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.session.pull(self.list, self.session.prepare(file)).wait(support.PATIENCE)
        np.testing.assert_array_equal(self.memory, data)
        draft.commit()
        self.assertTrue(os.path.exists(self.path("forked-draft")))


class FewFiles(FilesTest):
    FLAGS = ("--max-regions-per-session", "2")

    def test_what_is_dropped_is_closed(self):
        self.file("few")
        for _ in range(5):
            file = self.session.open_file(self.path("few"))
            kept = self.session.prepare([file, file.piece(1, 2)])
            draft = self.session.create_file("data", "draft", 10)
            del file, kept, draft
            gc.collect()
        one, two = (self.session.open_file(self.path("few")) for _ in range(2))
        self.refused(shunt.ResourceExhausted, "max_regions_per_session", self.session.open_file, self.path("few"))
        one.close()
        self.session.open_file(self.path("few"))
        two.close()


class SmallDisk(FilesTest):
    """On a file system of its own, which takes a mount."""

    def test_a_full_and_a_read_only_disk_are_told(self):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "shunt-test", self.root], capture_output=True).returncode:
            self.skipTest("may not mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", self.root])
        daemon = support.Daemon("--storage-roots", f"small={self.root}")
        self.addCleanup(daemon.stop)
        with shunt.connect(daemon.socket) as session:
            memory = session.zeros((BLOCKS, BLOCK), np.uint8)

            def make():
                with session.create_file("small", "x", memory.nbytes) as draft:
                    session.push(session.prepare(memory), session.prepare(draft)).wait(support.PATIENCE)
                    draft.commit()

            self.refused(shunt.ResourceExhausted, "x", make)
            self.assertEqual([name for _, _, files in os.walk(self.root) for name in files], [])
            subprocess.run(["mount", "-o", "remount,ro", self.root], check=True)
            self.refused(shunt.PermissionDenied, "Read-only", make)


@unittest.skipUnless(SERVER, "SHUNT_TEST_S3: no server")
class Objects(FilesTest):
    FLAGS = ("--storage-s3", f"rgw={SERVER} path-style,dead=http://127.0.0.1:1 path-style")
    KEYS = shunt.ObjectCredentials("SHUNTTESTKEY", "shunt-test-secret")
    BUCKET = f"python-{os.getpid()}"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import s3_bucket

        s3_bucket.make(SERVER, cls.KEYS.access_key_id, cls.KEYS.secret_access_key, cls.BUCKET)

    def test_an_object_is_written_and_read(self):
        place = ("rgw", self.BUCKET, "made")
        with self.session.create_object(*place, self.memory.nbytes, self.KEYS, if_absent=True) as draft:
            self.session.push(self.list, self.session.prepare(draft)).wait(support.PATIENCE)
            self.refused(shunt.NotFound, "made", self.session.open_object, *place, self.KEYS)
            draft.commit()
        written = self.memory.copy()
        self.memory[...] = 0
        with self.session.open_object(*place, self.KEYS) as file:
            self.assertEqual(file.bytes, written.nbytes)
            order = self.random.permutation(BLOCKS).astype(np.uint32)
            blocks = self.session.prepare(file.blocks(0, BLOCK, BLOCKS))
            self.session.pull(self.list, blocks.ids(order)).wait(support.PATIENCE)
        np.testing.assert_array_equal(self.memory, written[order])
        with self.session.create_object("rgw", self.BUCKET, "left", 10, self.KEYS):
            pass
        self.refused(shunt.NotFound, "left", self.session.open_object, "rgw", self.BUCKET, "left", self.KEYS)

    def test_what_is_wrong_is_told_in_words_without_the_secret(self):
        place = ("rgw", self.BUCKET, "missing")
        wrong = shunt.ObjectCredentials("SHUNTTESTKEY", "wrong-secret")
        self.assertNotIn("wrong-secret", repr(wrong))
        for kind, keys in ((shunt.NotFound, self.KEYS), (shunt.Unauthenticated, wrong), (shunt.PermissionDenied, None)):
            with self.assertRaises(kind) as caught:
                self.session.open_object(*place, keys)
            self.assertNotIn("wrong-secret", str(caught.exception))
        self.refused(shunt.Unavailable, "connect", self.session.open_object, "dead", "bucket", "key", self.KEYS, timeout=0.3)

    def test_an_object_that_is_replaced_or_taken_is_told(self):
        place = ("rgw", self.BUCKET, "replaced")

        def make(**options):
            with self.session.create_object(*place, self.memory.nbytes, self.KEYS, **options) as draft:
                self.session.push(self.list, self.session.prepare(draft)).wait(support.PATIENCE)
                draft.commit()

        make()
        self.refused(shunt.AlreadyExists, "replaced", make, if_absent=True)
        with self.session.open_object(*place, self.KEYS) as file:
            whole = self.session.prepare(file)
            self.refused(shunt.PermissionDenied, "for reading", self.session.push(self.list, whole).wait, support.PATIENCE)
            self.file("mixed", 1)
            mixed = self.session.prepare([file.piece(0, BLOCK), self.session.open_file(self.path("mixed"))])
            self.refused(shunt.Unimplemented, "different stores",
                         self.session.pull(self.list.ids([0, 1]), mixed).wait, support.PATIENCE)
            self.memory[0, 0] ^= 1  # another one, to its server
            make()
            self.refused(shunt.Aborted, "replaced", self.session.pull(self.list, whole).wait, support.PATIENCE)
