"""Handles of asynchronous operations."""

import gc
import select
import threading
import warnings

import numpy as np
import shunt
import support


class Operations(support.DaemonTest):
    def with_late_peer(self, early, late):
        """Runs early(session, comm, let) on rank 0 of 2. Rank 1 runs late(session, comm) only once rank 0 has
        called let()."""
        gate = threading.Event()

        def body(session, comm):
            if comm.rank == 0:
                try:
                    return early(session, comm, gate.set)
                finally:
                    gate.set()
            gate.wait(support.PATIENCE)
            return late(session, comm)

        return self.ranks(2, body)

    def test_handle_is_done_only_when_the_last_rank_came(self):
        for make in ("zeros", None):
            with self.subTest(memory=make or "ordinary"):

                def early(session, comm, let):
                    x = session.zeros(40_000) if make else np.zeros(40_000, np.float32)
                    operation = comm.all_reduce(x, async_op=True)
                    self.assertFalse(operation.done())
                    self.assertIn("in flight", repr(operation))
                    let()
                    self.assertIs(operation.wait(), x)
                    self.assertTrue(operation.done())
                    self.assertIs(operation.wait(), x)  # also a second time
                    self.assertTrue((x == 2).all())

                self.with_late_peer(early, lambda session, comm: comm.all_reduce(np.full(40_000, 2, np.float32)))

    def test_done_alone_moves_an_operation_on_ordinary_memory_to_its_end(self):
        def body(session, comm):
            x = np.ones(500_000, np.float32)
            operation = comm.all_reduce(x, async_op=True)
            support.wait_until(operation.done, "the operation")
            self.assertTrue((x == 2).all())

        self.ranks(2, body)

    def test_wait_that_times_out_leaves_the_operation_running(self):
        def early(session, comm, let):
            x = session.zeros(10)
            operation = comm.all_reduce(x, async_op=True)
            for timeout in (0, 0.01):
                with self.assertRaisesRegex(shunt.DeadlineExceeded, "rank 1 .* still running"):
                    operation.wait(timeout)
            let()
            operation.wait(support.PATIENCE)
            self.assertEqual(x[0], 3)

        self.with_late_peer(early, lambda session, comm: comm.all_reduce(np.full(10, 3, np.float32)))

    def test_descriptor_becomes_readable_at_the_end(self):
        def early(session, comm, let):
            x = session.zeros(100_000)
            operation = comm.all_reduce(x, async_op=True)
            poller = select.poll()
            poller.register(operation, select.POLLIN)
            self.assertEqual(poller.poll(0), [])
            let()
            self.assertEqual(poller.poll(support.PATIENCE * 1000), [(operation.fileno(), select.POLLIN)])
            self.assertTrue(operation.done())
            self.assertEqual(select.select([operation], [], [], 0)[0], [operation])  # and stays so
            self.assertTrue((x == 1).all())

        self.with_late_peer(early, lambda session, comm: comm.all_reduce(session.array(np.ones(100_000, np.float32))))

    def test_ordinary_memory_has_no_descriptor_and_says_so(self):
        def early(session, comm, let):
            operation = comm.all_reduce(np.zeros(100_000, np.float32), async_op=True)
            with self.assertRaises(shunt.FailedPrecondition):
                operation.fileno()
            let()
            operation.wait()

        self.with_late_peer(early, lambda session, comm: comm.all_reduce(np.zeros(100_000, np.float32)))

    def test_handle_keeps_its_arrays_alive(self):
        def early(session, comm, let):
            operation = comm.all_reduce(session.array([1.0, 2.0]), async_op=True)
            gc.collect()
            let()
            self.assertEqual(operation.wait().tolist(), [11, 22])

        self.with_late_peer(early, lambda session, comm: comm.all_reduce(np.array([10.0, 20.0])))

    def test_several_operations_in_flight_end_in_order(self):
        def body(session, comm):
            buckets = [session.zeros(1000 * (i + 1)) for i in range(20)]
            for i, bucket in enumerate(buckets):
                bucket[:] = i
            operations = [comm.all_reduce(bucket, async_op=True) for bucket in buckets]
            for i, operation in enumerate(operations):
                self.assertTrue((operation.wait() == 3 * i).all())

        self.ranks(3, body)

    def test_every_call_has_a_handle(self):
        def body(session, comm):
            x = session.array(np.arange(4.0))
            peer = 1 - comm.rank
            results = [
                comm.reduce(x.copy(), 0, async_op=True).wait(),
                comm.broadcast(x.copy(), 0, async_op=True).wait(),
                comm.all_gather(x, async_op=True).wait(),
                comm.reduce_scatter(x, async_op=True).wait(),
                comm.all_to_all(x, async_op=True).wait(),
                comm.all_to_all_v(x, [2, 2], [2, 2], async_op=True).wait(),
                comm.gather(x, 0, async_op=True).wait(),
                comm.scatter(x if comm.rank == 0 else None, 0, np.zeros(2), async_op=True).wait(),
                comm.barrier(async_op=True).wait(),
            ]
            theirs = np.zeros(4)
            operations = [comm.send(x, peer, async_op=True), comm.recv(theirs, peer, async_op=True)]
            self.assertIs(operations[1].wait(), theirs)
            operations[0].wait()
            self.assertEqual(theirs.tolist(), [0, 1, 2, 3])
            return [None if r is None else r.tolist() for r in results]

        first, second = self.ranks(2, body)
        self.assertEqual(
            first,
            [[0, 2, 4, 6], [0, 1, 2, 3], [0, 1, 2, 3] * 2, [0, 2], [0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 2, 3] * 2, [0, 1], None],
        )
        self.assertEqual(
            second,
            [None, [0, 1, 2, 3], [0, 1, 2, 3] * 2, [4, 6], [2, 3, 2, 3], [2, 3, 2, 3], None, [2, 3], None],
        )

    def test_dropped_handle_waits_and_warns(self):
        def early(session, comm, let):
            x = session.zeros(10)
            operation = comm.all_reduce(x, async_op=True)
            timer = threading.Timer(0.05, let)  # after the drop, most likely; right either way
            timer.start()
            del operation
            timer.join()
            self.assertEqual(x[0], 4)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.with_late_peer(early, lambda session, comm: comm.all_reduce(np.full(10, 4, np.float32)))
        self.assertTrue(all(issubclass(w.category, ResourceWarning) for w in caught), caught)

    def test_error_comes_from_wait_each_time(self):
        def early(session, comm, let):
            operation = comm.all_reduce(session.zeros(10), async_op=True)
            let()
            for _ in range(2):
                with self.assertRaisesRegex(shunt.Aborted, "enough"):
                    operation.wait()
            self.assertTrue(operation.done())
            self.assertIn("failed", repr(operation))

        self.with_late_peer(early, lambda session, comm: comm.abort("enough"))

    def test_handle_outlives_its_communicator_and_session(self):
        with shunt.connect() as session:
            comm = session.join("outlived", 0, 1)
            x = session.array([1.0])
            operation = comm.all_reduce(x, async_op=True)
            operation.wait()
            late = comm.barrier(async_op=True)
        del session, comm
        gc.collect()
        try:
            late.wait()
        except shunt.Error:
            pass  # it may have ended before the communicator was left, or not
        self.assertEqual(x[0], 1)

    def test_blocked_call_lets_other_threads_run(self):
        # The late rank is a thread of the same process: with the lock held it could never come.
        self.with_late_peer(lambda s, comm, let: (let(), comm.barrier()), lambda s, comm: comm.barrier())
