#!/usr/bin/env python3
"""Runs a command against a real S3 server: Ceph's gateway over one monitor and one object store in memory, all on
loopback and in a directory that is removed afterwards. The command finds its addresses in SHUNT_TEST_S3 and
SHUNT_TEST_S3_TLS, and who signed its certificate in SHUNT_TEST_S3_CA. SHUNT_TEST_S3_BYTES is what the store may
hold (1 GiB).

  s3_server.py COMMAND...    exits with the command's code; 77 where the packages are missing
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

PROGRAMS = ["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "openssl", "radosgw", "radosgw-admin"]

CONFIG = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon2},v1:127.0.0.1:{mon1}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = {first}
ms bind port max = {last}
auth allow insecure global id reclaim = false
paxos propose interval = 0.02
paxos min wait = 0.01
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon max pg per osd = 1000
run dir = {dir}/run
admin socket = {dir}/run/$name.asok
pid file = {dir}/run/$name.pid
log file = {dir}/log/$name.log
mon cluster log file = {dir}/log/cluster.log
keyring = {dir}/keyring
crash dir = {dir}/crash
[mon]
mon data = {dir}/mon
mon data avail crit = 1
mon allow pool size one = true
[osd]
osd data = {dir}/osd
osd objectstore = memstore
memstore device bytes = {memory}
osd class load list = *
osd class default list = *
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{http} ssl_endpoint=127.0.0.1:{https} ssl_certificate={dir}/tls.pem
rgw dns name = s3.localhost
rgw thread pool size = 16
rgw data = {dir}/rgw
rgw run sync thread = false
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def free_ports(count):
    """Ports that nothing listened on a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Server:
    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        for name in ("mon", "osd", "rgw", "log", "run", "crash"):
            (self.dir / name).mkdir()
        self.mon1, self.mon2, self.http, self.https = free_ports(4)
        base = 20000 + os.getpid() % 300 * 100
        self.fsid = str(uuid.uuid4())
        (self.dir / "ceph.conf").write_text(CONFIG.format(
            fsid=self.fsid, dir=directory, mon1=self.mon1, mon2=self.mon2, http=self.http, https=self.https,
            first=base, last=base + 99, memory=os.environ.get("SHUNT_TEST_S3_BYTES", 1 << 30)))
        self.environment = dict(os.environ, CEPH_CONF=str(self.dir / "ceph.conf"))
        self.running = []

    def call(self, *command):
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")

    def start(self, name, *command):
        with open(self.dir / "log" / f"{name}.out", "w") as out:
            self.running.append((name, subprocess.Popen(command, env=self.environment, stdout=out, stderr=out)))

    def make_certificate(self):
        key, certificate = self.dir / "key.pem", self.dir / "ca.pem"
        self.call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                  "-days", "2", "-subj", "/CN=shunt test", "-addext", "subjectAltName=IP:127.0.0.1",
                  "-keyout", str(key), "-out", str(certificate))
        (self.dir / "tls.pem").write_text(key.read_text() + certificate.read_text())

    def up(self):
        self.make_certificate()
        keyring, monmap = str(self.dir / "keyring"), str(self.dir / "monmap")
        everything = [arg for who in ("mon", "osd", "mgr") for arg in ("--cap", who, "allow *")]
        self.call("ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.call("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", *everything)
        self.call("ceph-authtool", keyring, "--gen-key", "-n", "osd.0", "--cap", "mon", "allow profile osd",
                  "--cap", "osd", "allow *")
        self.call("ceph-authtool", keyring, "--gen-key", "-n", "client.rgw", "--cap", "mon", "allow rw",
                  "--cap", "osd", "allow rwx")
        self.call("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a",
                  f"[v2:127.0.0.1:{self.mon2},v1:127.0.0.1:{self.mon1}]", monmap)
        self.call("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self.start("mon", "ceph-mon", "-i", "a", "-f")
        osd = str(uuid.uuid4())
        self.call("ceph", "osd", "new", osd)
        self.call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.start("osd", "ceph-osd", "-i", "0", "-f")
        self.start("rgw", "radosgw", "-n", "client.rgw", "-f")
        self.wait_for_port(self.http)
        self.call("radosgw-admin", "-n", "client.rgw", "user", "create", "--uid=t", "--display-name=t",
                  "--access-key=SHUNTTESTKEY", "--secret-key=shunt-test-secret")

    def wait_for_port(self, port):
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for name, process in self.running:
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}: "
                                       + (self.dir / "log" / f"{name}.out").read_text()[-2000:])
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"nothing listens on port {port} after 90 s")

    def down(self):
        # The gateway first: without the others it would wait for them.
        for _, process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        skip(f"{', '.join(missing)} not installed (packages radosgw, ceph-mon, ceph-osd, ceph-common)")
    with tempfile.TemporaryDirectory(prefix="shunt-s3-") as directory:
        server = Server(directory)
        try:
            server.up()
            environment = dict(os.environ, SHUNT_TEST_S3=f"http://127.0.0.1:{server.http}",
                               SHUNT_TEST_S3_TLS=f"https://127.0.0.1:{server.https}",
                               SHUNT_TEST_S3_CA=f"{directory}/ca.pem")
            code = subprocess.run(sys.argv[1:], env=environment).returncode
        finally:
            server.down()
    sys.exit(code if code >= 0 else 1)


if __name__ == "__main__":
    main()
