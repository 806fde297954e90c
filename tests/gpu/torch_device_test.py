#!/usr/bin/env python3
"""Collectives and transfers on torch's CUDA tensors, a process a rank, all on GPU 0 unless there are more.

    torch_device_test.py [unittest's arguments]      77: no torch, or no GPU

Values are compared with what torch computes on the CPU in float64.
"""

import multiprocessing
import os
import pathlib
import queue
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

SKIPPED = 77

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

import support  # noqa: E402
from support import PATIENCE, shunt  # noqa: E402

SPAWN = multiprocessing.get_context("spawn")
MIB = 1 << 20


def rank_process(body, rank, world, socket, name, arguments, results):
    try:
        torch.cuda.set_device(rank % torch.cuda.device_count())
        with shunt.connect(socket=socket) as session:
            with session.join(name, rank, world, device=True, timeout=PATIENCE, default_timeout=PATIENCE) as comm:
                results.put((rank, body(session, comm, *arguments), None))
    except BaseException as error:  # noqa: B902
        results.put((rank, None, f"{type(error).__name__}: {error}"))


class DeviceTest(unittest.TestCase):
    environment = {}

    @classmethod
    def setUpClass(cls):
        cls.daemon = support.Daemon()
        cls.addClassCleanup(cls.daemon.stop)

    def start(self, world, body, *arguments):
        results = SPAWN.Queue()
        saved = {key: os.environ.get(key) for key in self.environment}
        os.environ.update(self.environment)
        processes = [
            SPAWN.Process(target=rank_process,
                          args=(body, rank, world, self.daemon.socket, self.id(), arguments, results), daemon=True)
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        for key, value in saved.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})
        return processes, results

    def outcomes(self, world, body, *arguments):
        """(result, error's words) of each rank."""
        processes, results = self.start(world, body, *arguments)
        found = {}
        try:
            while len(found) < world:
                rank, result, error = results.get(timeout=3 * PATIENCE)
                found[rank] = (result, error)
        except queue.Empty:
            self.fail(f"ranks {sorted(set(range(world)) - set(found))} gave nothing; shuntd: {self.daemon.log()[-2000:]}")
        finally:
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
        return [found[rank] for rank in range(world)]

    def ranks(self, world, body, *arguments):
        found = self.outcomes(world, body, *arguments)
        for rank, (_, error) in enumerate(found):
            self.assertIsNone(error, f"rank {rank}; shuntd: {self.daemon.log()[-2000:]}")
        return [result for result, _ in found]


def inputs(rank, count, dtype, seed):
    """Small whole numbers: every sum of them is exact in every type, none is negative where a type knows none."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0 if dtype == torch.uint8 else -4, 5, (count,), generator=generator).to(dtype)


def wrong(got, expected):
    got = got.cpu()
    return int((got.double() != expected.double()).sum()) if got.shape == expected.shape else got.numel()


def every_kind(session, comm, counts, dtypes):
    stream = torch.cuda.Stream()
    world, rank = comm.world_size, comm.rank
    failures = []
    with torch.cuda.stream(stream):
        for seed, (count, dtype) in enumerate((c, d) for c in counts for d in dtypes):
            dtype = getattr(torch, dtype)
            every = [inputs(r, count * world, dtype, seed) for r in range(world)]
            mine = every[rank].cuda()
            one = mine[:count].contiguous()
            total = sum(e.double() for e in every)

            def check(what, got, expected):
                stream.synchronize()
                bad = wrong(got, expected)
                if bad:
                    failures.append(f"{what} {dtype} {count}: {bad} wrong")

            x = mine.clone()
            comm.all_reduce(x, stream=stream)
            check("all_reduce in place", x, total)
            out = torch.full_like(mine, 77)
            comm.all_reduce(mine, out=out, stream=stream)
            check("all_reduce", out, total)
            out = torch.full((count,), 77, dtype=dtype, device="cuda")
            comm.reduce_scatter(mine, out=out, stream=stream)
            check("reduce_scatter", out, total[rank * count:(rank + 1) * count])
            out = torch.full((count * world,), 77, dtype=dtype, device="cuda")
            comm.all_gather(one, out=out, stream=stream)
            check("all_gather", out, torch.cat([e[:count] for e in every]))
            out = torch.full_like(mine, 77)
            comm.all_to_all(mine, out=out, stream=stream)
            check("all_to_all", out, torch.cat([e[rank * count:(rank + 1) * count] for e in every]))
            x = mine.clone()
            comm.broadcast(x, root=world - 1, stream=stream)
            check("broadcast", x, every[world - 1])
            comm.barrier(stream=stream)
    comm.sync()
    return failures


def between_own_work(session, comm, rounds):
    """The stream's own kernels before and after: each round doubles and adds."""
    stream = torch.cuda.Stream()
    big = torch.empty(64 * MIB, device="cuda")
    with torch.cuda.stream(stream):
        x = torch.full((100_000,), float(comm.rank + 1), device="cuda")
        for _ in range(rounds):
            big.normal_()  # some 100 us
            x.mul_(2)
            comm.all_reduce(x, op="avg", stream=stream)
            x.add_(1)
    comm.sync()
    stream.synchronize()
    return x.unique().tolist()


def replayed_graph(session, comm, calls, replays):
    stream = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    with torch.cuda.stream(stream):
        comm.all_reduce(x.clone(), stream=stream)  # so that all is registered and loaded
    comm.sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            comm.all_reduce(x, op="avg", stream=stream)
            x.add_(comm.rank)  # the next average adds (world - 1) / 2
    stream.synchronize()
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    # What it is after the last add: 1 + the averages of all adds but the last + my own last add.
    expected = 1 + (calls * replays - 1) * (comm.world_size - 1) / 2 + comm.rank
    return x.unique().tolist(), expected


def different_counts(session, comm):
    stream = torch.cuda.Stream()
    x = torch.ones(1000 + comm.rank, device="cuda")
    with torch.cuda.stream(stream):
        comm.all_reduce(x, stream=stream)
        y = x + 1
    stream.synchronize()  # the stream goes on
    try:
        comm.sync()
    except shunt.Error as error:
        return str(error)
    return f"no error; {y[0]}"


def hold_memory(session, comm, size, ready):
    x = torch.empty(size, dtype=torch.uint8, device="cuda")
    session.register(x)
    if comm.rank == 0:
        ready.put(os.getpid())
        signal.pause()
    return None


class Torch(DeviceTest):
    def test_every_kind_gives_torchs_values_over_streams(self):
        for failures in self.ranks(4, every_kind, [1, 1000, 65537, 3 * MIB], ["float32", "bfloat16", "int64", "uint8"]):
            self.assertEqual(failures, [])

    def test_two_ranks_give_the_right_values_too(self):
        for failures in self.ranks(2, every_kind, [7, 100_003], ["float16", "float64", "int32"]):
            self.assertEqual(failures, [])

    def test_a_call_takes_effect_where_it_stands_in_its_stream(self):
        expected = [1.0, 2.0, 3.0]  # ranks + 1
        value = sum(expected) / 3 * 2 + 1
        for _ in range(9):
            value = value * 2 + 1
        for got in self.ranks(3, between_own_work, 10):
            self.assertEqual(got, [value])

    def test_a_graph_of_calls_gives_the_right_values_at_each_replay(self):
        for got, expected in self.ranks(2, replayed_graph, 20, 50):
            self.assertEqual(got, [expected])

    def test_calls_that_differ_end_in_words_and_streams_go_on(self):
        for words in self.ranks(2, different_counts):
            self.assertIn("1000", words)
            self.assertIn("1001", words)

    def test_memory_of_a_killed_client_returns(self):
        ready = SPAWN.Manager().Queue()
        torch.cuda.init()
        free_before = torch.cuda.mem_get_info()[0]
        processes, _ = self.start(1, hold_memory, 8 << 30, ready)
        pid = ready.get(timeout=PATIENCE)
        self.assertLess(torch.cuda.mem_get_info()[0], free_before - (8 << 30))
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        # What its context took comes back too; the worker's own stays.
        support.wait_until(lambda: torch.cuda.mem_get_info()[0] > free_before - (2 << 30), "the memory")
        print(f"memory was back after {time.monotonic() - killed:.2f} s")
        processes[0].join()


class ExpandableSegments(Torch):
    """Memory that crosses as descriptors."""

    environment = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def kv_cache(session, comm, layers, blocks, block_bytes):
    """Rank 0 publishes, rank 1 pulls permuted blocks into permuted places, on the GPU and into host memory."""
    shape = (layers, blocks, block_bytes)
    agent = session.agent(f"rank{comm.rank}")
    generator = torch.Generator(device="cuda").manual_seed(5)
    theirs = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8, device="cuda")  # both know it
    session.register(theirs)
    if comm.rank == 0:
        torch.cuda.synchronize()
        agent.publish("kv", shunt.Blocks(theirs, axes=2), access="read")
        comm.barrier()
        comm.barrier()
        return []
    mine = torch.zeros_like(theirs)
    session.register(mine)
    torch.cuda.synchronize()
    host = session.zeros(shape, "uint8")
    comm.barrier()
    remote = session.fetch("rank0", "kv")
    failures = []
    order = torch.randperm(blocks)
    take, put = order[:blocks // 2].tolist(), torch.randperm(blocks)[:blocks // 2].tolist()
    for what, memory in (("GPU", mine), ("host", host)):
        local = session.prepare(shunt.Blocks(memory, axes=2))
        import numpy
        select = [source.ids(numpy.array(ids, numpy.uint32), repeats=layers, repeat_step=blocks)
                  for source, ids in ((local, put), (remote, take))]
        transfer = session.pull(*select)
        transfer.wait(PATIENCE)
        report = transfer.report()
        got = memory if what == "GPU" else torch.from_numpy(numpy.array(memory)).cuda()
        expected = torch.zeros_like(theirs)
        expected[:, put] = theirs[:, take]
        if not torch.equal(got, expected):
            failures.append(f"{what}: {(got != expected).sum()} bytes of {got.numel()} are wrong, route {report.route}")
        print(f"pull into {what}: {report.bytes / MIB:.0f} MiB by {report.route} in {report.moved * 1e6:.0f} us")
    comm.barrier()
    return failures


class Transfers(DeviceTest):
    def test_pulled_blocks_have_every_byte(self):
        for failures in self.ranks(2, kv_cache, 8, 512, 32 << 10):
            self.assertEqual(failures, [])

    def test_blocks_of_odd_sizes_have_every_byte(self):
        for failures in self.ranks(2, kv_cache, 3, 200, 4 * 1024 + 24):
            self.assertEqual(failures, [])


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        sys.exit(SKIPPED)
    support.main()
