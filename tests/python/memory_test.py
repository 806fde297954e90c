"""Arrays on shared regions: no copies, and no view without memory under it."""

import gc
import threading

import numpy as np
import shunt
import support


class Memory(support.DaemonTest):
    def setUp(self):
        self.session = shunt.connect()
        self.addCleanup(self.session.close)

    def test_array_lies_on_a_shared_mapping_and_its_views_too(self):
        x = self.session.empty((100, 50), "float64")
        mapping = support.mapping_of(x.ctypes.data)
        self.assertIn("rw-s", mapping)
        self.assertIn("memfd:", mapping)
        self.assertTrue(np.shares_memory(x, x[10:, ::2].T))
        self.assertEqual(self.session.region_id(x), self.session.region_id(x[-1]))
        self.assertIsNone(self.session.region_id(np.zeros(10)))

    def test_array_is_zeroed_writable_and_contiguous(self):
        for make in (self.session.empty, self.session.zeros):
            x = make((3, 4), np.int16)
            self.assertEqual((x.shape, x.dtype, x.flags.c_contiguous, x.flags.writeable), ((3, 4), np.int16, True, True))
            self.assertFalse(x.any())
        self.assertEqual(self.session.empty(5).shape, (5,))
        self.assertEqual(self.session.empty(()).shape, ())
        self.assertEqual(self.session.empty((0, 3)).shape, (0, 3))

    def test_array_copies_values_and_their_type(self):
        x = self.session.array([[1, 2], [3, 4]])
        self.assertEqual((x.tolist(), x.dtype), ([[1, 2], [3, 4]], np.array([1]).dtype))
        self.assertEqual(self.session.array([1, 2], "bfloat16").itemsize, 2)

    def test_collectives_do_not_move_the_array(self):
        def body(session, comm):
            x = session.zeros(100_000)
            x[:] = comm.rank
            before = x.ctypes.data
            y = comm.all_reduce(x)
            self.assertIs(y, x)
            self.assertEqual(x.ctypes.data, before)
            self.assertTrue((x == 1).all())

        self.ranks(2, body)

    def test_region_is_unmapped_with_its_last_view(self):
        x = self.session.empty(1 << 16, np.uint8)
        address = x.ctypes.data
        tail = x[-10:]
        del x
        gc.collect()
        self.assertIn("memfd:", support.mapping_of(address))
        tail[:] = 7
        del tail
        gc.collect()
        self.assertNotIn("memfd:", support.mapping_of(address) or "")

    def test_many_regions_come_and_go_without_a_trace(self):
        def mappings():
            with open("/proc/self/maps") as maps:
                return sum("memfd:" in line for line in maps)

        before = mappings()
        for _ in range(300):
            self.session.empty(10_000)
        self.assertEqual(mappings(), before)

    def test_view_outlives_its_session(self):
        x = self.session.array([1, 2, 3])
        view = x[1:]
        self.session.close()
        del x
        gc.collect()
        view += 1
        self.assertEqual(view.tolist(), [3, 4])
        with self.assertRaisesRegex(shunt.FailedPrecondition, "the session is closed"):
            self.session.empty(3)

    def test_sessions_end_comes_with_the_last_array(self):
        x = self.session.empty(1000)
        address = x.ctypes.data
        self.session.close()
        self.session.close()
        self.assertIn("memfd:", support.mapping_of(address))
        del x
        self.assertNotIn("memfd:", support.mapping_of(address) or "")

    def test_free_gives_the_region_back_at_once(self):
        x = self.session.empty((10, 10))
        address = x.ctypes.data
        self.session.free(x)
        self.assertNotIn("memfd:", support.mapping_of(address) or "")
        self.assertEqual((x.shape, x.dtype), ((0,), np.float32))

    def test_free_refuses_while_another_view_is_alive(self):
        x = self.session.empty((10, 10))
        row = x[3]
        with self.assertRaisesRegex(shunt.FailedPrecondition, r"1 other array\(s\)"):
            self.session.free(x)
        row[:] = 5
        self.assertEqual(x[3].tolist(), [5] * 10)

    def test_free_refuses_what_is_no_region(self):
        with self.assertRaisesRegex(shunt.InvalidArgument, "not on a region"):
            self.session.free(np.zeros(3))

    def test_free_refuses_while_an_operation_uses_the_region(self):
        refused = threading.Event()

        def body(session, comm):
            if comm.rank == 1:
                refused.wait(support.PATIENCE)
                comm.all_reduce(np.zeros(50_000, np.float32))
                return
            x = session.zeros(50_000)
            operation = comm.all_reduce(x, async_op=True)
            with self.assertRaisesRegex(shunt.FailedPrecondition, "in use"):
                session.free(x)
            refused.set()
            operation.wait()
            del operation
            session.free(x)
            self.assertEqual(x.size, 0)

        self.ranks(2, body)

    def test_too_large_a_region_names_the_quota(self):
        with self.assertRaises(shunt.ResourceExhausted) as caught:
            self.session.empty(1 << 50, np.uint8)
        self.assertRegex(str(caught.exception), r"\d")

    def test_objects_cannot_be_shared(self):
        with self.assertRaisesRegex(shunt.InvalidArgument, "Python objects"):
            self.session.empty(3, object)

