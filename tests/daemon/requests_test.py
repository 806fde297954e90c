"""Bad requests get clear errors, and only their sender notices them."""

import mmap
import os
import struct
import threading
import time
import unittest

import numpy

from harness import *

RESERVED = 1 << 64


class BadCalls(DaemonTest):
    """Calls of one rank that is alone in its communicator: everything but the call is right."""

    def setUp(self):
        self.s = self.session()
        self.region, self.memory = self.s.allocate(4096)
        self.comm = self.s.join(f"alone-{self.id()}", 0, 1)
        self.api = api.collective

    def submit(self, kind=api.collective.OPERATION_KIND_ALL_REDUCE, **fields):
        fields.setdefault("input", (self.region, 0))
        fields.setdefault("output", (self.region, 2048))
        fields.setdefault("count", 8)
        for key in [key for key, value in fields.items() if value is None]:
            del fields[key]
        return self.s.submit(fields.pop("communicator", self.comm), kind, **fields)

    def test_a_good_call_works_afterwards_and_before(self):
        numpy.frombuffer(self.memory, dtype=numpy.float32)[:8] = 3
        self.s.wait(self.submit())
        self.assertEqual(numpy.frombuffer(self.memory, dtype=numpy.float32)[512:520].tolist(), [3] * 8)

    def test_unknown_communicator(self):
        for communicator in (0, self.comm + 1000, RESERVED - 1):
            with self.refused(NOT_FOUND, f"communicator {communicator}"):
                self.submit(communicator=communicator)

    def test_unknown_region(self):
        for region in (0, self.region + 1000, RESERVED - 1):
            with self.refused(NOT_FOUND, f"region {region}"):
                self.submit(input=(region, 0))
            with self.refused(NOT_FOUND, f"region {region}"):
                self.submit(output=(region, 0))

    def test_offset_or_length_outside_the_region(self):
        for offset in (4096, 4080, 1 << 40, RESERVED - 4, RESERVED - 32):
            with self.refused(OUT_OF_RANGE, f"region {self.region}", offset, 4096):
                self.submit(output=(self.region, offset))
        with self.refused(OUT_OF_RANGE, f"region {self.region}"):
            self.submit(count=1025)

    def test_counts_that_overflow(self):
        for count in (1 << 62, RESERVED - 1, (1 << 64) // 4):
            with self.refused(INVALID_ARGUMENT, "count", count):
                self.submit(count=count)

    def test_unaligned_buffers(self):
        with self.refused(INVALID_ARGUMENT, "offset 2 ", "float32", "multiple of 4"):
            self.submit(input=(self.region, 2))
        with self.refused(INVALID_ARGUMENT, "offset 2052", "multiple of 8"):
            self.submit(output=(self.region, 2052), data_type=self.api.DATA_TYPE_INT64)

    def test_unknown_kind_type_and_reduction(self):
        for number in (12, 99, 2**31 - 1, -1, -(2**31)):
            with self.refused(INVALID_ARGUMENT, "unknown operation", number):
                self.submit(kind=number)
            with self.refused(INVALID_ARGUMENT, "unknown data type", number):
                self.submit(data_type=number)
        for number in (6, 255, 256, -1):
            with self.refused(INVALID_ARGUMENT, "unknown reduction", number):
                self.submit(reduce_op=number)

    def test_missing_buffer(self):
        with self.refused(INVALID_ARGUMENT, "input", "no buffer"):
            self.submit(input=None)
        with self.refused(INVALID_ARGUMENT, "output", "no buffer"):
            self.submit(output=None)

    def test_overlapping_buffers(self):
        with self.refused(INVALID_ARGUMENT, "overlap"):
            self.submit(input=(self.region, 0), output=(self.region, 16))
        self.s.wait(self.submit(input=(self.region, 0), output=(self.region, 0)))  # in place

    def test_root_and_peer_out_of_range(self):
        for root in (-1, 1, 1000, -(2**31)):
            with self.refused(INVALID_ARGUMENT, "root", root):
                self.submit(kind=self.api.OPERATION_KIND_BROADCAST, root=root)
        for peer in (-1, 1, 2**31 - 1):
            with self.refused(INVALID_ARGUMENT, "peer", peer):
                self.submit(kind=self.api.OPERATION_KIND_SEND, root=peer)

    def test_scalar_of_the_wrong_size(self):
        for scalar in (b"", b"abc", b"12345678"):
            with self.refused(INVALID_ARGUMENT, "scalar of", len(scalar)):
                self.submit(reduce_op=self.api.REDUCE_OP_PREMUL_SUM, scalar=scalar)

    def test_all_to_all_v_tables(self):
        kind = self.api.OPERATION_KIND_ALL_TO_ALL_V
        table = dict(send_counts=[4], send_displacements=[0], receive_counts=[4], receive_displacements=[0])
        self.s.wait(self.submit(kind=kind, **table))
        with self.refused(INVALID_ARGUMENT, "list of 0"):
            self.submit(kind=kind, **{**table, "send_counts": []})
        with self.refused(INVALID_ARGUMENT, "list of 2"):
            self.submit(kind=kind, **{**table, "receive_displacements": [0, 1]})
        with self.refused(INVALID_ARGUMENT, "overflow"):
            self.submit(kind=kind, **{**table, "send_displacements": [RESERVED - 2]})
        with self.refused(OUT_OF_RANGE, f"region {self.region}"):
            self.submit(kind=kind, **{**table, "receive_displacements": [2000]})

    def test_zero_elements_need_no_buffer(self):
        self.s.wait(self.submit(count=0, input=None, output=None))
        self.s.wait(self.submit(kind=self.api.OPERATION_KIND_BARRIER, count=0, input=None, output=None))

    def test_operation_that_was_never_submitted(self):
        for operation in (0, 1 << 40):
            with self.refused(NOT_FOUND, f"operation {operation}"):
                self.s.wait(operation)

    def test_the_outcome_is_collected_once(self):
        operation = self.submit()
        self.s.wait(operation)
        with self.refused(NOT_FOUND, "collected"):
            self.s.wait(operation)

    def test_punched_holes_read_as_zeros(self):
        numpy.frombuffer(self.memory, dtype=numpy.float32)[:8] = 3
        self.memory.madvise(mmap.MADV_REMOVE, 0, 4096)  # punches the whole file
        self.s.wait(self.submit())
        self.assertEqual(numpy.frombuffer(self.memory, dtype=numpy.float32)[512:520].tolist(), [0] * 8)


class BadJoins(DaemonTest):
    def test_rank_and_world_size_out_of_range(self):
        s = self.session()
        for world in (0, -1, 129, 1_000_000, -(2**31)):
            with self.refused(INVALID_ARGUMENT, f"world size {world}", "128"):
                s.join("x", 0, world)
        for rank in (-1, 2, 1000, -(2**31)):
            with self.refused(INVALID_ARGUMENT, f"rank {rank}"):
                s.join("x", rank, 2)

    def test_names_that_are_none(self):
        s = self.session()
        for name in ("", "x" * 129, "new\nline"):
            with self.refused(INVALID_ARGUMENT, "name"):
                s.join(name, 0, 1)
        with self.refused(INVALID_ARGUMENT, "job"):
            s.join("x", 0, 1, job="j" * 129)

    def test_rank_taken_while_joining_and_when_joined(self):
        one, two, three = self.lease("one"), self.lease("two"), self.lease("three")
        one.send_join("taken", 0, 2)
        wait_until(lambda: self.state("taken") == "joining")
        with self.refused(ALREADY_EXISTS, "rank 0", f"session {one.opened.session_id}", os.getpid(), "'one'"):
            two.join("taken", 0, 2)
        two.join("taken", 1, 2)
        one.receive()
        with self.refused(ALREADY_EXISTS, "rank 1", f"session {two.opened.session_id}"):
            three.join("taken", 1, 2)

    def state(self, name):
        states = [
            c.state
            for c in self.admin().ListCommunicators(api.admin.ListCommunicatorsRequest()).communicators
            if c.name == name
        ]
        return states[0] if states else None

    def admin(self):
        if not hasattr(self, "_admin"):
            self._admin = self.session("admin").admin
        return self._admin

    def test_differing_world_sizes(self):
        one, two = self.lease("one"), self.lease("two")
        one.send_join("sizes", 0, 2)
        wait_until(lambda: self.state("sizes") == "joining")
        with self.refused(FAILED_PRECONDITION, "world size 3", "rank 0", "world size 2"):
            two.join("sizes", 1, 3)

    def test_deadline_names_the_missing_ranks(self):
        one = self.lease()
        before = time.monotonic()
        with self.refused(DEADLINE_EXCEEDED, "'late'", "1 of 4 ranks", "missing ranks 0, 1, 3"):
            one.join("late", 2, 4, timeout_ms=50)
        self.assertLess(time.monotonic() - before, 2)
        self.assertIsNone(self.state("late"))

    def test_jobs_and_names_are_kept_apart(self):
        sessions = [self.lease() for _ in range(4)]
        sessions[0].send_join("same", 0, 2, job="a")
        sessions[1].send_join("same", 0, 2, job="b")
        sessions[2].send_join("same", 1, 2, job="a")
        sessions[3].send_join("same", 1, 2, job="b")
        joins = [session.receive()[0].join for session in sessions]
        self.assertEqual(joins[0].communicator_id, joins[2].communicator_id)
        self.assertEqual(joins[1].communicator_id, joins[3].communicator_id)
        self.assertNotEqual(joins[0].communicator_id, joins[1].communicator_id)

    def test_a_rejoin_is_warm_and_a_new_epoch(self):
        one, two = self.lease(), self.lease()
        for epoch in (1, 2, 3):
            one.send_join("again", 0, 2)
            two.send_join("again", 1, 2)
            joins = [session.receive()[0].join for session in (one, two)]
            for join in joins:
                self.assertEqual(join.epoch, epoch)
                self.assertEqual(join.warm, epoch > 1)
            for session, join in zip((one, two), joins):
                session.call(leave=api.communicator.LeaveRequest(communicator_id=join.communicator_id))

    def test_leaving_what_one_is_not_in(self):
        with self.refused(NOT_FOUND, "communicator 999999"):
            self.lease().call(leave=api.communicator.LeaveRequest(communicator_id=999999))

    def test_a_cancelled_join_is_withdrawn(self):
        s = self.session()
        future = s.communicators.Join.future(
            api.communicator.JoinRequest(token=s.token, name="cancelled", rank=0, world_size=2)
        )
        wait_until(lambda: self.state("cancelled") == "joining")
        future.cancel()
        wait_until(lambda: self.state("cancelled") is None)

    def test_joins_that_wait_are_limited(self):
        one = self.lease()
        for i in range(64):
            one.send_join(f"many-{i}", 0, 2)
        with self.refused(RESOURCE_EXHAUSTED, "64 joins"):
            one.join("one too many", 0, 2)


class TwoRanks(DaemonTest):
    def setUp(self):
        self.sessions = [self.session(f"rank {rank}") for rank in range(2)]
        self.regions = [session.allocate(4096)[0] for session in self.sessions]
        self.comms = [None, None]

        def join(rank):
            self.comms[rank] = self.sessions[rank].join(f"pair-{self.id()}", rank, 2)

        threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def submit(self, rank, kind=api.collective.OPERATION_KIND_ALL_REDUCE, **fields):
        fields.setdefault("count", 8)
        fields.setdefault("input", (self.regions[rank], 0))
        fields.setdefault("output", (self.regions[rank], 2048))
        return self.sessions[rank].submit(self.comms[rank], kind, **fields)

    def free(self, rank):
        session = self.sessions[rank]
        session.memory.FreeRegion(api.memory.FreeRegionRequest(token=session.token, region_id=self.regions[rank]))

    def test_a_region_in_use_is_not_freed(self):
        operation = self.submit(0)
        with self.refused(FAILED_PRECONDITION, f"region {self.regions[0]}", f"operation {operation}"):
            self.free(0)
        self.sessions[1].wait(self.submit(1))
        self.sessions[0].wait(operation)
        self.free(0)
        with self.refused(NOT_FOUND):
            self.free(0)

    def test_regions_of_others_cannot_be_used(self):
        with self.refused(NOT_FOUND, f"region {self.regions[1]}"):
            self.submit(0, input=(self.regions[1], 0))

    def test_differing_calls_end_with_both_shown(self):
        operations = [self.submit(0, count=8), self.submit(1, count=9)]
        for session, operation in zip(self.sessions, operations):
            with self.refused(FAILED_PRECONDITION, "all_reduce", "count 8", "count 9", "rank 0", "rank 1"):
                session.wait(operation)
        with self.refused(FAILED_PRECONDITION):
            self.submit(0)

    def test_a_rank_that_never_calls_is_named_at_the_deadline(self):
        operation = self.submit(0, timeout_ms=100)
        with self.refused(DEADLINE_EXCEEDED, "rank 1", "all_reduce"):
            self.sessions[0].wait(operation)

    def test_a_wait_that_is_given_up_leaves_the_operation(self):
        operation = self.submit(0)
        with self.refused(DEADLINE_EXCEEDED):
            self.sessions[0].wait(operation, timeout=0.05)
        self.sessions[1].wait(self.submit(1))
        self.sessions[0].wait(operation)

    def test_abort_ends_everything_with_the_reason(self):
        operation = self.submit(0)
        s = self.sessions[1]
        s.communicators.Abort(
            api.communicator.AbortRequest(token=s.token, communicator_id=self.comms[1], reason="loss is NaN")
        )
        with self.refused(ABORTED, "loss is NaN", "rank 1"):
            self.sessions[0].wait(operation)

    def test_a_rank_that_leaves_ends_what_needs_it(self):
        operation = self.submit(0)
        s = self.sessions[1]
        s.communicators.Leave(api.communicator.LeaveRequest(token=s.token, communicator_id=self.comms[1]))
        with self.refused(UNAVAILABLE, "rank 1", "left"):
            self.sessions[0].wait(operation)

    def test_operations_end_in_order_of_submission(self):
        first = [self.submit(0, count=count) for count in (1, 2, 3)]
        second = [self.submit(1, count=count) for count in (1, 2, 3)]
        for one, two in zip(first, second):
            self.sessions[0].wait(one)
            self.sessions[1].wait(two)

    def test_send_and_receive(self):
        send = self.submit(0, kind=api.collective.OPERATION_KIND_SEND, root=1, count=3)
        receive = self.submit(1, kind=api.collective.OPERATION_KIND_RECV, root=0, count=3)
        self.sessions[0].wait(send)
        self.sessions[1].wait(receive)

    def test_a_rank_sends_to_itself(self):
        operations = [
            self.submit(0, kind=kind, root=0, count=3)
            for kind in (api.collective.OPERATION_KIND_RECV, api.collective.OPERATION_KIND_SEND) * 2
        ]
        for operation in operations:
            self.sessions[0].wait(operation)

    def test_too_many_operations_in_flight_are_refused(self):
        with self.refused(RESOURCE_EXHAUSTED):
            for _ in range(100):
                self.submit(0)


class Tokens(DaemonTest):
    FLAGS = ("--socket-mode", "0666")

    def test_wrong_tokens(self):
        s = self.session()
        for token in (b"", b"x" * 16, s.token[:15], s.token + b"x", bytes(16)):
            with self.refused(PERMISSION_DENIED, "token"):
                s.memory.ListRegions(api.memory.ListRegionsRequest(token=token))

    def test_a_session_has_one_lease_connection(self):
        s = self.session()
        other = self.lease(open_session=False)
        with self.refused(ALREADY_EXISTS, f"session {s.id}"):
            other.call(attach=api.session.Attach(token=s.token))

    @unittest.skipIf(os.geteuid() != 0, "needs root to become another user")
    def test_a_token_is_worth_nothing_to_another_user(self):
        s = self.session()
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import harness; from harness import api\n"
            "other = harness.LeaseSession(sys.argv[2], open_session=False)\n"
            "try: other.call(attach=api.session.Attach(token=bytes.fromhex(sys.argv[3])))\n"
            "except harness.LeaseError as error: print(error.code)\n"
            "channel = harness.plain_grpc.grpc.insecure_channel('unix:' + sys.argv[4])\n"
            "memory = api.memory_grpc.MemoryStub(channel)\n"
            "try: memory.ListRegions(api.memory.ListRegionsRequest(token=bytes.fromhex(sys.argv[3])))\n"
            "except harness.plain_grpc.grpc.RpcError as error: print(error.code().value[0])\n"
            "admin = api.admin_grpc.AdminStub(channel)\n"
            "print(len(admin.ListSessions(api.admin.ListSessionsRequest()).sessions))\n"
        )
        # Without the harness's clean-up rights: files are readable for all.
        arguments = [str(pathlib.Path(__file__).parent), self.shuntd.lease, s.token.hex(), self.shuntd.socket]
        output = subprocess.run(
            [sys.executable, "-c", code, *arguments], user=65534, capture_output=True, text=True, check=False
        )
        self.assertEqual(output.stdout.split(), [str(PERMISSION_DENIED), str(PERMISSION_DENIED), "0"], output.stderr)

    def test_a_stranger_cannot_map_a_region_but_a_fellow_member_can(self):
        owner, other = self.lease(), self.lease()
        region, fd = owner.allocate(4096)
        os.close(fd)
        request = api.memory.MapRegionRequest(region_id=region)
        with self.refused(NOT_FOUND, f"region {region}"):
            other.call(map_region=request)
        owner.send_join("fellows", 0, 2)
        other.send_join("fellows", 1, 2)
        for session in (owner, other):
            os.close(session.receive()[1][0])
        reply, fds = other.call(map_region=request)
        self.assertEqual(reply.map_region.size_bytes, 4096)
        os.close(fds[0])


class HostileBytes(DaemonTest):
    def check_others_are_served(self):
        self.session().allocate(4096)

    def test_random_packets_on_the_lease_socket(self):
        random = numpy.random.default_rng(1)
        for size in (1, 2, 7, 64, 1000, 16384):
            for _ in range(20):
                raw = self.lease(open_session=False)
                raw.socket.send(random.bytes(size))
                raw.socket.shutdown(socket.SHUT_WR)
                try:
                    while raw.socket.recv(1 << 16):
                        pass
                except ConnectionError:
                    pass
                raw.close()
        self.check_others_are_served()

    def test_a_packet_that_is_too_long_ends_its_connection_only(self):
        raw = self.lease()
        raw.socket.send(bytes(120_000))
        self.assertEqual(raw.socket.recv(1 << 16), b"")
        self.check_others_are_served()

    def test_requests_before_a_session_are_refused(self):
        raw = self.lease(open_session=False)
        with self.refused(FAILED_PRECONDITION, "first packet"):
            raw.call(allocate_region=api.memory.AllocateRegionRequest(size_bytes=1))
        with self.refused(FAILED_PRECONDITION, "first packet"):
            raw.call()

    def test_a_second_session_on_one_connection_is_refused(self):
        session = self.lease()
        with self.refused(ALREADY_EXISTS, f"session {session.opened.session_id}"):
            session.call(open_session=api.session.OpenSessionRequest())

    def test_unasked_descriptors_are_closed(self):
        session = self.lease()
        before = self.shuntd.fds()
        for _ in range(20):
            with self.refused(NOT_FOUND):
                session.call(fds=[0, 1, 2], free_region=api.memory.FreeRegionRequest(region_id=77))
        # Also of earlier sessions, which may end meanwhile; the refusal may come before the descriptors are closed.
        wait_until(lambda: self.shuntd.fds() <= before)

    def test_random_bytes_on_the_grpc_socket(self):
        random = numpy.random.default_rng(2)
        for size in (1, 9, 24, 100, 10000):
            for prefix in (b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
                raw = socket.socket(socket.AF_UNIX)
                raw.connect(self.shuntd.socket)
                try:
                    raw.sendall(prefix + random.bytes(size))
                    raw.shutdown(socket.SHUT_WR)
                    raw.settimeout(5)
                    while raw.recv(1 << 16):
                        pass
                except OSError:
                    pass
                raw.close()
        self.check_others_are_served()

    def test_a_client_that_does_not_read_holds_up_nobody(self):
        deaf = self.lease()
        deaf.socket.setblocking(False)
        sent = 0
        try:
            for _ in range(100000):
                deaf.send(map_region=api.memory.MapRegionRequest(region_id=1 << 40))
                sent += 1
        except BlockingIOError:
            pass
        self.assertLess(sent, 100000)
        self.check_others_are_served()
        # What was promised is there once it reads.
        deaf.socket.setblocking(True)
        for _ in range(sent):
            with self.refused(NOT_FOUND):
                deaf.receive()

    def test_a_memory_file_cannot_be_shrunk_or_grown(self):
        _, fd = self.lease().allocate(4096)
        for size in (0, 100, 8192):
            with self.assertRaises(PermissionError):
                os.ftruncate(fd, size)
        os.close(fd)

    def test_watching_with_something_that_is_no_eventfd(self):
        session = self.lease()
        comm = session.join("watch", 0, 1).communicator_id
        watch = api.session.WatchOperation(communicator_id=comm, channel=0, sequence=1)
        read, write = os.pipe()
        for fds in ((), (write,), (session.socket.fileno(),)):
            with self.refused(INVALID_ARGUMENT, "descriptor"):
                session.call(fds=fds, watch_operation=watch)
        # One that would block a plain write.
        event = os.eventfd(0)
        os.eventfd_write(event, (1 << 64) - 2)
        session.call(fds=[event], watch_operation=watch)
        session.call(fds=[event], watch_operation=watch)
        for fd in (read, write, event):
            os.close(fd)

    def test_watching_an_operation_that_is_over_signals_at_once(self):
        session = self.lease()
        comm = session.join("watch-over", 0, 1).communicator_id
        event = os.eventfd(0)
        session.call(
            fds=[event], watch_operation=api.session.WatchOperation(communicator_id=comm, channel=0, sequence=1)
        )
        self.assertEqual(os.eventfd_read(event), 1)
        os.close(event)
        with self.refused(INVALID_ARGUMENT, "channel 5"):
            other = os.eventfd(0)
            session.call(
                fds=[other], watch_operation=api.session.WatchOperation(communicator_id=comm, channel=5, sequence=1)
            )


class Rings(DaemonTest):
    """The ring as a hostile client sees it: plain memory."""

    SQ_TAIL, SQ_HEAD, CQ_TAIL, CQ_HEAD, SLEEPS = (64 * i for i in range(1, 6))
    HEADER, ENTRY = 384, 64

    def push(self, session, index, entries, token, opcode, comm=0, channel=0, sequence=0, deadline=0):
        offset = self.HEADER + (index % entries) * self.ENTRY
        session.ring[offset : offset + 40] = struct.pack(
            "<QIIQQq", token, opcode, channel, comm, sequence, deadline
        )
        session.ring[self.SQ_TAIL : self.SQ_TAIL + 4] = struct.pack("<I", index + 1)
        os.eventfd_write(session.doorbell, 1)

    def word(self, session, offset):
        return struct.unpack("<I", session.ring[offset : offset + 4])[0]

    def completion(self, session, index, entries):
        wait_until(lambda: self.word(session, self.CQ_TAIL) > index, what="a completion")
        offset = self.HEADER + entries * self.ENTRY + (index % entries) * 16
        return struct.unpack("<Qi", session.ring[offset : offset + 12])

    def test_entries_with_nonsense_are_answered_with_codes(self):
        session = self.lease(rings=8)
        comm = session.join("nonsense", 0, 1).communicator_id
        forever = (1 << 63) - 1
        cases = [
            (dict(comm=comm + 77, sequence=1), NOT_FOUND),
            (dict(comm=comm, sequence=0), INVALID_ARGUMENT),
            (dict(comm=comm, sequence=RESERVED - 1), INVALID_ARGUMENT),
            (dict(comm=comm, sequence=1, channel=99), INVALID_ARGUMENT),
            (dict(comm=comm, sequence=1, channel=0xFFFFFFFF), INVALID_ARGUMENT),
            (dict(comm=comm, sequence=5, deadline=1), DEADLINE_EXCEEDED),
        ]
        for index, (fields, code) in enumerate(cases):
            fields.setdefault("deadline", forever)
            self.push(session, index, 8, 1000 + index, 1, **fields)
            self.assertEqual(self.completion(session, index, 8), (1000 + index, code))
            session.ring[self.CQ_HEAD : self.CQ_HEAD + 4] = struct.pack("<I", index + 1)

    def test_unknown_opcodes_and_stray_kicks_are_ignored(self):
        session = self.lease(rings=8)
        self.push(session, 0, 8, 1, 0)
        self.push(session, 1, 8, 1, 77)
        self.push(session, 2, 8, 1, 2, comm=123456)
        wait_until(lambda: self.word(session, self.SQ_HEAD) == 3)
        self.assertEqual(self.word(session, self.CQ_TAIL), 0)

    def assert_ended(self, session):
        self.assertEqual(session.socket.recv(100), b"")

    def test_a_tail_that_is_impossible_ends_the_session_and_no_other(self):
        bystander = self.lease(rings=8)
        session = self.lease(rings=8)
        session.ring[self.SQ_TAIL : self.SQ_TAIL + 4] = struct.pack("<I", 500)
        os.eventfd_write(session.doorbell, 1)
        self.assert_ended(session)
        self.assertIn("tail 500", self.shuntd.log())
        comm = bystander.join("bystander", 0, 1).communicator_id
        self.push(bystander, 0, 8, 5, 1, comm=comm + 1, sequence=1)
        self.assertEqual(self.completion(bystander, 0, 8), (5, NOT_FOUND))

    def test_more_operations_than_may_be_outstanding_end_the_session(self):
        session = self.lease(rings=4)
        other = self.lease()
        session.send_join("outstanding", 0, 2)
        other.send_join("outstanding", 1, 2)
        os.close(other.receive()[1][0])
        reply, fds = session.receive()
        os.close(fds[0])
        comm = reply.join.communicator_id
        for index in range(5):
            self.push(session, index, 4, index, 1, comm=comm, sequence=index + 1, deadline=(1 << 63) - 1)
            if index < 4:
                wait_until(lambda: self.word(session, self.SQ_HEAD) == index + 1)
        self.assert_ended(session)

    def test_random_bytes_all_over_the_ring(self):
        random = numpy.random.default_rng(3)
        for _ in range(30):
            session = self.lease(rings=16)
            session.ring[:] = random.bytes(len(session.ring))
            os.eventfd_write(session.doorbell, 1)
            self.assert_ended(session)
            session.close()
        self.session().allocate(4096)

    def test_random_entries_with_proper_indices(self):
        random = numpy.random.default_rng(4)
        session = self.lease(rings=16)
        session.join("random", 0, 1)
        for index in range(500):
            offset = self.HEADER + (index % 16) * self.ENTRY
            session.ring[offset : offset + 64] = random.bytes(64)
            session.ring[offset + 8 : offset + 12] = struct.pack("<I", index % 4)
            session.ring[self.SQ_TAIL : self.SQ_TAIL + 4] = struct.pack("<I", index + 1)
            os.eventfd_write(session.doorbell, 1)
            wait_until(lambda: self.word(session, self.SQ_HEAD) == index + 1)
            session.ring[self.CQ_HEAD : self.CQ_HEAD + 4] = session.ring[self.CQ_TAIL : self.CQ_TAIL + 4]

    def test_ring_sizes_that_are_impossible(self):
        raw = self.lease(open_session=False)
        for entries in (1, 3, 8192, 0xFFFFFFFF):
            with self.refused(INVALID_ARGUMENT, entries, "power of two"):
                raw.call(open_session=api.session.OpenSessionRequest(ring_entries=entries))


class Quotas(DaemonTest):
    FLAGS = (
        "--memory-per-session=1MiB",
        "--memory-per-tenant=1536KiB",
        "--max-sessions=6",
        "--max-communicators-per-session=3",
        "--max-regions-per-session=5",
    )

    def test_each_quota_is_named(self):
        one, two = self.lease(), self.lease()
        region, fd = one.allocate(1 << 20)
        os.close(fd)
        with self.refused(RESOURCE_EXHAUSTED, "memory_per_session", 1 << 20):
            one.allocate(1)
        with self.refused(RESOURCE_EXHAUSTED, "memory_per_tenant", 1536 << 10):
            two.allocate(1 << 20)
        one.call(free_region=api.memory.FreeRegionRequest(region_id=region))
        os.close(two.allocate(1 << 20)[1])

    def test_regions_are_limited(self):
        session = self.lease()
        regions = []
        for _ in range(5):
            region, fd = session.allocate(4096)
            os.close(fd)
            regions.append(region)
        with self.refused(RESOURCE_EXHAUSTED, "max_regions_per_session", 5):
            session.allocate(4096)
        session.call(free_region=api.memory.FreeRegionRequest(region_id=regions[0]))
        os.close(session.allocate(4096)[1])

    def test_sessions_are_limited(self):
        # Those of the tests before end a moment after their connections have closed.
        wait_until(lambda: self.shuntd.log().count("session opened") == self.shuntd.log().count("session ended"))
        sessions = [self.lease() for _ in range(6)]
        with self.refused(RESOURCE_EXHAUSTED, "max_sessions", 6):
            self.lease()
        sessions[0].call(close_session=api.session.CloseSessionRequest())
        self.lease()

    def test_communicators_are_limited(self):
        session = self.lease()
        ids = [session.join(f"limited-{i}", 0, 1).communicator_id for i in range(3)]
        with self.refused(RESOURCE_EXHAUSTED, "max_communicators_per_session", 3):
            session.join("limited-3", 0, 1)
        session.call(leave=api.communicator.LeaveRequest(communicator_id=ids[0]))
        session.join("limited-3", 0, 1)


if __name__ == "__main__":
    unittest.main()
