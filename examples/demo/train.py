"""The training loop: one rank of a data-parallel job, or the whole job in one process.

Every step, a rank computes the gradient of its share of the batch. As soon as a bucket of it is ready, its
all-reduce starts; the next bucket is computed meanwhile. Then each bucket's result is taken and applied.
"""

import argparse
import time
import zlib
from pathlib import Path

import numpy as np
import shunt
from model import Perceptron

HIDDEN, BLOCKS = 512, 4
BATCH = 96
RATE, MOMENTUM = 0.05, 0.9
TRAINING_IMAGES = 1440  # of 1797; 15 batches an epoch, the other 357 images are for testing


class Reduce:
    """Averages buckets over the ranks while the caller computes; counts the seconds that it could not hide."""

    def __init__(self, comm):
        self._comm = comm
        self._handles = []
        self.exposed_seconds = 0.0

    def start(self, bucket):
        begin = time.perf_counter()
        self._handles.append(self._comm.all_reduce(bucket, "avg", async_op=True))
        self.exposed_seconds += time.perf_counter() - begin

    def take(self, number):
        """Returns when the bucket that was started as the `number`-th has its average."""
        begin = time.perf_counter()
        self._handles[number].wait()
        self.exposed_seconds += time.perf_counter() - begin

    def finish(self):
        self._handles.clear()


class Alone:
    """What Reduce is for a single process: nothing."""

    exposed_seconds = 0.0

    def start(self, bucket):
        pass

    def take(self, number):
        pass

    def finish(self):
        pass


def train(model, reduce, x, labels, test_x, test_labels, epochs, rank, world_size, report):
    share = BATCH // world_size
    velocity = np.zeros_like(model.weights)
    step_seconds, losses = 0.0, []
    steps_per_epoch = TRAINING_IMAGES // BATCH
    order = np.random.default_rng(7)
    for epoch in range(epochs):
        shuffled = order.permutation(TRAINING_IMAGES)  # the same on every rank
        begin, loss = time.perf_counter(), 0.0
        for step in range(steps_per_epoch):
            mine = shuffled[step * BATCH + rank * share :][:share]
            backward = model.backward(x[mine], labels[mine])
            while True:
                try:
                    bucket = next(backward)
                except StopIteration as end:
                    loss += end.value
                    break
                reduce.start(model.gradient[model.buckets[bucket]])
            for number, piece in enumerate(model.buckets):
                reduce.take(number)
                velocity[piece] *= MOMENTUM
                velocity[piece] -= RATE * model.gradient[piece]
                model.weights[piece] += velocity[piece]
            reduce.finish()
        step_seconds += time.perf_counter() - begin
        losses.append(loss / steps_per_epoch)
        report(epoch + 1, losses[-1], (epoch + 1) * steps_per_epoch / step_seconds)
    return {
        "losses": np.array(losses),
        "accuracy": model.accuracy(test_x, test_labels),
        "weights": np.array(model.weights),
        "steps": epochs * steps_per_epoch,
        "seconds": step_seconds,
        "exposed_seconds": reduce.exposed_seconds,
    }


def run_rank(args, data):
    with shunt.connect(name=f"digits rank {args.rank}") as session:
        comm = session.join("digits", args.rank, args.world)
        model = Perceptron(64, HIDDEN, 10, BLOCKS, session.zeros)
        if args.rank == 0:
            model.initialize(seed=1)
        comm.broadcast(model.weights, root=0)

        mean_loss = np.zeros(1)

        def report(epoch, loss, rate):
            mean_loss[0] = loss
            comm.all_reduce(mean_loss, "avg")
            if args.rank == 0 and (epoch == 1 or epoch % 10 == 0):
                accuracy = model.accuracy(data["test_x"], data["test_labels"])
                print(f"  epoch {epoch:3d} of {args.epochs}   loss {mean_loss[0]:.4f}   accuracy {100 * accuracy:5.2f} %   "
                      f"{rate:6.0f} steps/s", flush=True)

        comm.barrier()
        result = train(model, Reduce(comm), **data, epochs=args.epochs, rank=args.rank, world_size=args.world,
                       report=report)
        comm.all_reduce(result["losses"], "avg")
        checksums = comm.all_gather(np.array([zlib.crc32(result["weights"])], np.int64))
        result["ranks_agree"] = bool((checksums == checksums[0]).all())
        return result


def run_alone(args, data):
    model = Perceptron(64, HIDDEN, 10, BLOCKS, lambda count: np.zeros(count, np.float32))
    model.initialize(seed=1)
    return train(model, Alone(), **data, epochs=args.epochs, rank=0, world_size=1, report=lambda *_: None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of digits.npz; results go there")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    data = dict(np.load(args.data / "digits.npz"))
    if args.rank is None:
        np.savez(args.data / "alone.npz", **run_alone(args, data))
        return
    result = run_rank(args, data)
    if args.rank == 0:
        np.savez(args.data / "ranks.npz", **result)


if __name__ == "__main__":
    main()
