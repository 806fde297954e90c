"""A shuntd on a node of a cluster. The one place that knows the daemon's keys for clusters."""

import os
import pathlib
import socket
import time

CONTROL_PORT = 7000
DATA_PORT = 7001
START_SECONDS = 20


def cluster_config(cluster, node):
    """The [cluster] section of `node`'s configuration file: every node is a static member."""
    members = ", ".join(f'"{member.name}={member.address}:{CONTROL_PORT}"' for member in cluster.nodes)
    lines = [
        "[cluster]",
        'name = "test"',
        f'node = "{node.name}"',
        f'listen = "{node.address}:{CONTROL_PORT}"',
        f'data_listen = "{node.address}:{DATA_PORT}"',
        'membership = "static"',
        f"members = [{members}]",
    ]
    if node.role != "node":
        lines.append(f'role = "{node.role}"')
    return "\n".join(lines) + "\n"


class Shuntd:
    """Starts the daemon (SHUNTD, default: from PATH) on `node` and waits until it takes connections. `config` is TOML
    that goes before the [cluster] section. RuntimeError with the daemon's own words if it ends instead."""

    def __init__(self, node, config="", flags=()):
        directory = pathlib.Path(node.cluster.directory) / node.name
        directory.mkdir(exist_ok=True)
        self.socket = str(directory / "shuntd.sock")
        self.log_path = directory / "log"
        path = directory / "shuntd.toml"
        path.write_text(config + "\n" + cluster_config(node.cluster, node), encoding="utf-8")
        program = os.environ.get("SHUNTD", "shuntd")
        with open(self.log_path, "ab") as log:
            self.process = node.popen(
                [program, "--config", path, "--socket", self.socket, *flags], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"shuntd on node {node.name} ended with {self.process.returncode}: {self.log()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"shuntd on node {node.name} took no connections within {START_SECONDS} s: {self.log()}")
            time.sleep(0.005)  # another process's state: nothing tells when it listens

    def answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def log(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace").strip()

    def stop(self):
        """Its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=60)
