#!/usr/bin/env python3
"""Runs the benchmarks of transfers that are Python programs briefly. Nothing is timed. transfer_scripts.py WHAT

Exit code 77: something that they need is not here. The build is SHUNT_BUILD_DIR.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH / "nixl"), str(BENCH / "transfers")]


def skip(words):
    print(f"skipped: {words}")
    sys.exit(77)


def run(name, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "out.json"
        command = [sys.executable, "-B", BENCH / name, *arguments, "--json", path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
        if "network namespace" in done.stderr:
            skip(done.stderr.strip())
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        record, = json.loads(path.read_text())
    assert record["wrong"] == 0 and record["bytes"] == 1 << 20, record
    return record


def memory():
    for nodes in ("1", "2"):
        record = run("memory-under-transfers", "--transfers", "2500", "--nodes", nodes)
        assert record["transfers"] == 2500, record
        # The daemon maps the clients' 256 MiB of memory, or its node's half of it.
        assert record["rss_bytes"] > 100 << 20, record
        assert 0 <= record["anonymous_growth_bytes"] < 64 << 20, record


def latency():
    record = run("latency-beside-bulk", "--pulls", "5", "--rate", "1gbit")
    assert record["pulls"] == 5 and record["bulk_bytes"] > 0, record
    # A pull can't be faster than its bytes on the link, and both together carry no more than it.
    assert record["alone_median_us"] > 8e6 * (1 << 20) / 1.1e9, record
    assert record["latency_share"] + record["bulk_share"] < 1.2, record


def nixl():
    """Shunt's side, and what is said where NIXL is not."""
    import numpy as np

    from blocks import Job
    import compare
    import shunt_side
    import world

    for operation in ("READ", "WRITE"):
        job = Job(operation, 512, 100, 0.01)
        with world.Daemon() as daemon:
            assert compare.measure(job, shunt_side.owner, shunt_side.mover, daemon.socket) > 0
        # A block in another's place, a byte that is wrong, a source that was written: all are counted.
        pulled = operation == "READ"
        destination, source = (job.order_of_mover, job.order_of_owner) if pulled else (job.order_of_owner, job.order_of_mover)
        memory = np.empty((job.pieces, job.piece_bytes), np.uint8)
        memory[destination] = job.source()[source]
        assert job.wrong(memory, False) == 0
        memory[0, 0] ^= 1
        assert job.wrong(memory, False) == 1
        memory[[1, 2]] = memory[[2, 1]]
        assert job.wrong(memory, False) > 500
        job.fill(memory, False)
        assert job.wrong(memory, False) == job.bytes
        job.fill(memory, True)
        assert job.wrong(memory, True) == 0
        memory[99, 511] ^= 1
        assert job.wrong(memory, True) == 1

    done = subprocess.run([BENCH / "compare", "nixl", "--venv", "/nonexistent"], capture_output=True, text=True)
    assert done.returncode == 3 and "pip install nixl-cu13" in done.stderr, done


if __name__ == "__main__":
    for variable in ("SHUNT_NO_PYTHON", "LD_PRELOAD"):
        if os.environ.get(variable):
            skip("a sanitized libshunt in the processes that these programs start")
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        skip(f"{error} (Debian: python3-numpy)")
    {"memory": memory, "latency": latency, "nixl": nixl}[sys.argv[1]]()
