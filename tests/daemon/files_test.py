"""Files as ends of transfers: passed as descriptors over the lease socket, or named below roots over either carrier."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import grpc
import numpy

import transfers_test
from harness import *
from transfers_test import BLOCK, ids, strided, t

s = api.storage
READ, READ_WRITE = s.FILE_ACCESS_READ, s.FILE_ACCESS_READ_WRITE


class Client(transfers_test.Agent):
    """An agent that also opens files."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.storage = api.storage_grpc.StorageStub(self.session.channel)

    def store(self, method, **fields):
        """Over gRPC."""
        return getattr(self.storage, method)(getattr(s, method + "Request")(token=self.session.token, **fields), timeout=20)

    def pass_file(self, *fds, access=READ, **fields):
        """Over the lease socket, with descriptors: the region's id and size."""
        lease = self.session.lease
        packet = api.session.LeaseRequest(id=lease.next_id, open_file=s.OpenFileRequest(access=access, **fields))
        lease.next_id += 1
        socket.send_fds(lease.socket, [packet.SerializeToString()], fds)
        reply = api.session.LeaseReply.FromString(lease.socket.recv(1 << 16))
        if reply.code != 0:
            raise LeaseError(reply.code, reply.message)
        return reply.open_file.region_id, reply.open_file.size_bytes

    def pass_path(self, path, flags=os.O_RDONLY, access=READ):
        fd = os.open(path, flags)
        try:
            return self.pass_file(fd, access=access)[0]
        finally:
            os.close(fd)  # the daemon has its own

    def free(self, region):
        self.session.memory.FreeRegion(
            api.memory.FreeRegionRequest(token=self.session.token, region_id=region), timeout=20
        )

    def list_of(self, region, count, length=BLOCK, stride=None):
        return self.prepare([strided(region, 0, length, (count, stride or length))]).list_id


class FilesTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="shunt-root-")
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.FLAGS = (*cls.FLAGS, "--storage-roots", f"data={cls.root}")
        super().setUpClass()

    def setUp(self):
        self.random = numpy.random.default_rng(11)
        self.names = iter(f"{self.id()}-{i}" for i in range(100))

    def client(self, size=64 * BLOCK, **kwargs):
        client = Client(self, next(self.names), size, **kwargs)
        client.memory[:] = self.random.integers(0, 256, client.memory.size, dtype=numpy.uint8)
        return client

    def path(self, name):
        return os.path.join(self.root, name)

    def file(self, name, size):
        """A file with random bytes: its path and them."""
        data = self.random.integers(0, 256, size, dtype=numpy.uint8)
        with open(self.path(name), "wb") as out:
            out.write(data.tobytes())
        return self.path(name), data

    def held(self, name):
        """How many descriptors the daemon has of files whose paths below the root begin so."""
        directory, count = f"/proc/{self.shuntd.process.pid}/fd", 0
        for fd in os.listdir(directory):
            try:
                count += os.readlink(f"{directory}/{fd}").startswith(self.path(name))
            except FileNotFoundError:
                pass  # closed meanwhile
        return count

    def contents(self, name):
        with open(self.path(name), "rb") as file:
            return numpy.frombuffer(file.read(), dtype=numpy.uint8)


class Files(FilesTest):
    def test_blocks_of_a_passed_file_are_read_in_any_order(self):
        path, data = self.file("read", 64 * BLOCK)
        a = self.client()
        own, file = a.prepare().list_id, a.list_of(a.pass_path(path), 64)
        order = self.random.permutation(64)
        report = a.move(own, file, ids(range(64)), ids(order))
        self.assertEqual((report.bytes, report.route), (64 * BLOCK, "read"))
        self.assertTrue((a.memory.reshape(64, BLOCK) == data.reshape(64, BLOCK)[order]).all())
        explained = a.stub.ExplainTransfer(
            t.PostTransferRequest(
                token=a.session.token, local=t.Selection(list_id=own, all=True), remote=t.Selection(list_id=file, all=True)
            )
        )
        self.assertEqual((explained.route, explained.bytes), ("read", 64 * BLOCK))

    def test_an_explanation_has_the_errors_of_the_call(self):
        path, _ = self.file("explained", 4 * BLOCK)
        a = self.client()
        explain = lambda local, remote, push: a.stub.ExplainTransfer(
            t.PostTransferRequest(
                token=a.session.token, direction=int(push), local=t.Selection(list_id=local, all=True),
                remote=t.Selection(list_id=remote, all=True),
            )
        )
        region = a.pass_path(path)
        own, reading = a.prepare(a.blocks(4)).list_id, a.list_of(region, 4)
        self.assertEqual(explain(own, reading, False).route, "read")
        with self.refused(PERMISSION_DENIED, f"region {region}", "opened for reading"):
            explain(own, reading, True)
        draft = a.store("CreateFile", root="data", path="explained-draft", size_bytes=4 * BLOCK).region_id
        written = a.list_of(draft, 4)
        self.assertEqual(explain(own, written, True).route, "write")
        with self.refused(FAILED_PRECONDITION, f"region {draft}", "draft"):
            explain(own, written, False)
        # It holds nothing, and did not write.
        a.store("AbortDraft", region_id=draft)
        a.free(region)
        with self.refused(NOT_FOUND, f"region {region}", "closed"):
            explain(own, reading, False)

    def test_errors_do_not_say_where_the_root_lies(self):
        a = self.client()
        for path in ("missing", "nodir/x", "../x"):
            with self.assertRaises(grpc.RpcError) as refused:
                a.store("OpenFile", root="data", path=path)
            self.assertNotIn(self.root, refused.exception.details())
        self.file("here", BLOCK)
        region = a.store("OpenFile", root="data", path="here").region_id
        os.truncate(self.path("here"), 0)
        with self.assertRaises(grpc.RpcError) as refused:
            a.move(a.prepare(a.blocks(1)).list_id, a.list_of(region, 1))
        self.assertIn("data/here", refused.exception.details())
        self.assertNotIn(self.root, refused.exception.details())

    def test_blocks_are_written_in_place_and_nothing_else(self):
        path, data = self.file("write", 64 * BLOCK)
        a = self.client()
        region = a.pass_path(path, os.O_RDWR, READ_WRITE)
        where = [5, 63, 0, 31]
        report = a.move(a.prepare().list_id, a.list_of(region, 64), ids([1, 2, 3, 4]), ids(where), push=True)
        self.assertEqual((report.bytes, report.route), (4 * BLOCK, "write"))
        a.store("SyncFile", region_id=region)
        expected = data.copy().reshape(64, BLOCK)
        expected[where] = a.memory.reshape(64, BLOCK)[[1, 2, 3, 4]]
        self.assertTrue((self.contents("write").reshape(64, BLOCK) == expected).all())

    def test_a_file_may_be_the_local_side_too(self):
        path, data = self.file("local", 16 * BLOCK)
        a = self.client()
        file = a.list_of(a.pass_path(path, os.O_RDWR, READ_WRITE), 16)
        own = a.prepare().list_id
        self.assertEqual(a.move(file, own, ids(range(8)), ids(range(8, 16)), push=True).route, "read")
        self.assertTrue((a.memory[8 * BLOCK : 16 * BLOCK] == data[: 8 * BLOCK]).all())
        self.assertEqual(a.move(file, own, ids(range(8)), ids(range(20, 28))).route, "write")
        self.assertTrue((self.contents("local")[: 8 * BLOCK] == a.memory[20 * BLOCK : 28 * BLOCK]).all())

    def test_odd_ranges_of_many_files_in_one_transfer(self):
        a = self.client(1 << 20)
        sets, pieces = [], []
        for i in range(25):
            path, data = self.file(f"many-{i}", 40_000 + i)
            sets.append(strided(a.pass_path(path, os.O_RDWR, READ_WRITE), i, 1001, (20, 1777 + i)))
            pieces += [data[i + k * (1777 + i) :][:1001] for k in range(20)]
        file = a.prepare(sets).list_id
        own = a.prepare([strided(a.region, 3, 1001, (500, 1003))]).list_id
        order = self.random.permutation(500)
        a.move(own, file, ids(range(500)), ids(order))
        view = numpy.lib.stride_tricks.as_strided(a.memory[3:], (500, 1001), (1003, 1))
        self.assertTrue((view == numpy.stack(pieces)[order]).all())
        # And back, elsewhere: what lies between the ranges stays.
        before = [self.contents(f"many-{i}") for i in range(25)]
        a.move(own, file, ids(range(500)), ids(order[::-1]), push=True)
        for i in range(25):
            now, expected = self.contents(f"many-{i}"), before[i].copy()
            for k in range(20):
                at = i + k * (1777 + i)
                index = 499 - int(numpy.flatnonzero(order == i * 20 + k)[0])
                expected[at : at + 1001] = view[index]
            self.assertTrue((now == expected).all(), i)

    def test_many_batches_are_whole_both_ways(self):
        size = 64 << 20
        path, data = self.file("large", size)
        a = self.client(size)
        count = size // BLOCK
        file = a.list_of(a.pass_path(path, os.O_RDWR, READ_WRITE), count)
        own = a.prepare(a.blocks(count)).list_id
        order = self.random.permutation(count)
        self.assertEqual(a.move(own, file, ids(order)).bytes, size)
        self.assertTrue((a.memory.reshape(count, BLOCK)[order] == data.reshape(count, BLOCK)).all())
        a.memory[:] ^= 0x5A
        a.move(own, file, dict(all=True), dict(all=True), push=True)
        self.assertTrue((self.contents("large") == a.memory).all())
        os.unlink(path)

    def test_a_created_file_appears_whole_with_its_commit(self):
        for carrier in ("grpc", "lease"):
            with self.subTest(carrier):
                a = self.client()
                name = f"created-{carrier}"
                fields = dict(root="data", path=name, size_bytes=64 * BLOCK)
                if carrier == "grpc":
                    region = a.store("CreateFile", **fields).region_id
                else:
                    reply, _ = a.session.lease.call(create_file=s.CreateFileRequest(**fields))
                    region = reply.create_file.region_id
                draft = a.list_of(region, 64)
                order = self.random.permutation(64)
                a.move(a.prepare().list_id, draft, ids(order[:40]), ids(range(40)), push=True)
                a.move(a.prepare().list_id, draft, ids(order[40:]), ids(range(40, 64)), push=True)
                self.assertFalse(os.path.exists(self.path(name)))
                if carrier == "grpc":
                    a.store("CommitDraft", region_id=region)
                else:
                    a.session.lease.call(commit_draft=s.CommitDraftRequest(region_id=region))
                self.assertTrue((self.contents(name).reshape(64, BLOCK) == a.memory.reshape(64, BLOCK)[order]).all())
                with self.refused(NOT_FOUND, f"region {region}"):
                    a.store("CommitDraft", region_id=region)
                # It can be opened by its name.
                opened = a.store("OpenFile", root="data", path=name)
                self.assertEqual(opened.size_bytes, 64 * BLOCK)
                a.move(a.prepare().list_id, a.list_of(opened.region_id, 64))
                self.assertTrue((self.contents(name) == a.memory).all())

    def test_a_draft_that_is_given_up_leaves_nothing(self):
        a = self.client()
        os.mkdir(self.path("drafts"))
        for end in ("abort", "free", "commit"):
            region = a.store("CreateFile", root="data", path="drafts/x", size_bytes=64 * BLOCK).region_id
            a.move(a.prepare().list_id, a.list_of(region, 64), ids([1]), ids([2]), push=True)
            if end == "abort":
                a.store("AbortDraft", region_id=region)
            elif end == "free":
                a.free(region)
            else:
                with self.refused(FAILED_PRECONDITION, "drafts/x", f"{BLOCK} bytes were written", f"expected {64 * BLOCK}"):
                    a.store("CommitDraft", region_id=region)
            with self.refused(NOT_FOUND, f"region {region}"):
                a.store("AbortDraft", region_id=region)
            self.assertEqual(os.listdir(self.path("drafts")), [])

    def test_a_commit_replaces_or_refuses_as_it_was_asked(self):
        a = self.client()
        fields = dict(root="data", path="taken", size_bytes=BLOCK)
        for if_absent in (True, False):
            region = a.store("CreateFile", if_absent=if_absent, **fields).region_id
            _, old = self.file("taken", 100)  # by somebody else
            a.move(a.prepare().list_id, a.list_of(region, 1), ids([7]), ids([0]), push=True)
            if if_absent:
                with self.refused(ALREADY_EXISTS, "taken"):
                    a.store("CommitDraft", region_id=region)
                self.assertTrue((self.contents("taken") == old).all())
                with self.refused(ALREADY_EXISTS, "taken"):
                    a.store("CreateFile", if_absent=True, **fields)
            else:
                a.store("CommitDraft", region_id=region)
                self.assertTrue((self.contents("taken") == a.memory[7 * BLOCK : 8 * BLOCK]).all())

    def test_a_client_that_is_killed_before_its_commit_leaves_nothing(self):
        os.mkdir(self.path("killed"))
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import harness, signal\n"
            "s = harness.LeaseSession(sys.argv[2])\n"
            "s.call(create_file=harness.api.storage.CreateFileRequest(root='data', path='killed/x', size_bytes=1 << 20))\n"
            "print('created', flush=True); signal.pause()\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__)), self.shuntd.lease],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(child.stdout.readline(), "created\n")
        self.assertGreater(self.held("killed/"), 0)
        child.kill()
        child.wait()
        child.stdout.close()
        wait_until(lambda: self.held("killed") == 0, what="the draft's end")
        self.assertEqual(os.listdir(self.path("killed")), [])

    def test_an_empty_file_can_be_created(self):
        a = self.client()
        region = a.store("CreateFile", root="data", path="empty").region_id
        a.store("CommitDraft", region_id=region)
        self.assertEqual(os.path.getsize(self.path("empty")), 0)

    def test_what_cannot_be_opened_is_refused_in_words(self):
        a = self.client()
        os.mkdir(self.path("directory"))
        os.mkfifo(self.path("fifo"))
        self.file("inside", 10)
        os.symlink("inside", self.path("link"))
        os.symlink("/etc/passwd", self.path("out"))
        os.symlink("..", self.path("up"))
        open_file = lambda path, **fields: a.store("OpenFile", root="data", path=path, **fields)
        self.assertEqual(open_file("inside").size_bytes, 10)
        for path, code in (
            ("link", PERMISSION_DENIED),
            ("missing", NOT_FOUND),
            ("directory", INVALID_ARGUMENT),
            ("fifo", INVALID_ARGUMENT),
            ("out", PERMISSION_DENIED),
            ("up/inside", PERMISSION_DENIED),
            ("../x", INVALID_ARGUMENT),
            ("", INVALID_ARGUMENT),
        ):
            with self.subTest(path), self.refused(code, path):
                open_file(path)
        with self.refused(NOT_FOUND, "root 'nowhere' is not configured"):
            a.store("OpenFile", root="nowhere", path="x")
        with self.refused(INVALID_ARGUMENT, "descriptor", "root"):
            a.store("OpenFile")
        with self.refused(INVALID_ARGUMENT, "access 7"):
            open_file("inside", access=7)
        with self.refused(INVALID_ARGUMENT, "../x"):
            a.store("CreateFile", root="data", path="../x", size_bytes=1)
        with self.refused(NOT_FOUND, "nodir"):
            a.store("CreateFile", root="data", path="nodir/x", size_bytes=1)

    def test_descriptors_are_checked(self):
        a = self.client()
        path, _ = self.file("passed", 10)

        def refused(flags, code, *words, where=path, access=READ, **fields):
            fd = os.open(where, flags)
            self.addCleanup(os.close, fd)
            with self.refused(code, *words):
                a.pass_file(fd, access=access, **fields)

        refused(os.O_RDONLY, INVALID_ARGUMENT, "regular file", where=self.root)
        refused(os.O_RDWR, INVALID_ARGUMENT, "regular file", where="/dev/null")
        refused(os.O_WRONLY, PERMISSION_DENIED)
        refused(os.O_RDONLY, PERMISSION_DENIED, access=READ_WRITE)
        refused(os.O_RDONLY, INVALID_ARGUMENT, "both", root="data", path="passed")
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        with self.refused(INVALID_ARGUMENT, "regular file"):
            a.pass_file(reading)
        before = self.shuntd.fds()
        for _ in range(20):
            with self.refused(INVALID_ARGUMENT):
                a.pass_file(reading, writing, reading)
        wait_until(lambda: self.shuntd.fds() <= before, what="the return of refused descriptors")

    def test_a_file_that_shrank_is_told_and_the_rest_of_it_can_be_read(self):
        path, data = self.file("shrinks", 16 * BLOCK)
        a = self.client()
        region = a.pass_path(path)
        own, file = a.prepare().list_id, a.list_of(region, 16)
        os.truncate(path, 8 * BLOCK + 1)
        with self.refused(OUT_OF_RANGE, "transfer", str(8 * BLOCK + 1)):
            a.move(own, file, ids(range(16)))
        a.move(own, file, ids(range(8)), ids(range(8)))
        self.assertTrue((a.memory[: 8 * BLOCK] == data[: 8 * BLOCK]).all())
        # One that grows shows what it had when it was opened.
        os.truncate(path, 32 * BLOCK)
        with self.refused(OUT_OF_RANGE):
            a.list_of(region, 17)

    def test_access_is_checked_before_anything_moves(self):
        path, _ = self.file("guarded", 4 * BLOCK)
        a = self.client()
        own = a.prepare().list_id
        reading = a.pass_path(path, os.O_RDWR)
        with self.refused(PERMISSION_DENIED, f"region {reading}", "for reading"):
            a.post(own, a.list_of(reading, 4), ids(range(4)), push=True)
        draft = a.store("CreateFile", root="data", path="draft", size_bytes=4 * BLOCK).region_id
        with self.refused(FAILED_PRECONDITION, f"region {draft}", "draft", "commit"):
            a.post(own, a.list_of(draft, 4), ids(range(4)))
        with self.refused(FAILED_PRECONDITION, f"region {draft}", "commit"):
            a.store("SyncFile", region_id=draft)
        with self.refused(FAILED_PRECONDITION, f"region {reading}", "draft"):
            a.store("CommitDraft", region_id=reading)
        with self.refused(UNIMPLEMENTED, "both sides are files"):
            a.post(a.list_of(reading, 4), a.list_of(a.pass_path(self.file("guarded-too", 4 * BLOCK)[0]), 4))
        with self.refused(INVALID_ARGUMENT, f"region {reading} is a file"):
            a.prepare([*a.blocks(), strided(reading, 0, BLOCK)])
        with self.refused(INVALID_ARGUMENT, f"region {a.region} is memory"):
            a.publish("mixed", [strided(reading, 0, BLOCK), *a.blocks()])
        with self.refused(OUT_OF_RANGE):
            a.list_of(reading, 5)
        with self.refused(NOT_FOUND, "region 987654"):
            a.store("SyncFile", region_id=987654)
        # Nothing was written into the draft: each byte can be once.
        a.move(own, a.list_of(draft, 4), ids(range(4)), push=True)
        with self.refused(INVALID_ARGUMENT, "draft", "expected each byte once"):
            a.move(own, a.list_of(draft, 4), ids(range(4)), push=True)

    def test_regions_of_files_are_listed_freed_and_private(self):
        path, _ = self.file("listed", 4 * BLOCK)
        a, b = self.client(), self.client()
        region = a.pass_path(path)
        self.assertGreater(self.held("listed"), 0)
        listed = a.session.memory.ListRegions(api.memory.ListRegionsRequest(token=a.session.token)).regions
        self.assertEqual(
            [(r.region_id, r.kind, r.size_bytes) for r in listed],
            [
                (a.region, api.memory.REGION_KIND_HOST_SHARED, a.memory.size),
                (region, api.memory.REGION_KIND_FILE, 4 * BLOCK),
            ],
        )
        with self.refused(NOT_FOUND, f"region {region}"):
            b.prepare([strided(region, 0, BLOCK)])
        with self.refused(NOT_FOUND, f"region {region}"):
            b.free(region)
        own, file = a.prepare().list_id, a.list_of(region, 4)
        a.free(region)
        wait_until(lambda: self.held("listed") == 0, what="the file's close")
        with self.refused(NOT_FOUND, f"region {region}", "closed"):
            a.post(own, file, ids(range(4)))
        with self.refused(NOT_FOUND, f"region {region}"):
            a.free(region)

    def test_a_session_that_ends_closes_its_files(self):
        os.mkdir(self.path("left"))
        path, _ = self.file("left/file", 4 * BLOCK)
        a = Client(self, None)
        for _ in range(10):
            a.pass_path(path)
            a.store("CreateFile", root="data", path="left/draft", size_bytes=1)
        self.assertGreaterEqual(self.held("left/"), 20)
        a.session.close()
        a.session.lease.socket.close()
        wait_until(lambda: self.held("left") == 0, what="the files' close")
        self.assertEqual(os.listdir(self.path("left")), ["file"])

    def test_another_session_reads_and_writes_a_published_file(self):
        path, data = self.file("shared", 64 * BLOCK)
        a, b = self.client(), self.client()
        region = a.pass_path(path, os.O_RDWR, READ_WRITE)
        sets = [strided(region, 0, BLOCK, (64, BLOCK))]
        a.publish("weights", sets, access=t.SECTION_ACCESS_READ)
        remote = b.fetch(a.name, "weights").list.list_id
        own = b.prepare().list_id
        self.assertEqual(b.move(own, remote, ids([9, 8]), ids([1, 2])).route, "read")
        self.assertTrue((b.memory.reshape(64, BLOCK)[[9, 8]] == data.reshape(64, BLOCK)[[1, 2]]).all())
        with self.refused(PERMISSION_DENIED, "published for reading"):
            b.post(own, remote, push=True)
        a.publish("both", sets)
        remote = b.fetch(a.name, "both", access=t.SECTION_ACCESS_READ_WRITE).list.list_id
        b.move(own, remote, ids([9]), ids([5]), push=True, notification=b"written", notify=True)
        self.assertEqual([(getattr(n, "from"), n.payload) for n in a.take().notifications], [(b.name, b"written")])
        self.assertTrue((self.contents("shared")[5 * BLOCK : 6 * BLOCK] == b.memory[9 * BLOCK : 10 * BLOCK]).all())
        # One's own file, and another's memory.
        c, mine = self.client(), b.list_of(b.pass_path(path), 64)
        c.publish("memory", access=t.SECTION_ACCESS_READ_WRITE)
        b.move(mine, b.fetch(c.name, "memory", access=t.SECTION_ACCESS_WRITE).list.list_id, push=True)
        self.assertTrue((c.memory == self.contents("shared")).all())
        a.free(region)
        with self.refused(NOT_FOUND, f"region {region}", "closed"):
            b.post(own, remote, ids([9]), ids([5]))
        a.session.close()
        with self.refused(FAILED_PRECONDITION, "has ended"):
            b.post(own, remote, ids([9]), ids([5]))


class LongTransfers(FilesTest):
    """Transfers that are still running when something happens to them."""

    SIZE = 256 << 20

    def long_read(self, **fields):
        """A client, and a transfer that takes a while: pieces of a file without content, one by one."""
        path = self.path("long")
        with open(path, "wb") as out:
            out.truncate(self.SIZE)
        a = Client(self, next(self.names), self.SIZE)
        count = self.SIZE // 512
        region = a.pass_path(path)
        file = a.prepare([strided(region, 0, 512, (count, 512))]).list_id
        own = a.prepare([strided(a.region, 0, 512, (count, 512))]).list_id
        return a, region, a.post(own, file, self.far_apart(count), **fields)

    @staticmethod
    def far_apart(count):
        """All pieces, but none beside the one before it."""
        runs = [t.PieceRun(first=i, count=count // 1024, step=1024) for i in range(1024)]
        return dict(runs=t.PieceRuns(runs=runs))

    def test_a_deadline_ends_it(self):
        a, region, transfer = self.long_read(timeout_ms=5)
        with self.refused(DEADLINE_EXCEEDED, f"transfer {transfer}", "deadline"):
            a.wait(transfer)
        a.free(region)

    def test_a_cancel_ends_it_and_until_then_its_regions_stay(self):
        a, region, transfer = self.long_read()
        with self.refused(FAILED_PRECONDITION, f"region {region}", f"in use by transfer {transfer}"):
            a.free(region)
        with self.refused(FAILED_PRECONDITION, f"region {a.region}", f"in use by transfer {transfer}"):
            a.free(a.region)
        a.ask("CancelTransfer", "CancelTransfer", transfer_id=transfer)
        with self.refused(CANCELLED, f"transfer {transfer}"):
            a.wait(transfer)
        a.free(region)
        a.free(a.region)

    def test_the_end_of_its_session_ends_it(self):
        a, _, transfer = self.long_read()
        self.assertGreater(self.held("long"), 0)
        a.session.close()
        a.session.lease.socket.close()
        a.session.channel.close()
        wait_until(lambda: self.held("long") == 0, what="the transfer's end")

    def test_the_daemon_holds_little_of_it(self):
        a, _, transfer = self.long_read()
        before = self.shuntd.status_kb("RssAnon")
        self.assertEqual(a.wait(transfer).bytes, self.SIZE)
        self.assertLess(self.shuntd.status_kb("RssAnon") - before, 16 << 10)

    def test_an_abort_of_a_draft_ends_what_writes_into_it(self):
        a = Client(self, next(self.names), self.SIZE)
        count = self.SIZE // 512
        region = a.store("CreateFile", root="data", path="aborted", size_bytes=self.SIZE).region_id
        draft = a.prepare([strided(region, 0, 512, (count, 512))]).list_id
        own = a.prepare([strided(a.region, 0, 512, (count, 512))]).list_id
        transfer = a.post(own, draft, self.far_apart(count), push=True)
        with self.refused(FAILED_PRECONDITION, f"region {region}", f"in use by transfer {transfer}"):
            a.store("CommitDraft", region_id=region)
        a.store("AbortDraft", region_id=region)
        with self.refused(CANCELLED, f"transfer {transfer}", f"region {region}", "aborted"):
            a.wait(transfer)
        self.assertFalse(os.path.exists(self.path("aborted")))


class SmallDisks(FilesTest):
    """On file systems of their own, which take a mount."""

    @classmethod
    def setUpClass(cls):
        cls.mounts = tempfile.mkdtemp(prefix="shunt-mounts-")
        cls.addClassCleanup(shutil.rmtree, cls.mounts, ignore_errors=True)
        for name in ("small", "readonly"):
            where = os.path.join(cls.mounts, name)
            os.mkdir(where)
            options = "size=1m" + (",ro" if name == "readonly" else "")
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "shunt-test", where], capture_output=True, check=False
            )
            if mounted.returncode != 0:
                raise unittest.SkipTest("may not mount a tmpfs")
            cls.addClassCleanup(subprocess.run, ["umount", where], check=False)
        cls.FLAGS = ("--storage-roots", f"small={cls.mounts}/small,readonly={cls.mounts}/readonly")
        cls.shuntd = Shuntd(*cls.FLAGS)

    def test_a_full_disk_is_told_and_nothing_is_left(self):
        a = self.client(2 << 20)
        with self.refused(RESOURCE_EXHAUSTED, "x"):
            region = a.store("CreateFile", root="small", path="x", size_bytes=2 << 20).region_id
            a.move(a.prepare(a.blocks(512)).list_id, a.list_of(region, 512), push=True)
            a.store("CommitDraft", region_id=region)
        left = [files for _, _, files in os.walk(os.path.join(self.mounts, "small"))]
        self.assertEqual([name for names in left for name in names], [])
        # In place, into a hole.
        path = os.path.join(self.mounts, "small", "holes")
        with open(path, "wb") as out:
            out.truncate(2 << 20)
        region = a.pass_path(path, os.O_RDWR, READ_WRITE)
        with self.refused(RESOURCE_EXHAUSTED, "transfer"):
            a.move(a.prepare(a.blocks(512)).list_id, a.list_of(region, 512), push=True)
        a.free(region)
        os.unlink(path)

    def test_a_read_only_disk_is_told(self):
        a = self.client()
        with self.refused(PERMISSION_DENIED, "readonly", "Read-only"):
            a.store("CreateFile", root="readonly", path="x", size_bytes=1)


class FewFiles(FilesTest):
    FLAGS = ("--max-regions-per-session", "3")

    def test_a_session_has_no_more_files_than_it_may(self):
        path, _ = self.file("f", 10)
        a = self.client()
        regions = [a.pass_path(path) for _ in range(3)]
        for _ in range(2):
            with self.refused(RESOURCE_EXHAUSTED, "max_regions_per_session", 3):
                a.pass_path(path)
        with self.refused(RESOURCE_EXHAUSTED, "max_regions_per_session"):
            a.store("CreateFile", root="data", path="y", size_bytes=1)
        a.free(regions[0])
        with self.refused(NOT_FOUND):
            a.store("OpenFile", root="data", path="missing")
        a.pass_path(path)
        self.client().pass_path(path)


class LittleMemory(FilesTest):
    FLAGS = ("--memory-per-session", "1MiB")

    def test_a_scattered_draft_counts_as_its_sessions_memory(self):
        a = self.client(64 << 10)
        count = 16 << 10  # one byte in two
        region = a.store("CreateFile", root="data", path="scattered", size_bytes=2 * count).region_id
        draft = a.prepare([strided(region, 0, 1, (count, 2))]).list_id
        own = a.prepare([strided(a.region, 0, 1, (count, 1))]).list_id
        with self.refused(RESOURCE_EXHAUSTED, "scattered", "separate ranges", "memory_per_session", "neighbouring pieces"):
            a.move(own, draft, push=True)
        with self.refused(FAILED_PRECONDITION, "scattered"):
            a.store("CommitDraft", region_id=region)
        self.assertFalse(os.path.exists(self.path("scattered")))
        # All of it is given back.
        a.session.allocate(15 << 16)

    def test_what_a_transfers_ids_take_is_back_with_its_answer(self):
        path, _ = self.file("ids", 80_000)
        a = self.client(160 << 10)
        own = a.prepare([strided(a.region, 0, 8, (10_000, 8))]).list_id
        other = a.prepare([strided(a.region, 80_000, 8, (10_000, 8))]).list_id
        file = a.prepare([strided(a.pass_path(path), 0, 8, (10_000, 8))]).list_id
        order = list(range(9_999, -1, -1))
        for source, route in ((other, "copy"), (file, "read")) * 20:
            self.assertEqual(a.move(own, source, ids(order), ids(order)).route, route)
            region, memory = a.session.allocate((1 << 20) - (160 << 10))
            memory.close()
            a.free(region)

    def test_neighbours_one_after_the_other_need_no_memory(self):
        a = self.client(64 << 10)
        count = 64 << 10
        region = a.store("CreateFile", root="data", path="in-order", size_bytes=count).region_id
        draft = a.prepare([strided(region, 0, 1, (count, 1))]).list_id
        own = a.prepare([strided(a.region, 0, 1, (count, 1))]).list_id
        a.move(own, draft, push=True)
        a.store("CommitDraft", region_id=region)
        self.assertTrue((self.contents("in-order") == a.memory).all())


class NoRoots(DaemonTest):
    def test_without_roots_descriptors_alone_are_opened(self):
        a = Client(self, "a")
        with self.refused(NOT_FOUND, "root 'data' is not configured"):
            a.store("OpenFile", root="data", path="x")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x" * BLOCK)
            file.flush()
            a.move(a.prepare(a.blocks(1)).list_id, a.list_of(a.pass_path(file.name), 1))
        self.assertTrue((a.memory[:BLOCK] == ord("x")).all())

    def test_a_root_that_is_not_there_stops_the_start(self):
        daemon = Shuntd("--storage-roots", "data=/nonexistent/shunt", check=False)
        self.assertNotEqual(daemon.process.wait(timeout=30), 0)
        for word in ("data", "/nonexistent/shunt"):
            self.assertIn(word, daemon.log())
        daemon.stop()

    def test_objects_need_an_endpoint(self):
        a = Client(self, "b")
        with self.refused(NOT_FOUND, "endpoint 'minio' is not configured"):
            a.store("OpenObject", endpoint="minio", bucket="b", key="k")


class TwoNodes(DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="shunt-root-")
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        probes = [socket.socket() for _ in range(2)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        members = ",".join(f"{node}=127.0.0.1:{probe.getsockname()[1]}" for node, probe in zip("ab", probes))
        for probe in probes:
            probe.close()
        start = lambda node: Shuntd(
            "--cluster-node", node, "--cluster-listen", members.split(",")["ab".index(node)][2:], "--cluster-members", members
        )
        cls.shuntd, cls.other = start("a"), start("b")

    @classmethod
    def tearDownClass(cls):
        assert cls.other.stop() == 0
        super().tearDownClass()

    def test_files_move_to_and_from_memory_of_their_own_node_alone(self):
        a = Client(self, "here")
        self.shuntd, here = self.other, self.shuntd
        b = Client(self, "there")
        self.shuntd = here
        path = os.path.join(self.root, "f")
        with open(path, "wb") as out:
            out.write(bytes(64 * BLOCK))
        file = b.pass_path(path)
        b.publish("file", [strided(file, 0, BLOCK, (64, BLOCK))])
        b.publish("memory")
        wait_until(lambda: self.fetched(a, "memory"), what="the other node's answer")
        with self.refused(UNIMPLEMENTED, '"file"', "files or objects"):
            a.fetch("there@b", "file")
        own = a.list_of(a.pass_path(path), 64)
        with self.refused(UNIMPLEMENTED, "their own node"):
            a.post(own, a.fetch("there@b", "memory").list.list_id, push=True)

    @staticmethod
    def fetched(client, section):
        try:
            return client.fetch("there@b", section)
        except grpc.RpcError:
            return None


if __name__ == "__main__":
    unittest.main()
