"""bench/compare nixl: the same block sets through NIXL's UCX backend and through Shunt, between two processes.

Blocks are named in a random order on both sides. The mover READs (pulls) or WRITEs (pushes) all of them again and again;
lists are prepared once, and a transfer's time is from its post to its end. A round is a pair of fresh processes for
each side, NIXL then Shunt, Shunt then NIXL, and so on; medians over the rounds of medians over transfers. NIXL runs
with each of its settings first; the two that were fastest for that size and direction run in every round, and the
better median is NIXL's. After each round all bytes on both sides are compared.

NIXL is the package nixl-cu13 (no GPU needed), in a virtual environment of yours that $SHUNT_NIXL_VENV or --venv names:

    python3 -m venv build/nixl-venv && build/nixl-venv/bin/pip install nixl-cu13

It brings PyTorch, some gigabytes, which is not used here: "pip install --no-deps nixl-cu13 numpy" does as well.

    bench/compare nixl [--pieces 8K,32K] [--count 4096] [--rounds 5] [--seconds 1] [--op READ|WRITE]
                       [--settings NAME] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
for path in (HERE, HERE.parent / "transfers"):
    sys.path.insert(0, str(path))
INSTALL = "python3 -m venv build/nixl-venv && build/nixl-venv/bin/pip install nixl-cu13"
NOT_HERE = 3  # as shunt-compare without its peer


def enter_environment(venv):
    """Runs this program again by the interpreter that has NIXL, unless this one is it."""
    python = pathlib.Path(venv) / "bin" / "python"
    if not python.exists():
        print(f"bench/compare nixl: no NIXL: {python} does not exist; make it: {INSTALL}\n"
              "(another place: --venv or $SHUNT_NIXL_VENV)", file=sys.stderr)
        sys.exit(NOT_HERE)
    if pathlib.Path(sys.prefix).resolve() != pathlib.Path(venv).resolve():
        os.execv(python, [python, "-B", __file__, *sys.argv[1:]])


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdigit() or int(number) * unit % 8 != 0 or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: a multiple of 8, with K or M behind it if you like")
    return int(number) * unit


def parse():
    parser = argparse.ArgumentParser(
        prog="bench/compare nixl", description=__doc__.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", default=os.environ.get("SHUNT_NIXL_VENV", HERE.parents[1] / "build" / "nixl-venv"))
    parser.add_argument("--pieces", type=lambda text: [size(word) for word in text.split(",")], default=[8192, 32768],
                        help="bytes of a block (8K,32K)")
    parser.add_argument("--count", type=int, default=4096, help="blocks of a set (4096)")
    parser.add_argument("--op", choices=("READ", "WRITE"), help="one direction alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each side in a round (1)")
    parser.add_argument("--settings", metavar="NAME", action="append", default=[],
                        help="NIXL's in every round, instead of the two that a first look finds fastest; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    return parser.parse_args()


def measure(job, owner, mover, *arguments):
    """GB/s of one pair of processes."""
    from world import Client, Failed

    with Client(owner, job, *arguments) as there, Client(mover, job, *arguments) as here:
        times = here.ask(there.receive())
        there.ask("refill")
        wrong = here.ask("again") + there.ask("check")
        if wrong:
            raise Failed(f"{wrong} wrong bytes after a {job.operation} of {job.bytes}")
    return job.bytes / statistics.median(times) / 1e9


def best_settings(job):
    """The two fastest of NIXL's settings."""
    import dataclasses

    import nixl_side
    from world import Failed

    brief = dataclasses.replace(job, seconds=job.seconds / 2)
    found = {}
    for settings in nixl_side.SETTINGS:
        try:
            found[settings] = measure(brief, nixl_side.owner, nixl_side.mover, settings)
            words = f"{found[settings]:.2f} GB/s"
        except Failed as error:
            words = str(error).splitlines()[-1]
        print(f"#   {settings.name}: {words}", flush=True)
    if not found:
        raise Failed("NIXL moved nothing with any of its settings")
    return sorted(found, key=found.get, reverse=True)[:2]


def compare(job, rounds, names):
    import nixl_side
    import shunt_side
    from world import Daemon

    print(f"# NIXL, {job.operation} {job.piece_bytes >> 10} KiB x {job.pieces}", flush=True)
    chosen = [settings for settings in nixl_side.SETTINGS if settings.name in names]
    nixl = {settings: [] for settings in chosen or best_settings(job)}
    shunt = []

    def run_nixl():
        for settings, found in nixl.items():
            found.append(measure(job, nixl_side.owner, nixl_side.mover, settings))

    def run_shunt():
        with Daemon() as daemon:
            shunt.append(measure(job, shunt_side.owner, shunt_side.mover, daemon.socket))

    for number in range(rounds):
        for run in (run_nixl, run_shunt) if number % 2 == 0 else (run_shunt, run_nixl):
            run()
        shown = "; ".join(f"{settings.name} {found[-1]:.2f}" for settings, found in nixl.items())
        print(f"#   round {number + 1}: {shown}; Shunt {shunt[-1]:.2f} GB/s", flush=True)
    medians = {settings: statistics.median(found) for settings, found in nixl.items()}
    settings = max(medians, key=medians.get)
    peer, ours = medians[settings], statistics.median(shunt)
    return {"op": job.operation, "piece_bytes": job.piece_bytes, "pieces": job.pieces, "bytes": job.bytes,
            "rounds": rounds, "peer": nixl_side.version(), "peer_settings": settings.name, "peer_algbw_gbps": peer,
            "algbw_gbps": ours, "ratio": ours / peer, "wrong": 0}


def main():
    arguments = parse()
    enter_environment(arguments.venv)
    import nixl_side
    from blocks import Job
    from world import Failed, program

    if nixl_side.version() is None:
        print(f"bench/compare nixl: {sys.prefix} has no package nixl-cu13; install it: {INSTALL}", file=sys.stderr)
        return NOT_HERE
    names = [settings.name for settings in nixl_side.SETTINGS]
    for name in arguments.settings:
        if name not in names:
            print(f"bench/compare nixl: no settings {name!r}, there are {', '.join(map(repr, names))}", file=sys.stderr)
            return 2
    records = []
    try:
        program("shuntd")
        print(f"# {nixl_side.version()}, UCX backend, host memory, {os.cpu_count()} cores")
        for piece_bytes in arguments.pieces:
            for operation in (arguments.op,) if arguments.op else ("READ", "WRITE"):
                records.append(compare(Job(operation, piece_bytes, arguments.count, arguments.seconds),
                                       arguments.rounds, arguments.settings))
    except Failed as error:
        print(f"bench/compare nixl: {error}", file=sys.stderr)
        return 1
    print(f"# {'op':>6} {'piece':>8} {'pieces':>8} {'NIXL':>8} {'Shunt':>8} {'ratio':>7}  NIXL's settings")
    print(f"# {'':>6} {'(B)':>8} {'':>8} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}")
    for record in records:
        print(f"  {record['op']:>6} {record['piece_bytes']:>8} {record['pieces']:>8} {record['peer_algbw_gbps']:>8.2f} "
              f"{record['algbw_gbps']:>8.2f} {record['ratio']:>7.2f}  {record['peer_settings']}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
