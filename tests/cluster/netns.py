"""A cluster on one machine: nodes as network namespaces, each with an address, joined by a bridge.

    node n0: eth0 10.77.0.1 ──veth── p0 ┐
    node n1: eth0 10.77.0.2 ──veth── p1 ┼ bridge br0, in a namespace of its own
    node n2: eth0 10.77.0.3 ──veth── p2 ┘

No namespace has a name: each lives as long as this process's descriptor of it or a process inside. The programs
that a node runs are killed by the kernel when this process ends. So nothing stays behind, however it ends, nothing
needs to be found and removed later, and any number of clusters can be there at once: they share no name and no address.

With `rate` each direction of each link is shaped by a token bucket, at the node's end and at the bridge's.
"""

import collections
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import shuntd_node

ROOTLESS = "SHUNT_CLUSTER_ROOTLESS"  # set in the process that enter_user_namespace starts
CLONE_NEWNET = 0x40000000
NODES_MAX = 250
PREFIX = "shunt-cluster-"  # short: a socket's path has 107 bytes
_libc = ctypes.CDLL(None, use_errno=True)

Bytes = collections.namedtuple("Bytes", "received sent")


class Unavailable(Exception):
    """This machine has no network namespaces for us, or lacks a tool; the words say which."""


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


class Namespace:
    """A new network namespace, kept by a descriptor."""

    def __init__(self):
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _call("unshare", CLONE_NEWNET)
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            _call("setns", home, CLONE_NEWNET)
        except PermissionError as error:
            raise Unavailable(f"a network namespace needs root or a user namespace of one's own ({error})") from error
        finally:
            os.close(home)
        self.inode = os.fstat(self.fd).st_ino
        # Other processes open the namespace by this path, while this one lives.
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"

    @contextlib.contextmanager
    def inside(self):
        """Moves the calling thread: sockets that it makes and processes that it starts belong to the namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _call("setns", self.fd, CLONE_NEWNET)
        try:
            yield
        finally:
            _call("setns", home, CLONE_NEWNET)
            os.close(home)

    def run(self, *command, text=None):
        """Runs a tool to its end. Its output; RuntimeError with its words if it failed."""
        try:
            with self.inside():
                done = subprocess.run(command, input=text, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Unavailable(f"{command[0]} is not installed") from error
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def write(self, path, value):
        with self.inside(), open(path, "w", encoding="ascii") as file:
            file.write(value)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Node:
    """One node of a cluster; made by Cluster."""

    INTERFACE = "eth0"

    def __init__(self, cluster, index, role):
        self.cluster = cluster
        self.index = index
        self.name = f"n{index}"
        self.role = role  # "node" or "aggregator"
        self.address = f"10.77.0.{index + 1}"
        self.port = f"p{index}"  # the bridge's end of the link
        self.namespace = Namespace()

    def inside(self):
        return self.namespace.inside()

    def popen(self, command, **options):
        """Starts a program on the node, as subprocess.Popen. It dies with the thread that called this."""
        command = ["setpriv", "--pdeathsig", "KILL", *map(os.fspath, command)]
        with self.inside():
            process = subprocess.Popen(command, **options)
        self.cluster.processes.append(process)
        return process

    def run(self, command, **options):
        """subprocess.run on the node."""
        with self.inside():
            return subprocess.run(command, **options)

    def shuntd(self, config="", flags=()):
        """Starts the daemon on the node: shuntd_node.Shuntd."""
        return shuntd_node.Shuntd(self, config, flags)

    def bytes(self):
        """What has passed the node's interface, as the interface counts it (headers too; once for a segment that
        the kernel hands over whole)."""
        with self.inside(), open("/proc/thread-self/net/dev", encoding="ascii") as lines:
            for line in lines:
                name, _, fields = line.partition(":")
                if name.strip() == self.INTERFACE:
                    fields = fields.split()
                    return Bytes(int(fields[0]), int(fields[8]))
        raise RuntimeError(f"node {self.name} has no interface {self.INTERFACE}")

    def congestion_control(self):
        with self.inside(), open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
            return file.read().strip()


class Cluster:
    """Use with `with`, or close() it. `rate` as tc writes it ("250mbit"); None: as fast as the machine."""

    def __init__(self, nodes=4, rate=None, aggregators=0):
        if nodes < 1 or aggregators < 0 or nodes + aggregators > NODES_MAX:
            raise ValueError(f"{nodes} nodes and {aggregators} aggregators, must be 1 to {NODES_MAX} in all")
        self.rate = None
        self.processes = []
        self.nodes = []
        self._cut = set()
        self.directory, self._lock = _new_directory()
        self.switch = None
        try:
            self.switch = Namespace()
            for index in range(nodes + aggregators):
                self.nodes.append(Node(self, index, "node" if index < nodes else "aggregator"))
            self._wire()
            self.shape(rate)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _wire(self):
        # IPv6 would send packets of its own past the counters.
        lines = ["link set lo up", "link add br0 type bridge", "link set br0 up"]
        self.switch.write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
        for node in self.nodes:
            node.namespace.write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
            lines.append(
                f"link add {node.port} type veth peer name {Node.INTERFACE} netns {node.namespace.path}")
            lines.append(f"link set {node.port} master br0 up")
        self.switch.run("ip", "-batch", "-", text="\n".join(lines) + "\n")
        for node in self.nodes:
            lines = ["link set lo up", f"addr add {node.address}/24 dev {Node.INTERFACE}",
                     f"link set {Node.INTERFACE} up"]
            node.namespace.run("ip", "-batch", "-", text="\n".join(lines) + "\n")

    def shape(self, rate):
        """Sets the rate of every link in both directions; None: unshaped."""
        ends = [(node.namespace, Node.INTERFACE) for node in self.nodes]
        ends += [(self.switch, node.port) for node in self.nodes]
        for namespace, device in ends:
            if rate is not None:
                namespace.run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "256kb",
                              "latency", "20ms")
            elif self.rate is not None:
                namespace.run("tc", "qdisc", "del", "dev", device, "root")
        self.rate = rate

    def partition(self, a, b):
        """Drops every packet between nodes a and b (indices), silently, as a broken switch does."""
        self._cut.add((a, b))
        self._apply_cut()

    def unplug(self, a):
        """Takes node a's link down: the node sees its carrier go."""
        self.switch.run("ip", "link", "set", self.nodes[a].port, "down")

    def heal(self):
        """Undoes every partition and unplug."""
        self._cut.clear()
        self._apply_cut()
        for node in self.nodes:
            self.switch.run("ip", "link", "set", node.port, "up")

    def _apply_cut(self):
        rules = []
        for a, b in self._cut:
            p, q = self.nodes[a].port, self.nodes[b].port
            rules += [f"iifname {p} oifname {q} drop", f"iifname {q} oifname {p} drop"]
        # One transaction; deleting a table that is not there is an error, so it is made first.
        text = "table bridge cut\ndelete table bridge cut\n"
        if rules:
            text += "table bridge cut {\nchain forward {\ntype filter hook forward priority 0; policy accept;\n"
            text += "\n".join(rules) + "\n}\n}\n"
        self.switch.run("nft", "-f", "-", text=text)

    def _inhabitants(self):
        """Processes in the nodes' namespaces: also what our programs started and left."""
        inodes = {node.namespace.inode for node in self.nodes}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if os.stat(f"/proc/{entry}/ns/net").st_ino in inodes:
                        yield int(entry)

    def close(self):
        """Ends the nodes' programs, politely first, and lets the kernel take the namespaces down. Idempotent."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self._inhabitants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.processes.clear()
        for namespace in [node.namespace for node in self.nodes] + [self.switch]:
            if namespace is not None:
                namespace.close()
        self.nodes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock.close()


def _locked(path):
    """The file at `path`, locked until it is closed; None if somebody else has it."""
    file = open(path, "a", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except BlockingIOError:
        file.close()
        return None


def _new_directory():
    """A directory for sockets and logs, with its lock. Files are all that outlives a killed process: those whose lock
    nobody holds any more are removed here."""
    root = tempfile.gettempdir()
    for name in os.listdir(root):
        lock_path = os.path.join(root, name, "lock")
        if name.startswith(PREFIX) and os.access(lock_path, os.W_OK):
            with contextlib.suppress(OSError):
                if lock := _locked(lock_path):
                    shutil.rmtree(os.path.dirname(lock_path), ignore_errors=True)
                    lock.close()
    while True:
        directory = tempfile.mkdtemp(prefix=PREFIX)
        if lock := _locked(os.path.join(directory, "lock")):
            return directory, lock
        # Somebody took it for a dead one's, and is removing it.


def enter_user_namespace():
    """Without root: runs this program again in a user namespace in which it is root. Ends it with 77 and words if the
    machine lets it have no network namespace. Call it first in main."""
    try:
        Namespace().close()
        return
    except Unavailable as error:
        reason = error
    if os.environ.get(ROOTLESS) is None and shutil.which("unshare"):
        probe = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True, text=True)
        if probe.returncode == 0:
            os.environ[ROOTLESS] = "1"
            # --net: where we return from a namespace must be ours too.
            os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", sys.executable, *sys.argv])
        reason = f"{reason}; {probe.stderr.strip()}"
    print(f"skipped: {reason}")
    sys.exit(77)
