"""What a link between two nodes of a cluster carries, by programs that are not ours."""

import collections
import contextlib
import json
import os
import re
import shutil
import subprocess
import time

from netns import Unavailable

PORT = 5201
START_SECONDS = 20
Link = collections.namedtuple("Link", "gbps congestion_control")


def _listens(node, port):
    for table in ("tcp", "tcp6"):
        with node.inside(), open(f"/proc/thread-self/net/{table}", encoding="ascii") as lines:
            if any(fields[1].endswith(f":{port:04X}") and fields[3] == "0A" for fields in map(str.split, lines)):
                return True
    return False


@contextlib.contextmanager
def _server(node, command, port, **options):
    """Runs a server while the block does; the block begins when it listens."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    process = node.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _listens(node, port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not listen on node {node.name}, port {port}")
            time.sleep(0.005)  # another process's state: nothing tells when it listens
        yield process
    finally:
        process.kill()
        process.wait()


def iperf(cluster, a, b, seconds):
    """One TCP stream from node a to node b (iperf3 -P 1 -l 1M), its first second left out. `gbps`: received payload in
    10^9 bytes a second."""
    sender, receiver = cluster.nodes[a], cluster.nodes[b]
    command = ["iperf3", "-p", str(PORT)]
    with _server(receiver, [*command, "-s", "-1"], PORT):
        done = sender.run(
            [*command, "-c", receiver.address, "-P", "1", "-l", "1M", "-O", "1", "-t", str(seconds), "-J"],
            capture_output=True, text=True, timeout=seconds + 30)
    result = json.loads(done.stdout)
    if "error" in result or done.returncode != 0:
        raise RuntimeError(f"iperf3 from {sender.name} to {receiver.name}: {result.get('error', done.stderr)}")
    return Link(result["end"]["sum_received"]["bits_per_second"] / 8e9, sender.congestion_control())


def ucx(cluster, test, a, b, size, count):
    """UCX over TCP from node a to node b, `count` messages of `size` (ucx_perftest -t `test`: tag_bw, ucp_put_bw,
    ucp_am_bw). 10^9 bytes a second."""
    sender, receiver = cluster.nodes[a], cluster.nodes[b]
    environment = {**os.environ, "UCX_TLS": "tcp", "UCX_NET_DEVICES": sender.INTERFACE, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    command = ["ucx_perftest", "-p", str(PORT + 1)]
    with _server(receiver, command, PORT + 1, env=environment):
        done = sender.run(
            [*command, receiver.address, "-t", test, "-s", str(size), "-n", str(count), "-w", "50", "-f"],
            capture_output=True, text=True, env=environment, timeout=120)
    # The last line: iterations; typical, average, overall microseconds; average, overall MiB a second; messages a
    # second twice. Versions differ in the first word.
    numbers = re.findall(r"\d+(?:\.\d+)?", done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else []
    if done.returncode != 0 or len(numbers) < 8:
        raise RuntimeError(f"ucx_perftest from {sender.name} to {receiver.name}: {done.stdout}{done.stderr}")
    return float(numbers[-3]) * (1 << 20) / 1e9


def transport(cluster, program, a, b, size, count):
    """Shunt's TCP transport alone from node a to node b, `count` messages of `size`. 10^9 bytes a second."""
    sender, receiver = cluster.nodes[a], cluster.nodes[b]
    arguments = [str(PORT + 2), "-1", str(count), str(size)]
    with _server(receiver, [program, "b", receiver.address, *arguments], PORT + 2):
        done = sender.run([program, "a", receiver.address, *arguments], capture_output=True, text=True, timeout=120)
    found = re.search(r"one way .*: ([0-9.]+) GB/s", done.stdout)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{program} from {sender.name} to {receiver.name}: {done.stdout}{done.stderr}")
    return float(found.group(1))
