#!/usr/bin/env python3
"""shunt-sim as users run it: its examples, flags, JSON and errors."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SIM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])


def run(*arguments):
    return subprocess.run([SIM, *map(str, arguments)], capture_output=True, text=True, timeout=100)


def rows(*arguments):
    done = run("--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main():
    examples = sorted((ROOT / "examples/clusters").glob("*.toml"))
    assert len(examples) == 3, examples
    for example in examples:
        for row in rows(example):
            assert row["time_us"] > 0 and row["failure"] == "" and row["link"], (example, row)

    # The test bed's links set the times of its large operations.
    bed = ROOT / "examples/clusters/testbed-4x250mbit.toml"
    ring = [r for r in rows(bed, "--kind", "all_reduce", "--bytes", "16M") if r["algorithm"] == "ring"][0]
    bound_us = 1.5 * (16 << 20) / (0.956 * 250e6 / 8) * 1e6
    assert bound_us <= ring["time_us"] < 1.02 * bound_us, (ring, bound_us)
    assert sum(r["best"] for r in rows(bed, "--kind", "all_reduce", "--bytes", "16M")) == 1

    # Flags override the file.
    fast = rows(bed, "--rate", "1gbit", "--algorithm", "ring", "--kind", "all_reduce", "--bytes", "16M")
    assert abs(ring["time_us"] / fast[0]["time_us"] / 4 - 1) < 0.02, fast
    more = rows(bed, "--nodes", "8", "--algorithm", "ring,direct", "--kind", "all_reduce", "--bytes", "1M,2M")
    assert [(r["algorithm"], r["bytes"], r["ranks"]) for r in more] == [
        ("ring", 1 << 20, 8), ("direct", 1 << 20, 8), ("ring", 2 << 20, 8), ("direct", 2 << 20, 8)], more

    assert len(rows("--kind", "all_reduce", "--bytes", "1M", "--algorithm", "ring", bed)) == 1

    # A failure is a row, not an error.
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(bed.read_text() + '\n[[failure]]\nnode = 2\nat = "1ms"\n')
        file.flush()
        done = run(file.name, "--kind", "all_reduce", "--bytes", "16M")
        assert done.returncode == 0 and "! ring fails: " in done.stdout, done
        assert "peer 2" in done.stdout, done.stdout

    for arguments, words in [
            (["--nodes", "4"], "shunt-sim: rate is 0, expected at least 1 byte a second"),
            ([bed, "--rate", "x"], 'shunt-sim: --rate is "x", expected a rate such as "250 Mbit/s" or "50 GB/s"'),
            ([bed, "--nodes", "0"], "shunt-sim: --nodes: nodes is 0, expected 1 to 65535"),
            ([bed, "--bytes", "many"], 'shunt-sim: --bytes is "many", expected a size'),
            ([bed, "--kind", "sum"], 'shunt-sim: --kind is "sum", expected one of barrier, all_reduce'),
            (["/nowhere.toml"], "shunt-sim: /nowhere.toml: cannot be read, expected a file"),
            ([bed, "--algorithm", "bruck", "--kind", "all_reduce"], "shunt-sim: all_reduce by bruck: there is no")]:
        done = run(*arguments)
        assert done.returncode == 1 and done.stderr.startswith(words), (arguments, done)

    # The page's keys are the flags, and the other way round.
    page = (ROOT / "docs/simulator.md").read_text()
    keys = re.findall(r"^\| `(\w+)` \|", page[page.index("## The cluster"):], re.M)
    names = {"kinds": "kind", "sizes": "bytes", "algorithms": "algorithm"}
    documented = {"--" + names.get(key, key).replace("_", "-") for key in keys}
    flags = set(re.findall(r"^ +(?:-h,)?(--[\w-]+)", run("--help").stdout, re.M))
    assert documented == flags - {"--help", "--version", "--json"}, documented ^ flags


main()
