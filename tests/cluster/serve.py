#!/usr/bin/env python3
"""A cluster for a program in another language: serve.py --nodes N [--rate 250mbit] [--aggregators K].

Reads a request a line and answers each with one line, "ok ..." or "error ...". The cluster is gone when its input
ends. bench/harness/net_cluster.cc is the other side.

    nodes                        ok PATH ADDRESS INTERFACE ROLE   for each node, all on one line
    shape RATE|none              ok
    bytes                        ok RECEIVED SENT                 for each node
    iperf FROM TO SECONDS        ok GBPS CONGESTION_CONTROL
    ucx TEST FROM TO BYTES COUNT ok GBPS
    transport PROGRAM FROM TO BYTES COUNT    ok GBPS
    config NODE FILE             ok                               writes the node's shuntd configuration
"""

import argparse
import pathlib
import sys

import measure
import netns
from shuntd_node import cluster_config


def answer(cluster, verb, arguments):
    """The words after "ok"."""
    if verb == "nodes":
        return [word for n in cluster.nodes for word in (n.namespace.path, n.address, n.INTERFACE, n.role)]
    if verb == "shape":
        return cluster.shape(None if arguments[0] == "none" else arguments[0]) or []
    if verb == "bytes":
        return [count for node in cluster.nodes for count in node.bytes()]
    if verb == "iperf":
        return measure.iperf(cluster, *map(int, arguments))
    if verb == "ucx":
        return [measure.ucx(cluster, arguments[0], *map(int, arguments[1:]))]
    if verb == "transport":
        return [measure.transport(cluster, arguments[0], *map(int, arguments[1:]))]
    if verb == "config":
        text = cluster_config(cluster, cluster.nodes[int(arguments[0])])
        pathlib.Path(arguments[1]).write_text(text, encoding="utf-8")
        return []
    raise ValueError(f"no request {verb!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rate")
    parser.add_argument("--aggregators", type=int, default=0)
    arguments = parser.parse_args()

    def reply(*words):
        print(*words, flush=True)

    try:
        cluster = netns.Cluster(arguments.nodes, arguments.rate, arguments.aggregators)
    except (netns.Unavailable, OSError, RuntimeError, ValueError) as error:
        reply("error", *str(error).split())
        return 1
    with cluster:
        reply("ok")
        for line in sys.stdin:
            verb, *words = line.split() or [""]
            try:
                reply("ok", *answer(cluster, verb, words))
            except Exception as error:  # whatever it is: the other side prints it
                reply("error", *f"{verb}: {error}".split())
    return 0


if __name__ == "__main__":
    sys.exit(main())
