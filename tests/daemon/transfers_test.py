"""Transfers between agents of one daemon, asked for over gRPC and, by hand, over the ring."""

import os
import struct
import threading
import time
import unittest

import grpc
import numpy

from harness import *

t = api.transfer
BLOCK = 4096


def strided(region, offset, length, *dimensions):
    return t.StridedSet(
        region_id=region,
        offset_bytes=offset,
        length_bytes=length,
        dimensions=[t.StridedDimension(count=count, stride_bytes=stride) for count, stride in dimensions],
    )


def ids(which, unit=0, repeats=0, repeat_step=0):
    return dict(ids=t.PieceIds(ids=which, unit=unit, repeats=repeats, repeat_step=repeat_step))


class Agent:
    """A session that is an agent, with one region as bytes."""

    def __init__(self, test, name, size=64 * BLOCK, session=None):
        self.session = session or test.session(name or "nobody")
        self.name = name
        self.stub = api.transfer_grpc.TransfersStub(self.session.channel)
        self.region, memory = self.session.allocate(size)
        self.memory = numpy.frombuffer(memory, dtype=numpy.uint8)
        if name:
            self.incarnation = self.ask("RegisterAgent", "RegisterAgent", name=name).incarnation

    def ask(self, method, request, **fields):
        return getattr(self.stub, method)(
            getattr(t, request + "Request")(token=self.session.token, **fields), timeout=20
        )

    def blocks(self, count=64, length=BLOCK, stride=None, offset=0):
        return [strided(self.region, offset, length, (count, stride or length))]

    def publish(self, section="kv", sets=None, **fields):
        return self.ask("PublishSection", "PublishSection", name=section, sets=sets or self.blocks(), **fields)

    def prepare(self, sets=None):
        return self.ask("PrepareList", "PrepareList", sets=sets or self.blocks()).list

    def fetch(self, agent, section="kv", **fields):
        return self.ask("FetchSection", "FetchSection", agent=agent, section=section, **fields)

    def post(self, local, remote, local_form=None, remote_form=None, push=False, **fields):
        return self.ask(
            "PostTransfer",
            "PostTransfer",
            direction=int(push),
            local=t.Selection(list_id=local, **(local_form or dict(all=True))),
            remote=t.Selection(list_id=remote, **(remote_form or dict(all=True))),
            **fields,
        ).transfer_id

    def wait(self, transfer):
        return self.ask("WaitTransfer", "WaitTransfer", transfer_id=transfer)

    def move(self, *args, **fields):
        return self.wait(self.post(*args, **fields))

    def take(self, **fields):
        return self.ask("TakeNotifications", "TakeNotifications", **fields)


class Transfers(DaemonTest):
    def setUp(self):
        self.names = iter(f"{self.id()}-{i}" for i in range(100))
        self.random = numpy.random.default_rng(7)

    def agent(self, *args, **kwargs):
        return Agent(self, next(self.names).replace("/", "-"), *args, **kwargs)

    def pair(self, size=64 * BLOCK):
        """Two agents, the first with random bytes and a section "kv"; the second has fetched it."""
        a, b = self.agent(size), self.agent(size)
        a.memory[:] = self.random.integers(0, 256, a.memory.size, dtype=numpy.uint8)
        count = size // BLOCK
        a.publish(sets=a.blocks(count))
        remote = b.fetch(a.name, access=t.SECTION_ACCESS_READ_WRITE)
        self.assertEqual(remote.list.pieces, count)
        self.assertEqual(remote.list.piece_bytes, BLOCK)
        self.assertEqual(remote.incarnation, a.incarnation)
        return a, b, remote.list.list_id, b.prepare(b.blocks(count)).list_id

    def test_a_pull_moves_named_blocks_and_nothing_else(self):
        a, b, remote, local = self.pair()
        here, there = [5, 0, 63], [7, 62, 1]
        report = b.move(local, remote, ids(here), ids(there))
        self.assertEqual((report.bytes, report.route), (3 * BLOCK, "copy"))
        expected = numpy.zeros_like(b.memory).reshape(64, BLOCK)
        expected[here] = a.memory.reshape(64, BLOCK)[there]
        self.assertTrue((b.memory.reshape(64, BLOCK) == expected).all())

    def test_a_push_moves_the_other_way(self):
        a, b, remote, local = self.pair()
        before = a.memory.copy().reshape(64, BLOCK)
        b.memory[:] = self.random.integers(0, 256, b.memory.size, dtype=numpy.uint8)
        runs = dict(runs=t.PieceRuns(runs=[t.PieceRun(first=3, count=4, step=5)]))
        b.move(local, remote, ids([1, 2, 3, 4]), runs, push=True)
        before[[3, 8, 13, 18]] = b.memory.reshape(64, BLOCK)[[1, 2, 3, 4]]
        self.assertTrue((a.memory.reshape(64, BLOCK) == before).all())

    def test_large_transfers_are_whole_in_every_class(self):
        a, b, remote, local = self.pair(16 << 20)
        for transfer_class in range(3):
            b.memory[:] = 0
            order = self.random.permutation(a.memory.size // BLOCK)
            report = b.move(local, remote, ids(order), dict(all=True), transfer_class=transfer_class)
            self.assertEqual(report.bytes, a.memory.size)
            self.assertTrue((b.memory.reshape(-1, BLOCK)[order] == a.memory.reshape(-1, BLOCK)).all())

    def test_other_block_sizes_on_both_sides(self):
        a, b, remote, _ = self.pair()
        # The first half of each block, in pieces of 1 KiB.
        halves = a.publish("halves", [strided(a.region, 0, BLOCK // 2, (64, BLOCK))])
        self.assertEqual(halves.version, 1)
        fetched = b.fetch(a.name, "halves").list
        self.assertEqual(fetched.bytes, 32 * BLOCK)
        small = b.prepare([strided(b.region, 0, 1024, (128, 1024))])
        b.move(small.list_id, fetched.list_id)
        self.assertTrue(
            (b.memory[: 32 * BLOCK].reshape(64, -1) == a.memory.reshape(64, BLOCK)[:, : BLOCK // 2]).all()
        )

    def test_raw_pieces_stay_within_what_the_sets_cover(self):
        a, b, remote, local = self.pair()
        raw = lambda region, offset, length: dict(
            raw=t.RawPieces(pieces=[t.RawPiece(region_id=region, offset_bytes=offset, length_bytes=length)])
        )
        b.move(local, remote, raw(b.region, 3, 10_000), raw(a.region, 77, 10_000))
        self.assertTrue((b.memory[3:10_003] == a.memory[77:10_077]).all())
        a.publish("gaps", [strided(a.region, 0, 100, (4, 200)), strided(a.region, 1000, 100), strided(a.region, 1100, 50)])
        gaps = b.fetch(a.name, "gaps").list.list_id
        b.move(local, gaps, raw(b.region, 0, 150), raw(a.region, 1000, 150))
        for offset, length in ((0, 100), (999, 2), (1100, 51), (1150, 1)):
            with self.refused(OUT_OF_RANGE, "piece 0", f"offset {offset}", f"length {length}"):
                b.post(local, gaps, raw(b.region, 0, length), raw(a.region, offset, length))

    def test_notifications_come_after_the_data_and_once(self):
        a, b, remote, local = self.pair(4 << 20)
        got = []

        def receive():
            while len(got) < 20:
                taken = a.take(wait_ms=10_000)
                for n in taken.notifications:
                    index = int(n.payload)
                    got.append((getattr(n, "from"), index))
                    # The last byte of the block that it tells of.
                    assert a.memory[(index + 1) * (128 << 10) - 1] == index + 1, index

        thread = threading.Thread(target=receive)
        thread.start()
        transfers = []
        for index in range(20):
            b.memory[index * (128 << 10) : (index + 1) * (128 << 10)] = index + 1
            run = dict(runs=t.PieceRuns(runs=[t.PieceRun(first=index * 32, count=32)]))
            transfers.append(
                b.post(local, remote, run, run, push=True, notification=str(index).encode(), notify=True)
            )
        thread.join(timeout=30)
        self.assertEqual(sorted(got), sorted((b.name, index) for index in range(20)))
        for transfer in transfers:
            b.wait(transfer)
        self.assertEqual(len(a.take().notifications), 0)

    def test_an_inbox_that_is_full_is_an_error_to_the_sender(self):
        a, b, remote, local = self.pair()
        for _ in range(1024):
            b.ask("Notify", "Notify", agent=a.name, payload=b"x")
        with self.refused(RESOURCE_EXHAUSTED, a.name, 1024):
            b.ask("Notify", "Notify", agent=a.name, payload=b"y")
        b.memory[:] = 9
        with self.refused(RESOURCE_EXHAUSTED, a.name, 1024):
            b.post(local, remote, push=True, notify=True)
        self.assertFalse((a.memory == 9).all())
        taken = 0
        while True:
            some = a.take()
            taken += len(some.notifications)
            if not some.more:
                break
        self.assertEqual(taken, 1024)
        b.move(local, remote, push=True, notify=True)
        self.assertEqual([n.payload for n in a.take().notifications], [b""])

    def test_a_wait_for_notifications_ends_in_time_or_with_the_first(self):
        a = self.agent()
        began = time.monotonic()
        self.assertEqual(len(a.take(wait_ms=50).notifications), 0)
        self.assertGreaterEqual(time.monotonic() - began, 0.04)
        with self.refused(FAILED_PRECONDITION, "no agent"):
            Agent(self, None).take()

    def test_a_section_that_changed_is_refused_and_fetched_again(self):
        a, b, remote, local = self.pair()
        self.assertEqual(a.publish(sets=a.blocks(32)).version, 2)
        with self.refused(FAILED_PRECONDITION, '"kv"', a.name, "version 2 now", "version 1 was fetched"):
            b.post(local, remote)
        again = b.fetch(a.name)
        self.assertEqual((again.version, again.list.pieces), (2, 32))
        b.move(local, again.list.list_id, ids(range(32)))
        a.ask("WithdrawSection", "WithdrawSection", name="kv")
        with self.refused(FAILED_PRECONDITION, "withdrawn"):
            b.post(local, again.list.list_id, ids(range(32)))
        with self.refused(NOT_FOUND, "no section", '"kv"'):
            b.fetch(a.name)
        self.assertEqual(a.publish().version, 3)

    def test_an_agent_that_ended_or_came_back_is_told_from_the_one_before(self):
        a, b, remote, local = self.pair()
        name = a.name
        a.session.close()
        with self.refused(FAILED_PRECONDITION, name, "has ended"):
            b.post(local, remote)
        with self.refused(NOT_FOUND, name):
            b.fetch(name)
        again = Agent(self, name)
        self.assertNotEqual(again.incarnation, a.incarnation)
        again.publish()
        with self.refused(FAILED_PRECONDITION, name, "has ended"):
            b.post(local, remote)
        b.move(local, b.fetch(name).list.list_id)

    def test_names_are_checked_and_unique(self):
        a = self.agent()
        other = Agent(self, None)
        for name in ("", "a/b", "a@b", "x" * 256, "a\nb"):
            with self.refused(INVALID_ARGUMENT, "agent name"):
                other.ask("RegisterAgent", "RegisterAgent", name=name)
        with self.refused(ALREADY_EXISTS, a.name, f"session {a.session.id}"):
            other.ask("RegisterAgent", "RegisterAgent", name=a.name)
        with self.refused(ALREADY_EXISTS, a.name):
            a.ask("RegisterAgent", "RegisterAgent", name="another")
        with self.refused(FAILED_PRECONDITION, "no agent"):
            other.publish()

    def test_access_is_as_the_section_says(self):
        a, b, _, local = self.pair()
        a.publish("in", access=t.SECTION_ACCESS_WRITE)
        a.publish("out", access=t.SECTION_ACCESS_READ)
        with self.refused(PERMISSION_DENIED, '"in"', "for writing", "not for reading"):
            b.fetch(a.name, "in")
        with self.refused(PERMISSION_DENIED, '"out"', "not for writing"):
            b.fetch(a.name, "out", access=t.SECTION_ACCESS_WRITE)
        out = b.fetch(a.name, "out").list.list_id
        with self.refused(PERMISSION_DENIED, '"out"', "not for writing"):
            b.post(local, out, push=True)
        b.move(local, out)

    def test_sides_that_do_not_fit_are_refused(self):
        a, b, remote, local = self.pair()
        with self.refused(INVALID_ARGUMENT, 2 * BLOCK, BLOCK):
            b.post(local, remote, ids([1, 2]), ids([1]))
        with self.refused(OUT_OF_RANGE, "remote", "id 1 is 64", "64 pieces"):
            b.post(local, remote, ids([1, 2]), ids([1, 64]))
        with self.refused(INVALID_ARGUMENT):
            b.post(local, remote, ids([1, 1]), ids([1, 2]))  # written twice
        with self.refused(INVALID_ARGUMENT, "remote", "no form"):
            b.ask("PostTransfer", "PostTransfer", local=t.Selection(list_id=local, all=True), remote=t.Selection(list_id=remote))
        with self.refused(NOT_FOUND, "remote", "list 12345678"):
            b.post(local, 12345678)
        with self.refused(INVALID_ARGUMENT, "local", a.name):
            b.post(remote, remote)
        with self.refused(INVALID_ARGUMENT, "notification of 1025"):
            b.post(local, remote, notification=b"x" * 1025)
        with self.refused(INVALID_ARGUMENT, "class 7"):
            b.post(local, remote, transfer_class=7)
        with self.refused(INVALID_ARGUMENT, "direction 2"):
            b.ask("PostTransfer", "PostTransfer", direction=2)
        self.assertEqual(b.memory.max(), 0)

    def test_sets_that_are_wrong_are_named(self):
        a = self.agent()
        b = self.agent()
        with self.refused(NOT_FOUND, "set 1", f"region {b.region}"):
            a.publish(sets=[strided(a.region, 0, 1), strided(b.region, 0, 1)])
        with self.refused(OUT_OF_RANGE):
            a.prepare([strided(a.region, 0, BLOCK, (65, BLOCK))])
        with self.refused(INVALID_ARGUMENT, "set 0", "4 dimensions"):
            a.prepare([strided(a.region, 0, 1, (1, 1), (1, 1), (1, 1), (1, 1))])
        with self.refused(INVALID_ARGUMENT):
            a.prepare([strided(a.region, 0, BLOCK, (4, -BLOCK))])
        with self.refused(INVALID_ARGUMENT):
            a.publish("", a.blocks())

    def test_a_region_cannot_be_freed_under_a_transfer_and_a_freed_one_is_named(self):
        a, b, remote, local = self.pair()
        a.session.memory.FreeRegion(api.memory.FreeRegionRequest(token=a.session.token, region_id=a.region))
        with self.refused(NOT_FOUND, f"region {a.region}", a.name, "has freed it"):
            b.post(local, remote)

    def test_lists_are_released_and_bounded(self):
        a, b, remote, local = self.pair()
        b.ask("ReleaseList", "ReleaseList", list_id=local)
        with self.refused(NOT_FOUND, f"list {local}"):
            b.post(local, remote)
        with self.refused(NOT_FOUND, f"list {local}"):
            b.ask("ReleaseList", "ReleaseList", list_id=local)
        with self.refused(RESOURCE_EXHAUSTED, "1024 lists"):
            for _ in range(1025):
                b.prepare()

    def test_explain_names_the_route_and_learns_the_time(self):
        a, b, remote, local = self.pair()
        ask = lambda: b.ask(
            "ExplainTransfer",
            "PostTransfer",
            local=t.Selection(list_id=local, **ids([3, 9, 5])),
            remote=t.Selection(list_id=remote, **ids([1, 2, 7])),
        )
        first = ask()
        self.assertEqual((first.bytes, first.route, first.copy_runs), (3 * BLOCK, "copy", 3))
        self.assertEqual(b.memory.max(), 0)
        b.move(local, remote, ids([3, 9, 5]), ids([1, 2, 7]))
        self.assertGreater(ask().predicted_ns, 0)

    def test_transfers_that_are_not_there(self):
        a, b, remote, local = self.pair()
        transfer = b.post(local, remote)
        b.wait(transfer)
        for method in ("WaitTransfer", "CancelTransfer"):
            with self.refused(NOT_FOUND, f"transfer {transfer}"):
                b.ask(method, method, transfer_id=transfer)

    def test_a_cancelled_or_late_transfer_ends_so_or_is_whole(self):
        a, b, remote, local = self.pair(64 << 20)
        for fields in (dict(), dict(timeout_ms=1)):
            transfers = [b.post(local, remote, **fields) for _ in range(20)]
            if not fields:
                for transfer in transfers:
                    try:
                        b.ask("CancelTransfer", "CancelTransfer", transfer_id=transfer)
                    except grpc.RpcError as error:
                        self.assert_code(error, NOT_FOUND)  # it was quicker
            expected = DEADLINE_EXCEEDED if fields else CANCELLED
            ended = 0
            for transfer in transfers:
                try:
                    b.wait(transfer)
                except grpc.RpcError as error:
                    self.assert_code(error, expected, f"transfer {transfer}")
                    ended += 1
            self.assertGreater(ended, 0)
        b.move(local, remote)
        self.assertTrue((a.memory == b.memory).all())


class Deaths(DaemonTest):
    CHILD = (
        "import sys; sys.path.insert(0, sys.argv[1]); import harness, transfers_test as tt\n"
        "class T:\n"
        "    def session(self, name): return harness.plain_grpc.Session(harness.api, sys.argv[2], name)\n"
        "a = tt.Agent(T(), 'mortal', 256 << 20); a.memory[:] = 1; a.publish(sets=a.blocks(65536))\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )

    def test_an_agent_that_is_killed_ends_transfers_with_it_by_name(self):
        child = subprocess.Popen(
            [sys.executable, "-c", self.CHILD, str(pathlib.Path(__file__).parent), self.shuntd.socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.assertEqual(child.stdout.readline(), "ready\n")
            b = Agent(self, "survivor", 256 << 20)
            local = b.prepare(b.blocks(65536)).list_id
            remote = b.fetch("mortal").list.list_id
            transfers = [b.post(local, remote) for _ in range(40)]
            child.kill()
            child.wait()
            words = []
            for transfer in transfers:
                try:
                    b.wait(transfer)
                except grpc.RpcError as error:
                    self.assert_code(error, UNAVAILABLE, '"mortal"', f"pid {child.pid}", "ended")
                    words.append(error.details())
            self.assertGreater(len(words), 0)
            with self.refused(FAILED_PRECONDITION, "mortal", "has ended"):
                b.post(local, remote)
        finally:
            child.kill()
            child.stdin.close()
            child.stdout.close()
            child.wait()


class RingPosts(DaemonTest):
    """Posts in shared memory, as a client that means ill would make them."""

    SQ_TAIL, CQ_TAIL, CQ_HEAD, HEADER = 64, 192, 256, 384

    def setUp(self):
        self.s = self.lease(rings=16)
        self.region, fd = self.s.allocate(1 << 20)
        self.memory = mmap.mmap(fd, 1 << 20)
        os.close(fd)
        self.addCleanup(self.memory.close)
        self.pushed = 0
        sets = [strided(self.region, 256 << 10, 1024, (64, 1024))]
        self.list = self.s.call(prepare_list=t.PrepareListRequest(sets=sets))[0].prepare_list.list.list_id
        sets = [strided(self.region, 512 << 10, 1024, (64, 1024))]
        self.other = self.s.call(prepare_list=t.PrepareListRequest(sets=sets))[0].prepare_list.list.list_id

    def record(self, local=None, remote=None, magic=0x53485450, direction=0, transfer_class=0, notify=0, note=(0, 0)):
        side = lambda list_id, form=0, offset=0, count=0, unit=1, repeats=1, step=0: struct.pack(
            "<QIIQQQQQ", list_id, form, 0, offset, count, unit, repeats, step
        )
        return struct.pack("<IBBBBQQ", magic, direction, transfer_class, notify, 0, *note) + side(
            *(local or (self.list,))
        ) + side(*(remote or (self.other,)))

    def push(self, record, offset=0, region=None):
        """The completion's code."""
        if offset + len(record) <= len(self.memory):
            self.memory[offset : offset + len(record)] = record
        index = self.pushed
        self.pushed += 1
        entry = struct.pack("<QIIQQqQQQ", 1000 + index, 3, 0, region or self.region, offset, (1 << 63) - 1, 0, 0, 0)
        at = self.HEADER + (index % 16) * 64
        self.s.ring[at : at + 64] = entry
        self.s.ring[self.SQ_TAIL : self.SQ_TAIL + 4] = struct.pack("<I", index + 1)
        os.eventfd_write(self.s.doorbell, 1)
        word = lambda at: struct.unpack("<I", self.s.ring[at : at + 4])[0]
        wait_until(lambda: word(self.CQ_TAIL) == index + 1)
        at = self.HEADER + 16 * 64 + (index % 16) * 16
        token, code = struct.unpack("<Qi", self.s.ring[at : at + 12])
        self.assertEqual(token, 1000 + index)
        self.s.ring[self.CQ_HEAD : self.CQ_HEAD + 4] = struct.pack("<I", index + 1)
        return code

    def words(self):
        try:
            self.s.call(wait_transfer=t.WaitTransferRequest(transfer_id=1000 + self.pushed - 1))
        except LeaseError as error:
            return error.message
        return ""

    def test_a_post_with_ids_in_memory_moves_them(self):
        self.memory[512 << 10 : 576 << 10] = bytes(range(256)) * 256
        self.memory[8192:8200] = struct.pack("<II", 5, 63)
        self.memory[8208:8224] = struct.pack("<QQ", 2, 1)
        self.assertEqual(self.push(self.record((self.list, 2, 8192, 2), (self.other, 3, 8208, 2))), OK)
        at = lambda base, piece: self.memory[base + piece * 1024 : base + (piece + 1) * 1024]
        self.assertEqual(at(256 << 10, 5), at(512 << 10, 2))
        self.assertEqual(at(256 << 10, 63), at(512 << 10, 1))
        self.assertEqual(at(256 << 10, 0), bytes(1024))
        report = self.s.call(wait_transfer=t.WaitTransferRequest(transfer_id=1000))[0].wait_transfer
        self.assertEqual((report.bytes, report.route), (2048, "copy"))

    def test_records_that_lie_are_refused_in_words(self):
        cases = [
            (dict(magic=1), INVALID_ARGUMENT, "expected 53485450"),
            (dict(direction=9), INVALID_ARGUMENT, "direction 9"),
            (dict(transfer_class=9), INVALID_ARGUMENT, "class 9"),
            (dict(local=(self.list, 7)), INVALID_ARGUMENT, "local: unknown form 7"),
            (dict(local=(77, 0)), NOT_FOUND, "local: list 77"),
            (dict(remote=(self.other, 2, 4, 1)), INVALID_ARGUMENT, "offset 4, expected a multiple of 8"),
            (dict(remote=(self.other, 2, 0, 1 << 60)), INVALID_ARGUMENT, str(1 << 60)),
            (dict(remote=(self.other, 2, 1 << 20, 1)), OUT_OF_RANGE, f"region {self.region}"),
            (dict(remote=(self.other, 3, (1 << 64) - 8, 1)), OUT_OF_RANGE, f"region {self.region}"),
            (dict(remote=(self.other, 2, 8192, 1, 0)), INVALID_ARGUMENT, "remote: ids of 0 pieces"),
            (dict(remote=(self.other, 2, 8192, 0)), INVALID_ARGUMENT, "no ids"),
            (dict(notify=1, note=(0, 1025)), INVALID_ARGUMENT, "1025"),
            (dict(notify=1, note=((1 << 64) - 1, 1024)), OUT_OF_RANGE, f"region {self.region}"),
            (dict(notify=1), INVALID_ARGUMENT, "own"),
        ]
        for fields, code, words in cases:
            with self.subTest(words):
                self.assertEqual(self.push(self.record(**fields)), code)
                self.assertIn(words, self.words())
        # A record that is not in the region, or in none.
        for offset in ((1 << 20) - 8, (1 << 64) - 1):
            self.assertEqual(self.push(self.record(), offset), OUT_OF_RANGE)
        self.assertEqual(self.push(self.record(), 0, self.region + 1000), NOT_FOUND)
        self.assertEqual(self.push(self.record()), OK)

    def test_random_records_harm_nobody(self):
        random = numpy.random.default_rng(11)
        good = self.record((self.list, 2, 8192, 3), (self.other, 3, 16384, 3))
        for _ in range(400):
            record = bytearray(good)
            for _ in range(random.integers(1, 4)):
                record[random.integers(4, len(record))] = random.integers(0, 256)
            self.memory[8192 : 8192 + 64] = random.bytes(64)
            self.push(bytes(record))


if __name__ == "__main__":
    unittest.main()
