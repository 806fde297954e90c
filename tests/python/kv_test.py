"""Block stores from Python, and the example of the page on them."""

import asyncio
import re
import select
import signal
import tempfile
import threading
import unittest

import numpy as np
import shunt
import support
from shunt import kv

BLOCK = 4096


def keys(start, stop):
    return [b"block %d" % number for number in range(start, stop)]


class World:
    def __init__(self, test, memory=8, file=64, directory=None):
        self.session = shunt.connect()
        test.addCleanup(self.session.close)
        if directory is None:
            temporary = tempfile.TemporaryDirectory()
            test.addCleanup(temporary.cleanup)
            directory = temporary.name
        self.directory = directory
        self.store = kv.Store(self.session, block_bytes=BLOCK, memory=memory * BLOCK, directory=directory,
                              file_bytes=file * BLOCK)
        test.addCleanup(self.store.close)
        self.blocks = self.session.zeros((32, BLOCK), np.uint8)
        self.blocks[:] = np.random.default_rng(3).integers(0, 256, (32, BLOCK))


class Stores(support.DaemonTest):
    def test_keys_of_objects_are_not_shown(self):
        objects = shunt.kv.Objects("e", "b", credentials=shunt.ObjectCredentials("id", "a secret", "a token"))
        self.assertNotIn("a secret", repr(objects))
        self.assertNotIn("a token", repr(objects))

    def test_rows_come_back_through_both_tiers(self):
        w = World(self)
        names = keys(0, 32)
        self.assertEqual({r.tier for r in w.store.put(names, w.blocks).wait(support.PATIENCE)}, {"memory"})
        self.assertEqual(w.store.prefix(names + [b"no"] + names), 32)
        self.assertIn(names[3], w.store)
        back = w.session.zeros((33, BLOCK), np.uint8)
        results = w.store.get(names + [b"no"], back).wait(support.PATIENCE)
        self.assertTrue((back[:32] == w.blocks).all())
        self.assertEqual(results[32], kv.Result(shunt.NotFound.code, None, 0))
        self.assertGreaterEqual(sum(r.tier == "file" for r in results), 24)
        stats = w.store.stats()
        self.assertEqual((stats.hits, stats.misses, stats.dropped), (32, 1, 0))
        self.assertEqual(stats.memory.slots, 8)

    def test_close_waits_for_a_call_of_another_thread_that_is_inside(self):
        w = World(self)
        functions, lookup, close = w.store._handle.functions, *(getattr(w.store._handle.functions, name)
                                                                for name in ("lookup", "close"))
        inside, go_on, closing = threading.Event(), threading.Event(), threading.Event()
        order = []

        def slow_lookup(*arguments):
            inside.set()
            go_on.wait(support.PATIENCE)
            order.append("lookup")
            return lookup(*arguments)

        def noted_close(pointer):
            order.append("close")
            closing.set()
            close(pointer)

        functions.lookup, functions.close = slow_lookup, noted_close
        threads = [threading.Thread(target=w.store.prefix, args=([b"key"],)), threading.Thread(target=w.store.close)]
        threads[0].start()
        self.assertTrue(inside.wait(support.PATIENCE))
        threads[1].start()
        self.assertFalse(closing.wait(0.2))
        go_on.set()
        for thread in threads:
            thread.join(support.PATIENCE)
            self.assertFalse(thread.is_alive())
        self.assertEqual(order, ["lookup", "close"])
        with self.assertRaisesRegex(shunt.FailedPrecondition, "prefix: the store is closed"):
            w.store.prefix([b"key"])

    def test_blocks_are_arrays_of_any_kind_and_length(self):
        w = World(self)
        numbers = w.session.array(np.arange(10, dtype=np.float32))
        w.store.put([b"a", b"b"], [numbers, memoryview(numbers[:3])]).wait(support.PATIENCE)
        room = w.session.zeros((2, 10), np.float32)
        self.assertEqual([r.bytes for r in w.store.get([b"a", b"b"], room).wait(support.PATIENCE)], [40, 12])
        np.testing.assert_array_equal(room, [numbers, [0, 1, 2, 0, 0, 0, 0, 0, 0, 0]])

    def test_await_and_select(self):
        w = World(self)

        async def both():
            await asyncio.gather(w.store.put(keys(0, 4), w.blocks[:4]), w.store.put(keys(4, 8), w.blocks[4:8]))
            await w.store.flush()
            return await w.store.get(keys(0, 8), w.blocks[8:16])

        self.assertEqual([r.code for r in asyncio.run(both())], [0] * 8)
        self.assertTrue((w.blocks[8:16] == w.blocks[:8]).all())
        call = w.store.get(keys(0, 8), w.blocks[16:24])
        self.assertTrue(select.select([call], [], [], support.PATIENCE)[0])
        self.assertTrue(call.done())
        self.assertEqual(len(call.results()), 8)

    def test_what_is_wrong_is_said(self):
        w = World(self)
        for words, call in (
            ("no region", lambda: w.store.put([b"a"], [np.zeros(8, np.uint8)])),
            ("1 keys and 2 blocks", lambda: w.store.put([b"a"], w.blocks[:2])),
            ("expected bytes", lambda: w.store.put(["a"], w.blocks[:1])),
            ("1 to 64", lambda: w.store.lookup([b"k" * 65])),
            ("contiguous", lambda: w.store.put([b"a"], [w.blocks[0, ::2]])),
            ("read-only", lambda: w.store.get([b"a"], [np.frombuffer(b"abc", np.uint8)])),
            ("count is 0", lambda: w.store.put([], [])),
        ):
            with self.subTest(words), self.assertRaisesRegex(shunt.InvalidArgument, words):
                call()
        with self.assertRaisesRegex(shunt.FailedPrecondition, "in use by another"):
            World(self, directory=w.directory)
        w.store.put([b"a"], w.blocks[:1]).wait(support.PATIENCE)
        small = w.store.get([b"a"], [w.blocks[1, :100]])
        with self.assertRaisesRegex(shunt.OutOfRange, "the block has 4096"):
            small.wait(support.PATIENCE)
        self.assertEqual(small.results()[0].bytes, BLOCK)
        w.store.close()
        w.store.close()
        with self.assertRaisesRegex(shunt.FailedPrecondition, "closed"):
            w.store.stats()

    def test_what_is_erased_is_not_there(self):
        w = World(self)
        w.store.put(keys(0, 8), w.blocks[:8]).wait(support.PATIENCE)
        self.assertEqual(w.store.erase(keys(2, 12)), 6)
        self.assertEqual(w.store.lookup(keys(0, 4)), ["memory", "memory", None, None])

    def test_a_process_finds_what_another_one_has_put_and_been_killed_after(self):
        code = (
            "import sys, numpy as np, shunt\n"
            "session = shunt.connect()\n"
            "store = shunt.kv.Store(session, block_bytes=4096, memory=8 * 4096, directory=sys.argv[1], file_bytes=64 * 4096)\n"
            "blocks = session.zeros((32, 4096), np.uint8)\n"
            "blocks[:] = np.arange(32)[:, None]\n"
            "store.put([b'block %d' % n for n in range(32)], blocks).wait()\n"
            "store.flush().wait()\n"
            "store.put([b'late %d' % n for n in range(32)], blocks)\n"
            "print('flushed', flush=True)\n"
            "sys.stdin.read()\n"
        )
        with tempfile.TemporaryDirectory() as directory:
            with support.python_process(code, directory) as process:
                self.assertEqual(process.stdout.readline(), "flushed\n")
                with self.assertRaisesRegex(shunt.FailedPrecondition, "in use by another"):
                    World(self, directory=directory)
                process.send_signal(signal.SIGKILL)
                process.wait()
            w = World(self, directory=directory)
            results = w.store.get(keys(0, 32), w.blocks).wait(support.PATIENCE)
            self.assertEqual({r.tier for r in results}, {"file"})
            self.assertTrue((w.blocks == np.arange(32)[:, None]).all())
            late = w.store.get([b"late %d" % n for n in range(32)], w.blocks).wait(support.PATIENCE)
            for number, result in enumerate(late):
                if result.code == 0:
                    self.assertTrue((w.blocks[number] == number).all())
            self.assertEqual(w.store.stats().corrupt, 0)


class Example(support.DaemonTest):
    def test_the_example_of_the_page_runs_and_prints_what_it_says(self):
        import readme_test

        page = (support.ROOT / "docs" / "kv.md").read_text()
        (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        printed = readme_test.run_python(example).splitlines()
        self.assertEqual(printed[0], "16")
        self.assertRegex(printed[1], r"Result\(code=0, tier='(file|memory)', bytes=1048576\)")
        self.assertEqual(printed[2], "16")


if __name__ == "__main__":
    unittest.main()
