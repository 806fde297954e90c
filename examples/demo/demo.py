"""Trains a digit classifier with four processes on two nodes through Shunt, then with one process, and compares."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import train
from sklearn.datasets import load_digits

TRAIN = Path(__file__).with_name("train.py")


def write_digits(directory):
    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(x))
    split = train.TRAINING_IMAGES
    x, labels = x[order], labels[order]
    np.savez(directory / "digits.npz", x=x[:split], labels=labels[:split], test_x=x[split:], test_labels=labels[split:])
    return len(x)


def run(commands, sockets=()):
    """Runs the commands side by side, in equal parts on the daemons of `sockets`. If one fails the others are stopped,
    and so is the demo."""
    processes = []
    for number, command in enumerate(commands):
        socket = {"SHUNT_SOCKET": sockets[number * len(sockets) // len(commands)]} if sockets else {}
        processes.append(subprocess.Popen(command, env={**os.environ, **socket}))
    try:
        waiting = list(processes)
        while waiting:
            for process in list(waiting):
                try:
                    status = process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    continue
                waiting.remove(process)
                if status:
                    sys.exit(f"demo: {' '.join(process.args)} ended with status {status}")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--socket", action="append", required=True, help="a daemon's; once for each node")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    if args.ranks < 1 or train.BATCH % args.ranks:
        sys.exit(f"demo: --ranks is {args.ranks}, expected a divisor of the batch of {train.BATCH}")

    images = write_digits(args.directory)
    command = [sys.executable, str(TRAIN), "--data", str(args.directory), "--epochs", str(args.epochs)]
    nodes = min(len(args.socket), args.ranks)
    print(f"{args.ranks} processes on {nodes} nodes (as many daemons on this machine, TCP between them) train\na perceptron (64-{train.HIDDEN}-10) on {images} handwritten digits; batches of "
          f"{train.BATCH},\ngradients all-reduced through Shunt in {train.BLOCKS + 1} buckets:", flush=True)
    begin = time.perf_counter()
    run([[*command, "--rank", str(rank), "--world", str(args.ranks)] for rank in range(args.ranks)],
        args.socket)
    print(f"  done in {time.perf_counter() - begin:.1f} s; the same training in one process ...", flush=True)
    run([command])

    with np.load(args.directory / "ranks.npz") as ranks, np.load(args.directory / "alone.npz") as alone:
        return report(args.ranks, ranks, alone)


def report(ranks_count, ranks, alone):
    steps = int(ranks["steps"])
    exposed_us = float(ranks["exposed_seconds"]) / steps * 1e6
    step_us = float(ranks["seconds"]) / steps * 1e6
    difference = float(np.abs(ranks["weights"] - alone["weights"]).max())
    largest = float(np.abs(alone["weights"]).max())
    name = f"{ranks_count} processes"
    print(f"""
                         {name:>14}    one process
  final accuracy         {100 * float(ranks['accuracy']):12.2f} %   {100 * float(alone['accuracy']):10.2f} %
  final loss             {float(ranks['losses'][-1]):14.6f}   {float(alone['losses'][-1]):12.6f}
  steps a second         {steps / float(ranks['seconds']):14.0f}   {steps / float(alone['seconds']):12.0f}
  communication not hidden: {exposed_us:.0f} us of a step of {step_us:.0f} us, in {os.cpu_count()} CPUs (includes waiting for other ranks)
  largest difference of a weight: {difference:.1e} (largest weight {largest:.2f}); all ranks hold the same bits: {'yes' if ranks['ranks_agree'] else 'NO'}
""", flush=True)
    cpus = len(os.sched_getaffinity(0))
    if cpus < ranks_count:
        print(f"With {cpus} CPUs for {ranks_count} processes this shows that the results are right, not a speed-up.\n",
              flush=True)
    same = (
        bool(ranks["ranks_agree"])
        and float(ranks["accuracy"]) == float(alone["accuracy"])
        and np.allclose(ranks["losses"], alone["losses"], rtol=1e-3, atol=1e-5)
        and difference <= 1e-3 * largest
    )
    if not same:
        print("demo: the two trainings differ by more than rounding", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
