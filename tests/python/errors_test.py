"""What is wrong becomes an exception whose words say what."""

import os
import signal
import threading

import numpy as np
import shunt
import support

MEMBER = """
import sys, numpy, shunt
session = shunt.connect()
comm = session.join(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
comm.barrier()
print("ready", flush=True)
sys.stdin.readline()
"""


INTERRUPTED = """
import sys, shunt
session = shunt.connect()
comm = session.join("interrupted", 1, 2)
for what, call in (("barrier", comm.barrier), ("join", lambda: session.join("lonely", 0, 2))):
    try:
        print(what, flush=True)
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
sys.stdin.readline()
"""


class Errors(support.DaemonTest):
    def refused(self, kind, words, call):
        with self.assertRaisesRegex(kind, words) as caught:
            call()
        self.assertIsInstance(caught.exception, shunt.Error)

    # ---- arguments, refused before anything is sent

    def test_arrays_that_cannot_be_used_are_refused_with_words(self):
        def body(session, comm):
            x = session.zeros((4, 6))
            readonly = np.zeros(3)
            readonly.flags.writeable = False
            for words, call in [
                (r"strides .* not C-contiguous", lambda: comm.all_reduce(x.T)),
                ("read-only", lambda: comm.all_reduce(readonly)),
                ("dtype bool.*uint8", lambda: comm.all_reduce(x > 0)),
                ("complex64.*real and imaginary", lambda: comm.all_reduce(np.zeros(3, np.complex64))),
                ("uint16.*bfloat16", lambda: comm.all_reduce(np.zeros(3, np.uint16))),
                ("dtype complex128.*; known: int8, .*bfloat16, .*float64", lambda: comm.all_reduce(np.zeros(3, complex))),
                ("dtype 'float7' is unknown.*know: int8, .*float8_e5m2", lambda: session.empty(3, "float7")),
                ("foreign byte order", lambda: comm.all_reduce(x.astype(">f4"))),
                ("needs float8_e5m2 or uint8", lambda: comm.all_reduce(x, dtype="float8_e5m2")),
                ("unknown dtype 'float7'", lambda: comm.all_reduce(x, dtype="float7")),
                ("unknown op 'xor'.*premul_sum", lambda: comm.all_reduce(x, "xor")),
                ("scalar=None", lambda: comm.all_reduce(x, "premul_sum")),
                ("scalar=2", lambda: comm.all_reduce(x, scalar=2)),
                (r"out has 6 elements .* expected 24", lambda: comm.all_reduce(x, out=x[0])),
                ("out has dtype float64.*float32", lambda: comm.all_reduce(x, out=np.zeros(24))),
                ("expected seconds >= 0", lambda: comm.barrier(timeout=-1)),
                ("expected seconds >= 0", lambda: comm.barrier(timeout=float("nan"))),
                ("send_counts.*expected 1 integers", lambda: comm.all_to_all_v(x, [1, 1], [1])),
                ("send_counts.*expected 1 integers >= 0", lambda: comm.all_to_all_v(x, [-1], [1])),
                ("part of rank 0 is elements 0 to 25, but x has 24", lambda: comm.all_to_all_v(x, [25], [25])),
            ]:
                with self.subTest(words):
                    self.refused(shunt.InvalidArgument, words, call)
            with self.assertRaisesRegex(TypeError, "must be a NumPy array or one in a GPU.s memory, not list"):
                comm.all_reduce([1, 2])
            # A read-only input is fine where nothing is written to it.
            self.assertEqual(comm.all_reduce(readonly, out=np.ones(3)).tolist(), [0, 0, 0])

        self.ranks(1, body)

    def test_what_does_not_divide_is_refused(self):
        def body(session, comm):
            self.refused(shunt.InvalidArgument, "7 elements do not divide among 2", lambda: comm.all_to_all(np.zeros(7)))
            self.refused(
                shunt.InvalidArgument, r"first axis of shape \(3, 2\)", lambda: comm.reduce_scatter(np.zeros((3, 2)))
            )
            if comm.rank:
                self.refused(shunt.InvalidArgument, "not the root", lambda: comm.scatter(None))
            comm.barrier()

        self.ranks(2, body)

    def test_library_refuses_ranks_that_are_not_there(self):
        def body(session, comm):
            self.refused(shunt.InvalidArgument, "5", lambda: comm.broadcast(np.zeros(3), root=5))
            self.refused(shunt.InvalidArgument, "7", lambda: comm.send(np.zeros(3), peer=7))

        self.ranks(1, body)

    def test_async_inside_a_group_is_refused(self):
        def body(session, comm):
            with self.assertRaisesRegex(shunt.InvalidArgument, "group"):
                with comm.group():
                    comm.barrier(async_op=True)
            with self.assertRaisesRegex(shunt.FailedPrecondition, "already in a group"):
                with comm.group(), comm.group():
                    pass
            comm.barrier()

        self.ranks(1, body)

    # ---- joining

    def test_no_daemon_at_the_socket(self):
        self.refused(shunt.Unavailable, "/nonexistent/shuntd.sock", lambda: shunt.connect("/nonexistent/shuntd.sock"))
        with self.assertRaises(ConnectionError):
            shunt.connect("/nonexistent/shuntd.sock")

    def test_socket_path_that_is_too_long(self):
        self.refused(shunt.Error, "200", lambda: shunt.connect("/" + "x" * 199))

    def test_join_names_the_missing_ranks(self):
        with shunt.connect() as session:
            self.refused(shunt.DeadlineExceeded, r"\b1\b.*\b2\b", lambda: session.join("lonely", 0, 3, timeout=0.05))

    def test_bad_ranks_and_sizes(self):
        with shunt.connect() as session:
            for rank, world_size in [(-1, 2), (2, 2), (0, 0), (0, -5), (0, 1_000_000)]:
                with self.subTest(rank=rank, world_size=world_size):
                    self.refused(
                        shunt.Error, str(rank if world_size == 2 else world_size),
                        lambda: session.join("bad", rank, world_size, timeout=0.05),
                    )
            self.refused(shunt.InvalidArgument, "32-bit", lambda: session.join("bad", 2**31, 2))
            self.refused(shunt.InvalidArgument, "", lambda: session.join("", 0, 1))
            self.refused(shunt.InvalidArgument, "zero byte", lambda: session.join("a\0b", 0, 1))

    def test_rank_that_is_taken(self):
        def body(session, comm):
            comm.barrier()
            if comm.rank == 0:
                self.refused(shunt.AlreadyExists, r"\b1\b", lambda: session.join("taken", 1, 2, timeout=1))
            comm.barrier()

        self.ranks(2, body, name="taken")

    # ---- ranks that disagree or do not come

    def test_different_calls_end_with_an_error_that_shows_both(self):
        def body(session, comm):
            if comm.rank == 0:
                comm.all_reduce(np.zeros(1000, np.float32))
            else:
                comm.all_reduce(np.zeros(5000, np.float64))

        for error in self.outcomes(2, body):
            self.assertIsInstance(error, shunt.FailedPrecondition)
            for word in ("1000", "5000", "float32", "float64"):
                self.assertIn(word, str(error))

    def test_rank_that_does_not_come_is_named(self):
        def body(session, comm):
            if comm.rank != 1:
                comm.all_reduce(np.zeros(10, np.float32), timeout=0.1)

        first, second, third = self.outcomes(3, body)
        self.assertIsNone(second)
        for error in (first, third):
            if isinstance(error, shunt.DeadlineExceeded):
                self.assertRegex(str(error), r"\b1\b")
                self.assertIsInstance(error, TimeoutError)
            else:  # the other one's deadline came first, and that is told
                self.assertIsInstance(error, shunt.Error)

    def test_abort_ends_every_rank_with_the_reason(self):
        started = threading.Barrier(3)

        def body(session, comm):
            operation = None if comm.rank == 0 else comm.barrier(async_op=True)
            started.wait(support.PATIENCE)
            if comm.rank == 0:
                comm.abort("the loss is not a number")
                self.refused(shunt.Aborted, "the loss is not a number", comm.barrier)
                return
            self.refused(shunt.Aborted, "the loss is not a number", operation.wait)

        self.ranks(3, body)

    def test_rank_whose_process_dies_is_named(self):
        with support.python_process(MEMBER, "dying", "1", "2") as process, shunt.connect() as session:
            comm = session.join("dying", 0, 2)
            comm.barrier()
            self.assertEqual(process.stdout.readline(), "ready\n")
            waiting = comm.barrier(timeout=support.PATIENCE, async_op=True)
            os.kill(process.pid, signal.SIGKILL)
            self.refused(shunt.Unavailable, r"rank 1\b", waiting.wait)

    def test_ctrl_c_ends_a_call_that_blocks_and_the_other_ranks_are_told(self):
        with support.python_process(INTERRUPTED) as process, shunt.connect() as session:
            comm = session.join("interrupted", 0, 2)
            for what in ("barrier", "join"):
                self.assertEqual(process.stdout.readline(), what + "\n")
                support.wait_until(lambda: support.sleeps_in_futex(process.pid), f"a {what} that waits")
                os.kill(process.pid, signal.SIGINT)
                self.assertEqual(process.stdout.readline(), "interrupted\n")
            self.refused(shunt.Aborted, r"rank 1\b.*KeyboardInterrupt", comm.barrier)

    def test_daemon_that_dies_is_told(self):
        daemon = support.Daemon()
        self.addCleanup(daemon.stop)
        with shunt.connect(daemon.socket) as session:
            daemon.kill()
            self.refused(shunt.Unavailable, ".", lambda: session.empty(10))

    # ---- after the end

    def test_what_was_left_or_closed_says_so(self):
        with shunt.connect() as session:
            comm = session.join("left", 0, 1)
            comm.leave()
            comm.leave()
            self.refused(shunt.FailedPrecondition, "'left' has been left", comm.barrier)
            self.refused(shunt.FailedPrecondition, "'left' has been left", lambda: comm.split(0))
            other = session.join("closed", 0, 1)
        self.refused(shunt.FailedPrecondition, "session is closed", lambda: session.join("x", 0, 1))
        self.refused(shunt.FailedPrecondition, "'closed' has been left", other.barrier)
        self.assertIn("left", repr(other))
        self.assertIn("closed", repr(session))

    def test_forked_child_is_refused_and_harms_nothing(self):
        with shunt.connect() as session:
            comm = session.join("forked", 0, 1)
            x = session.array([1.0, 2.0])
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                words = b"no error"
                try:
                    comm.barrier()
                except shunt.FailedPrecondition as error:
                    words = str(error).encode()
                except BaseException as error:
                    words = repr(error).encode()
                try:
                    del comm, session  # finalizers run, and touch nothing of the parent's
                    os.write(writer, words)
                finally:
                    os._exit(0)
            os.close(writer)
            with os.fdopen(reader, "rb") as pipe:
                words = pipe.read().decode()
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertIn("process", words)
            comm.all_reduce(x)
            self.assertEqual(x.tolist(), [1, 2])


class Loading(support.unittest.TestCase):
    def test_missing_library_names_every_place(self):
        code = "import shunt\ntry: shunt.connect()\nexcept ImportError as error: print(error)"
        environment = os.environ.pop("SHUNT_LIBRARY")
        try:
            with support.python_process(code) as process:
                words = process.stdout.read()
        finally:
            os.environ["SHUNT_LIBRARY"] = environment
        if "$SHUNT_LIBRARY" not in words:
            self.skipTest("a libshunt is found in one of the usual places")
        for place in ("$SHUNT_LIBRARY: not set", "client/python/shunt/libshunt.so", "build/lib/libshunt.so", "system loader", "ldconfig", "PREFIX/lib/libshunt.so"):
            self.assertIn(place, words)

    def test_named_directory_gets_the_file_that_was_meant(self):
        code = "import shunt\ntry: shunt.connect()\nexcept shunt.LibraryNotFound as error: print(error)"
        environment = os.environ["SHUNT_LIBRARY"]
        os.environ["SHUNT_LIBRARY"] = "/usr/lib"
        try:
            with support.python_process(code) as process:
                self.assertIn("$SHUNT_LIBRARY is '/usr/lib', a directory; expected the file", process.stdout.read())
        finally:
            os.environ["SHUNT_LIBRARY"] = environment

    def test_named_library_that_is_wrong_is_an_error_at_once(self):
        code = "import shunt\ntry: shunt.connect()\nexcept shunt.LibraryNotFound as error: print(error)"
        environment = os.environ["SHUNT_LIBRARY"]
        os.environ["SHUNT_LIBRARY"] = "/nonexistent/libshunt.so"
        try:
            with support.python_process(code) as process:
                self.assertIn("/nonexistent/libshunt.so", process.stdout.read())
        finally:
            os.environ["SHUNT_LIBRARY"] = environment
