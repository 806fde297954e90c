"""Every collective against what NumPy says."""

import threading

import numpy as np
import support

PLAIN_TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
# Nothing, one element, a message for the board, one that is larger than the board takes (16 KiB).
COUNTS = [0, 1, 1000, 30011]


def contribution(rank, count, dtype="float32"):
    """Small integers: every sum of them is exact in every type."""
    return ((np.arange(count) * 7 + rank * 3) % 5 + 1).astype(dtype)


def all_contributions(world_size, count, dtype="float32"):
    return np.stack([contribution(rank, count, dtype) for rank in range(world_size)])


def to_bfloat16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Collectives(support.DaemonTest):
    def both_memories(self, session, values):
        """The values in a region, and in ordinary memory."""
        return session.array(values), np.array(values)

    def test_all_reduce_gives_numpys_result_for_every_type_and_op(self):
        numpys = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}

        def body(session, comm):
            for dtype in PLAIN_TYPES:
                for op, expected in numpys.items():
                    everything = all_contributions(3, 1000, dtype)
                    for x in self.both_memories(session, everything[comm.rank]):
                        self.assertIs(comm.all_reduce(x, op), x)
                        np.testing.assert_array_equal(x, expected(everything, axis=0).astype(dtype), f"{dtype} {op}")

        self.ranks(3, body)

    def test_all_reduce_works_for_every_size_in_and_out_of_place(self):
        def body(session, comm):
            for count in COUNTS:
                expected = all_contributions(4, count).sum(axis=0)
                for x in self.both_memories(session, contribution(comm.rank, count)):
                    out = np.zeros_like(x)
                    self.assertIs(comm.all_reduce(x, out=out), out)
                    np.testing.assert_array_equal(x, contribution(comm.rank, count))
                    np.testing.assert_array_equal(out, expected)
                    comm.all_reduce(x)
                    np.testing.assert_array_equal(x, expected)

        self.ranks(4, body)

    def test_all_reduce_of_a_view_changes_only_the_view(self):
        def body(session, comm):
            x = session.zeros(100_000)
            x[:] = 1
            comm.all_reduce(x[1000:60_000])
            self.assertTrue((x[:1000] == 1).all() and (x[60_000:] == 1).all())
            self.assertTrue((x[1000:60_000] == 2).all())

        self.ranks(2, body)

    def test_average_of_integers_truncates_toward_zero(self):
        def body(session, comm):
            x = session.array([[-3, 3, 4], [-4, 4, 4]][comm.rank], np.int32)
            comm.all_reduce(x, "avg")
            self.assertEqual(x.tolist(), [-3, 3, 4])

        self.ranks(2, body)

    def test_premul_sum_takes_each_ranks_own_scalar(self):
        def body(session, comm):
            for dtype in ("float32", "float64", "int32", "float16"):
                everything = all_contributions(3, 500, dtype)
                x = session.array(everything[comm.rank])
                comm.all_reduce(x, "premul_sum", scalar=comm.rank + 2)
                expected = sum(everything[rank] * (rank + 2) for rank in range(3))
                np.testing.assert_array_equal(x, expected.astype(dtype))

        self.ranks(3, body)

    def test_bfloat16_travels_in_uint16_when_asked_for(self):
        def body(session, comm):
            everything = all_contributions(2, 9000)
            x = session.array(to_bfloat16(everything[comm.rank]))
            comm.all_reduce(x, dtype="bfloat16")
            np.testing.assert_array_equal(x, to_bfloat16(everything.sum(axis=0)))
            x = session.array(to_bfloat16(everything[comm.rank]))
            comm.all_reduce(x, "premul_sum", scalar=0.5 + comm.rank, dtype="bfloat16")
            np.testing.assert_array_equal(x, to_bfloat16(everything[0] * 0.5 + everything[1] * 1.5))

        self.ranks(2, body)

    def test_small_floats_of_ml_dtypes_need_no_hint(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")

        def body(session, comm):
            for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
                dtype = np.dtype(getattr(ml_dtypes, name))
                x = session.array([1, 2, 0.5], name.replace("fn", ""))
                self.assertEqual(x.dtype, dtype)
                comm.all_reduce(x)
                comm.all_reduce(x, "premul_sum", scalar=0.5)
                self.assertEqual(x.astype(float).tolist(), [2, 4, 1])

        self.ranks(2, body)

    def test_float8_travels_in_uint8_when_asked_for(self):
        codes = {"float8_e4m3": (0x38, 0x40), "float8_e5m2": (0x3C, 0x40)}  # 1.0, 2.0

        def body(session, comm):
            for dtype, (one, two) in codes.items():
                x = session.array(np.full(300, one, np.uint8))
                comm.all_reduce(x, dtype=dtype)
                self.assertEqual(set(x.tolist()), {two}, dtype)

        self.ranks(2, body)

    def test_reduce_gives_the_root_the_result_and_leaves_the_others_alone(self):
        def body(session, comm):
            for count in COUNTS:
                for root in range(3):
                    for x in self.both_memories(session, contribution(comm.rank, count)):
                        result = comm.reduce(x, root, "max")
                        if comm.rank == root:
                            self.assertIs(result, x)
                            np.testing.assert_array_equal(x, all_contributions(3, count).max(axis=0))
                        else:
                            self.assertIsNone(result)
                            np.testing.assert_array_equal(x, contribution(comm.rank, count))

        self.ranks(3, body)

    def test_reduce_out_of_place(self):
        def body(session, comm):
            x = session.array(contribution(comm.rank, 5000))
            out = session.empty(5000) if comm.rank == 1 else None
            comm.reduce(x, 1, out=out)
            np.testing.assert_array_equal(x, contribution(comm.rank, 5000))
            if comm.rank == 1:
                np.testing.assert_array_equal(out, all_contributions(2, 5000).sum(axis=0))

        self.ranks(2, body)

    def test_broadcast_fills_the_others_from_every_root(self):
        def body(session, comm):
            for count in COUNTS:
                for root in range(3):
                    for x in self.both_memories(session, contribution(comm.rank, count)):
                        comm.broadcast(x, root)
                        np.testing.assert_array_equal(x, contribution(root, count))

        self.ranks(3, body)

    def test_all_gather_joins_along_the_first_axis(self):
        def body(session, comm):
            for count in COUNTS:
                for x in self.both_memories(session, contribution(comm.rank, 2 * count).reshape(count, 2)):
                    result = comm.all_gather(x)
                    self.assertEqual(result.shape, (3 * count, 2))
                    np.testing.assert_array_equal(result.ravel(), all_contributions(3, 2 * count).ravel())

        self.ranks(3, body)

    def test_all_gather_in_place_and_of_a_scalar(self):
        def body(session, comm):
            out = session.zeros((2, 7000))
            out[comm.rank] = contribution(comm.rank, 7000)
            comm.all_gather(out[comm.rank], out)
            np.testing.assert_array_equal(out, all_contributions(2, 7000))
            self.assertEqual(comm.all_gather(np.array(comm.rank + 5)).tolist(), [5, 6])

        self.ranks(2, body)

    def test_reduce_scatter_gives_each_rank_its_part(self):
        def body(session, comm):
            for count in COUNTS:
                everything = all_contributions(3, 3 * count)
                expected = everything.sum(axis=0).reshape(3, count)[comm.rank]
                for x in self.both_memories(session, everything[comm.rank]):
                    np.testing.assert_array_equal(comm.reduce_scatter(x), expected)
                    part = x.reshape(3, count)[comm.rank]
                    comm.reduce_scatter(x, out=part)  # in place
                    np.testing.assert_array_equal(part, expected)

        self.ranks(3, body)

    def test_all_to_all_transposes_the_parts(self):
        def body(session, comm):
            for count in COUNTS:
                everything = all_contributions(3, 3 * count).reshape(3, 3, count)
                for x in self.both_memories(session, everything[comm.rank]):
                    np.testing.assert_array_equal(comm.all_to_all(x), everything[:, comm.rank])

        self.ranks(3, body)

    def test_all_to_all_v_moves_parts_of_any_size(self):
        # What rank i sends to rank j: also nothing at all.
        sizes = np.array([[3, 0, 5000], [70, 1, 0], [0, 9000, 2]])

        def body(session, comm):
            rank = comm.rank
            send = [np.full(sizes[rank, peer], 10 * rank + peer, np.int32) for peer in range(3)]
            expected = np.concatenate([np.full(sizes[peer, rank], 10 * peer + rank, np.int32) for peer in range(3)])
            for x in self.both_memories(session, np.concatenate(send)):
                result = comm.all_to_all_v(x, sizes[rank], sizes[:, rank])
                np.testing.assert_array_equal(result, expected)

        self.ranks(3, body)

    def test_all_to_all_v_honours_displacements(self):
        def body(session, comm):
            x = session.array([1, 2, 3, 4], np.int64) + 10 * comm.rank
            out = session.zeros(6, np.int64)
            comm.all_to_all_v(x, [1, 2], [1, 1] if comm.rank == 0 else [2, 2], out, send_displs=[3, 0], recv_displs=[4, 0])
            self.assertEqual(out.tolist(), [[14, 0, 0, 0, 4, 0], [11, 12, 0, 0, 1, 2]][comm.rank])

        self.ranks(2, body)

    def test_gather_and_scatter_are_each_others_reverse(self):
        def body(session, comm):
            for count in COUNTS:
                for root in range(3):
                    for x in self.both_memories(session, contribution(comm.rank, count)):
                        gathered = comm.gather(x, root)
                        if comm.rank == root:
                            np.testing.assert_array_equal(gathered, all_contributions(3, count).ravel())
                        else:
                            self.assertIsNone(gathered)
                        out = np.zeros_like(x)
                        comm.scatter(gathered, root, out)
                        np.testing.assert_array_equal(out, contribution(comm.rank, count))

        self.ranks(3, body)

    def test_send_and_recv_match_in_order(self):
        def body(session, comm):
            for count in COUNTS:
                for x in self.both_memories(session, contribution(comm.rank, count)):
                    if comm.rank == 0:
                        comm.send(x, 1)
                        comm.send(x + 1, 1)
                    else:
                        first, second = np.empty_like(x), session.empty(count)
                        self.assertIs(comm.recv(first, 0), first)
                        comm.recv(second, 0)
                        np.testing.assert_array_equal(first, contribution(0, count))
                        np.testing.assert_array_equal(second, contribution(0, count) + 1)

        self.ranks(2, body)

    def test_barrier_holds_until_the_last_rank_comes(self):
        arrived = []

        def body(session, comm):
            arrived.append(comm.rank)
            comm.barrier()
            self.assertEqual(sorted(arrived), [0, 1, 2])

        self.ranks(3, body)

    def test_group_of_sends_and_receives_makes_a_ring(self):
        def body(session, comm):
            right, left = (comm.rank + 1) % 3, (comm.rank - 1) % 3
            for count in COUNTS:
                for x in self.both_memories(session, contribution(comm.rank, count)):
                    theirs = np.empty_like(x)
                    with comm.group():
                        comm.send(x, right)
                        comm.recv(theirs, left)
                    np.testing.assert_array_equal(theirs, contribution(left, count))
            comm.barrier()  # a rank that leaves ends what the two others still do

        self.ranks(3, body)

    def test_asynchronous_group_gives_one_handle_for_all(self):
        def body(session, comm):
            buckets = [session.array(contribution(comm.rank, count)) for count in (10, 20_000)]
            with comm.group(async_op=True) as group:
                for bucket in buckets:
                    comm.all_reduce(bucket)
            group.operation.wait()
            for bucket in buckets:
                np.testing.assert_array_equal(bucket, all_contributions(2, bucket.size).sum(axis=0))

        self.ranks(2, body)

    def test_group_whose_block_raises_submits_nothing(self):
        def body(session, comm):
            x = session.array(contribution(comm.rank, 100))
            with self.assertRaises(KeyError):
                with comm.group():
                    comm.all_reduce(x)
                    raise KeyError
            np.testing.assert_array_equal(x, contribution(comm.rank, 100))
            comm.barrier()  # and nothing is left open

        self.ranks(2, body)

    def test_one_rank_and_its_own_company(self):
        def body(session, comm):
            x = session.array([1.0, 2.0])
            comm.all_reduce(x, "avg")
            comm.barrier()
            self.assertEqual(comm.all_gather(x).tolist(), [1, 2])
            self.assertEqual(comm.all_to_all(x).tolist(), [1, 2])

        self.ranks(1, body)

    def test_split_makes_communicators_by_color_ordered_by_key(self):
        def body(session, comm):
            half = comm.split(comm.rank % 2, key=-comm.rank)
            self.assertEqual((half.world_size, half.rank), (2, 1 if comm.rank < 2 else 0))
            x = session.array([comm.rank], np.int32)
            half.all_reduce(x)
            self.assertEqual(x[0], [2, 4][comm.rank % 2])
            self.assertIsNone(comm.split(-1))

        self.ranks(4, body)

    def test_two_communicators_run_side_by_side_in_threads(self):
        def body(session, comm):
            other = comm.split(0)

            def many(which):
                for step in range(200):
                    x = np.full(64, step, np.int64)
                    which.all_reduce(x)
                    self.assertEqual(x[0], 2 * step)

            threads = [threading.Thread(target=many, args=(which,)) for which in (comm, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        self.ranks(2, body)

    def test_job_keeps_equal_names_apart(self):
        with support.shunt.connect() as session:
            first = session.join("same", 0, 1, job="a")
            second = session.join("same", 0, 1, job="b")
            self.assertEqual((first.world_size, second.world_size), (1, 1))

    def test_communicator_can_be_joined_again_after_leaving(self):
        for _ in range(3):
            self.ranks(2, lambda session, comm: comm.barrier(), name="again")
