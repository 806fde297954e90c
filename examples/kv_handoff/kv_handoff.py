#!/usr/bin/env python3
"""Hands the KV cache of a request from a prefill process to a decode process, block by block.

    kv_handoff.py            # both, as two processes
    kv_handoff.py decode     # or one each, decode first, on one node or two
    kv_handoff.py prefill

prefill publishes its paged cache, fills some blocks of every layer, and tells decode which. decode pulls these into
blocks that are free in its own cache. The notification that comes with the last byte tells prefill that it may use
them again.
"""

import json
import subprocess
import sys

import numpy as np
import shunt

LAYERS, BLOCKS, TOKENS, WIDTH = 4, 256, 16, 1024  # a block: TOKENS tokens of one layer, keys and values
REQUEST = "request-7"


def content(block):
    """What the model would have computed for a block: one value for each layer, token and number."""
    layers = np.arange(LAYERS, dtype=np.float32)[:, None, None]
    return layers * 1000 + block + np.zeros((LAYERS, TOKENS, WIDTH), np.float32)


def select(cache, blocks):
    """The same blocks of every layer: pieces are numbered layer by layer."""
    return cache.ids(np.array(blocks, np.uint32), repeats=LAYERS, repeat_step=BLOCKS)


def prefill(session):
    agent = session.agent("prefill")
    cache = session.empty((LAYERS, BLOCKS, TOKENS, WIDTH), np.float32)
    agent.publish("kv", shunt.Blocks(cache, axes=2), access="read")

    blocks = [17, 200, 3, 42]  # as a block manager would give them
    for block in blocks:
        cache[:, block] = content(block)
    session.notify("decode", json.dumps({"request": REQUEST, "blocks": blocks}).encode())

    (taken,) = agent.notifications(timeout=30)
    print(f"prefill: {taken.sender} has {taken.payload.decode()}; blocks {blocks} are free", flush=True)


def decode(session):
    agent = session.agent("decode")
    cache = session.zeros((LAYERS, BLOCKS, TOKENS, WIDTH), np.float32)
    mine = session.prepare(shunt.Blocks(cache, axes=2))
    print("decode: waits", flush=True)

    (message,) = agent.notifications(timeout=30)
    request = json.loads(message.payload)
    free = list(range(len(request["blocks"])))
    theirs = session.fetch("prefill", "kv")  # once for each prefill process, not for each request
    transfer = session.pull(select(mine, free), select(theirs, request["blocks"]),
                            notify=request["request"].encode(), priority="latency")
    transfer.wait(timeout=30)

    report = transfer.report()
    whole = all((cache[:, here] == content(there)).all() for here, there in zip(free, request["blocks"]))
    print(f"decode: {report.bytes >> 10} KiB by {report.route} in {report.moved * 1e6:.0f} us, "
          f"{'as they were sent' if whole else 'WRONG'}", flush=True)
    return 0 if whole else 1


def both():
    decoder = subprocess.Popen([sys.executable, __file__, "decode"], stdout=subprocess.PIPE, text=True)
    print(decoder.stdout.readline(), end="")  # it is there: prefill can name it
    prefiller = subprocess.run([sys.executable, __file__, "prefill"])
    print(decoder.communicate()[0], end="")
    return prefiller.returncode or decoder.returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(both())
    with shunt.connect(name=sys.argv[1]) as own_session:
        sys.exit({"prefill": prefill, "decode": decode}[sys.argv[1]](own_session))
