#!/usr/bin/env python3
"""Runs a benchmark program briefly and checks its JSON: smoke.py BIN_DIR WHAT. Nothing is timed.

Exit code 77: a program or peer is not in this build.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1])
BRIEF = ["--blocks", "1", "--block-ms", "1"]
COLLECTIVES = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v",
               "gather", "scatter", "send_recv", "barrier"]
NO_IN_PLACE = {"all_to_all", "all_to_all_v", "send_recv", "barrier"}


# What a peer's library leaks is not ours to find.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"


def run(*command, expect=0):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "out.json"
        done = subprocess.run([BIN / command[0], *command[1:], "--json", path], capture_output=True, text=True,
                              timeout=300)
        if done.returncode == 3:
            skip(done.stderr.strip())
        assert done.returncode == expect, f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        records = json.loads(path.read_text()) if path.exists() else []
    return done, records


def skip(words):
    print(f"skipped: {words}")
    sys.exit(77)


def need(*programs):
    for program in programs:
        if not (BIN / program).exists():
            skip(f"{BIN / program} is not built")


def check_records(records, op, sizes):
    assert records, op
    for record in records:
        assert record["op"] == op
        assert record["wrong"] == 0 and record["time_us"] > 0 and record["ranks"] > 0, record
        assert all(not isinstance(value, (dict, list)) for value in record.values()), record
    assert len({record["bytes"] for record in records}) == sizes, records


def limits():
    _, records = run("shunt-limits", "--ranks", "2,3", "--bytes", "64K", *BRIEF)
    ops = [record["op"] for record in records]
    for op in ("copy", "one_pass_all_reduce", "one_pass_all_gather", "one_pass_reduce_scatter", "one_pass_all_to_all",
               "futex_round_trip", "context_switch"):
        assert op in ops, ops
    assert all(record["bound"] > 0 and record["value"] > 0 for record in records), records
    done, _ = run("shunt-limits", "--bytes", "many", expect=105)
    assert '"many" is not a size' in done.stderr, done.stderr


def perf():
    need("shunt-perf", "shuntd")
    for op in COLLECTIVES:
        for memory in ("host", "malloc"):
            _, records = run("shunt-perf", op, "--ranks", "3", "--memory", memory, "--sizes", "8,1000,20K,300K",
                             "--root", "1", *BRIEF)
            check_records(records, op, 1 if op == "barrier" else 4)
            placements = {record["placement"] for record in records}
            assert placements == ({"out"} if op in NO_IN_PLACE else {"in", "out"}), records
    for dtype, redop in (("float16", "avg"), ("int8", "max"), ("float8_e4m3", "sum"), ("float64", "premul_sum"),
                         ("uint64", "prod"), ("bfloat16", "min")):
        _, records = run("shunt-perf", "all_reduce", "--dtype", dtype, "--redop", redop, "--sizes", "1K,100K", *BRIEF)
        check_records(records, "all_reduce", 2)
    done, _ = run("shunt-perf", "all_to_all", "--placement", "in", expect=1)
    assert "cannot run in place" in done.stderr, done.stderr
    done, _ = run("shunt-perf", "all_reduce", "--root", "2", expect=105)
    assert "not a rank" in done.stderr, done.stderr
    for option, known in (("--dtype", "bfloat16"), ("--memory", "malloc"), ("--redop", "premul_sum"), ("--placement", "both")):
        done, _ = run("shunt-perf", "all_reduce", option, "nonsense", expect=105)
        assert '"nonsense" is not known; known: ' in done.stderr and known in done.stderr, done.stderr


def lifecycle():
    need("shunt-perf", "shuntd")
    for op, names in (("join", ["join_new", "join_warm"]), ("open", ["open_first", "open_later"]),
                      ("soak", ["soak_communicators", "soak_sessions"]), ("idle", ["idle"])):
        count = {"join": "20", "open": "2", "soak": "120", "idle": "1"}[op]
        _, records = run("shunt-perf", op, "--count", count)
        assert [record["op"] for record in records] == names, records


def transfers():
    need("shunt-perf", "shuntd")
    for op in ("pull", "push"):
        for form in ("ids", "runs", "pieces", "all"):
            _, records = run("shunt-perf", op, "--ranks", "4", "--form", form, "--sizes", "8,100K,1M", "--piece-bytes", "1000",
                             "--in-flight", "3", *BRIEF)
            check_records(records, op, 3)
            assert all(record["form"] == form and 0 < record["post_us"] for record in records), records
    done, _ = run("shunt-perf", "pull", "--ranks", "3", expect=105)
    assert "even number" in done.stderr, done.stderr


def stores():
    need("shunt-perf", "shuntd")
    with tempfile.TemporaryDirectory(dir=BIN) as directory:
        path = pathlib.Path(directory) / "file"
        for op in ("read", "write"):
            for form in ("ids", "runs", "pieces", "all"):
                for bound, piece in (("2", "4K"), ("0", "1000")):
                    _, records = run("shunt-perf", op, "--file", path, "--form", form, "--sizes", "4K,1M", "--piece-bytes", piece,
                                     "--bound-threads", bound, *BRIEF)
                    assert [record["store"] for record in records] == ["file", "file"], records
                    assert all(record["wrong"] == 0 and record["time_us"] > 0 for record in records), records
                    assert all(("bound_gbps" in record) == (bound != "0") for record in records), records
                    assert not path.exists(), "it was made, and is removed again"
        before = os.urandom(100_000)
        path.write_bytes(before)
        run("shunt-perf", "read", "--file", path, "--sizes", "8K", *BRIEF)
        assert path.read_bytes() == before
        run("shunt-perf", "write", "--file", path, "--sizes", "8K", *BRIEF)
        assert path.read_bytes()[8192:] == before[8192:] and path.read_bytes()[:8192] != before[:8192]
        done, _ = run("shunt-perf", "read", "--file", path, "--sizes", "1M", *BRIEF, expect=1)
        assert "has 100000 bytes, expected 1048576" in done.stderr, done.stderr
    for arguments, words in (((), "one of --file and --endpoint"), (("--endpoint", "http://x"), "--bucket"),
                             (("--endpoint", "x", "--bucket", "b", "--key", "k"), '"x"')):
        done, _ = run("shunt-perf", "read", *arguments, expect=105)
        assert words in done.stderr, done.stderr


def peer(name):
    need("shunt-compare", f"shunt-peer-{name}")
    ops = [op for op in COLLECTIVES if (name, op) != ("gloo", "reduce_scatter")]
    for op in ops:
        # MPICH 4.0.2 crashes in MPI_Reduce with MPI_IN_PLACE at a root other than 0.
        placement = "out" if (name, op) == ("mpich", "reduce") else "both"
        _, records = run("shunt-compare", name, op, "--sides", "peer", "--ranks", "3", "--root", "1", "--rounds", "1",
                         "--placement", placement, "--sizes", "8,100K", *BRIEF)
        for record in records:
            assert record["peer_wrong"] == 0 and record["peer_time_us"] > 0 and record["peer"] == name, record
    if name != "gloo":
        done, _ = run("shunt-compare", name, "all_reduce", "--sides", "peer", "--redop", "avg", expect=1)
        assert "has no avg" in done.stderr, done.stderr


def compare():
    script = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"
    for argument, status, stream in (("--help", 0, "stdout"), ("openmpi", 2, "stderr")):
        done = subprocess.run([script, argument], capture_output=True, text=True,
                              env={**os.environ, "SHUNT_BUILD_DIR": "/nonexistent"})
        assert done.returncode == status and "--target comparisons" in getattr(done, stream), done
    done = subprocess.run([script, "fio", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "iodepth 32" in done.stdout, done
    need("shunt-compare", "shunt-peer-openmpi", "shunt-peer-shunt", "shuntd")
    _, records = run("shunt-compare", "openmpi", "reduce_scatter", "--ranks", "2", "--rounds", "2", "--sizes", "64K,256K",
                     "--bound", *BRIEF)
    check_records(records, "reduce_scatter", 2)
    for record in records:
        assert record["ratio"] > 0 and record["bound"] > 0 and record["value"] > 0, record
        assert abs(record["ratio"] - record["peer_time_us"] / record["time_us"]) < 1e-3 * record["ratio"], record


def nodes_peers():
    need("shunt-compare", "shunt-peer-bare", "shunt-netns")
    need_namespaces()
    for peer, sizes, ranks, rate in (("bare", "8,4K", "7", ()), ("gloo", "8,100K", "4", ("--link-rate", "250mbit"))):
        if not (BIN / f"shunt-peer-{peer}").exists():
            continue
        _, records = run("shunt-compare", peer, "all_reduce", "--sides", "peer", "--nodes", "4", "--ranks", ranks,
                         "--rounds", "1", "--placement", "both", "--sizes", sizes, *rate, *BRIEF)
        assert len(records) == 4, records
        for record in records:
            assert record["peer_wrong"] == 0 and record["peer_time_us"] > 0 and record["nodes"] == 4, record
            # The ranks are on different nodes: their bytes crossed the links.
            assert record["peer_nic_bytes"] > record["bytes"], record
            assert record.get("link_rate") == (rate[1] if rate else None), record
    for arguments, code, words in (
            (("openmpi", "all_reduce", "--nodes", "2"), 1, "between nodes are gloo and bare"),
            (("bare", "broadcast", "--nodes", "2", "--sides", "peer"), 1, "only all_reduce"),
            (("bare", "all_reduce", "--nodes", "2", "--sides", "peer", "--link-rate", "fast"), 1, '"fast"'),
            (("bare", "all_reduce", "--nodes", "4"), 105, "4 nodes need as many ranks"),
            (("bare", "all_reduce", "--link-rate", "1gbit"), 105, "need at least 2")):
        done, _ = run("shunt-compare", *arguments, expect=code)
        assert words in done.stderr, done.stderr


def nodes_limits():
    need("shunt-limits", "shunt-peer-bare", "shunt-netns")
    need_namespaces()
    done, records = run("shunt-limits", "--nodes", "2", "--link-rate", "250mbit", *BRIEF)
    bare = [record for record in records if record["op"] == "bare_all_reduce"]
    assert [record["bytes"] for record in bare] == [8, 64, 512, 4096], records
    assert all(record["bound"] > 0 for record in records), records
    streams = [record for record in records if record["op"] == "tcp_stream"]
    if "tcp_stream             skipped" not in done.stdout:
        # A shaped link gives no more than its rate.
        assert [record["link_rate"] for record in streams] == ["250mbit", "unshaped"], records
        assert streams[0]["value"] < 0.0325, streams


def need_namespaces():
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        skip("network namespaces need root: unshare --user --map-root-user --net ctest ...")


what = sys.argv[2]
if what.startswith("peer_"):
    peer(what.removeprefix("peer_"))
else:
    {"limits": limits, "perf": perf, "transfers": transfers, "stores": stores, "lifecycle": lifecycle, "compare": compare, "nodes_peers": nodes_peers,
     "nodes_limits": nodes_limits}[what]()
