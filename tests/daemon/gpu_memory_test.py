"""GPU memory over the lease socket, with a driver without a GPU: registered, listed, freed, and gone with its session.

What the worker has mapped shows in /proc: an allocation of that driver is a memory file of a known name.
"""

import json
import select
import stat
import unittest

from harness import *

SHUNTCTL = os.environ.get("SHUNTCTL", "shuntctl")
WORKER = os.environ["SHUNT_CPU_WORKER"]
UNIT = 2 << 20
CUDA = 4  # REGION_KIND_CUDA


def gpu_uuid(ordinal=0):
    """16 bytes, as the worker's program lists them."""
    lines = subprocess.run([WORKER, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return bytes.fromhex(json.loads(lines[ordinal])["uuid"].removeprefix("GPU-").replace("-", ""))


def allocation(size):
    fd = os.memfd_create("fake_cuda_vmm")
    os.truncate(fd, size)
    return fd


def register(session, size, fd=None, **fields):
    fields.setdefault("device_uuid", gpu_uuid())
    request = api.memory.RegisterDeviceRequest(size_bytes=size, **fields)
    reply, _ = session.call(() if fd is None else (fd,), register_device=request)
    return reply.register_device.region_id


class GpuMemory(DaemonTest):
    FLAGS = ("--gpu-worker", WORKER)

    def status(self):
        result = subprocess.run(
            [SHUNTCTL, "--socket", self.shuntd.socket, "status", "--json"], capture_output=True, text=True, check=True
        )
        return json.loads(result.stdout)["gpus"][0]

    def mappings(self, pid=None):
        with open(f"/proc/{pid or self.status()['pid']}/maps", encoding="ascii") as maps:
            return sum("fake_cuda_vmm" in line for line in maps)

    def setUp(self):
        self.base = self.mappings() if self.status()["pid"] else 0

    def settles(self, count):
        wait_until(lambda: self.mappings() == self.base + count, what=f"{count} mappings in the worker")

    def test_a_registered_allocation_is_a_region_of_its_session(self):
        session, other = self.lease(), self.lease()
        fd = allocation(UNIT)
        self.addCleanup(os.close, fd)
        region = register(session, UNIT, fd)
        self.settles(1)
        host, host_fd = session.allocate(4096)
        os.close(host_fd)
        self.assertNotEqual(region, host)
        shown = self.status()
        self.assertEqual(shown["state"], "ready")
        self.assertEqual((shown["regions"], shown["region_bytes"]), (1, UNIT))
        text = subprocess.run([SHUNTCTL, "--socket", self.shuntd.socket, "status"], capture_output=True, text=True)
        self.assertIn("1 regions of 2.0 MiB; Fake GPU 0, GPU-", text.stdout)
        # Nobody else's, and nobody maps it.
        with self.refused(NOT_FOUND, f"region {region}"):
            other.call(free_region=api.memory.FreeRegionRequest(region_id=region))
        with self.refused(NOT_FOUND, f"region {region}"):
            session.call(map_region=api.memory.MapRegionRequest(region_id=region))
        session.call(free_region=api.memory.FreeRegionRequest(region_id=region))
        self.settles(0)
        with self.refused(NOT_FOUND, f"region {region}"):
            session.call(free_region=api.memory.FreeRegionRequest(region_id=region))

    def test_regions_are_listed_with_their_kind(self):
        session = self.session()
        fd = allocation(2 * UNIT)
        request = api.memory.RegisterDeviceRequest(device_uuid=gpu_uuid(), size_bytes=2 * UNIT)
        packet = api.session.LeaseRequest(id=77, register_device=request)
        socket.send_fds(session.lease.socket, [packet.SerializeToString()], [fd])
        os.close(fd)
        reply = api.session.LeaseReply.FromString(session.lease.socket.recv(1 << 16))
        self.assertEqual((reply.id, reply.code), (77, OK), reply.message)
        region = reply.register_device.region_id
        shown = session.memory.ListRegions(api.memory.ListRegionsRequest(token=session.token)).regions
        self.assertEqual([(r.region_id, r.kind, r.size_bytes) for r in shown], [(region, CUDA, 2 * UNIT)])
        session.memory.FreeRegion(api.memory.FreeRegionRequest(token=session.token, region_id=region))
        self.settles(0)

    def test_memory_of_a_killed_client_goes(self):
        size = 8 << 30
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import harness, os, signal\n"
            "s = harness.LeaseSession(sys.argv[2])\n"
            "fd = os.memfd_create('fake_cuda_vmm'); os.truncate(fd, int(sys.argv[3]))\n"
            "s.call((fd,), register_device=harness.api.memory.RegisterDeviceRequest(\n"
            "    size_bytes=int(sys.argv[3]), device_uuid=bytes.fromhex(sys.argv[4])))\n"
            "print('registered', flush=True)\n"
            "signal.pause()\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(pathlib.Path(__file__).parent), self.shuntd.lease, str(size), gpu_uuid().hex()],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(child.stdout.close)
        self.assertEqual(child.stdout.readline(), "registered\n")
        self.settles(1)
        self.assertEqual(self.status()["region_bytes"], size)
        child.kill()
        child.wait()
        self.settles(0)
        wait_until(lambda: self.status()["regions"] == 0)

    def test_a_killed_worker_is_replaced_with_all_its_memory(self):
        session = self.lease()
        for _ in range(3):
            fd = allocation(UNIT)
            register(session, UNIT, fd)
            os.close(fd)
        before = self.status()
        os.kill(before["pid"], signal.SIGKILL)
        wait_until(lambda: self.status()["restarts"] == before["restarts"] + 1 and self.status()["state"] == "ready")
        self.base = 0
        self.settles(3)
        self.assertIn("was killed by signal 9", self.shuntd.log())

    def test_bad_requests_are_refused_in_words(self):
        session = self.lease()
        fd = allocation(UNIT)
        self.addCleanup(os.close, fd)
        with self.refused(UNIMPLEMENTED, "does not serve that GPU", "GPU-78787878"):
            register(session, UNIT, fd, device_uuid=b"x" * 16)
        with self.refused(FAILED_PRECONDITION, "4194304 bytes of GPU memory", "Fake GPU 0"):
            register(session, 2 * UNIT, fd)
        with self.refused(FAILED_PRECONDITION, "PyTorch: expandable_segments"):
            register(session, UNIT, ipc_handle=b"x" * 64)
        left, right = socket.socketpair()
        with left, right, self.refused(FAILED_PRECONDITION, "is no exported GPU memory"):
            register(session, UNIT, left.fileno())
        with self.refused(INVALID_ARGUMENT, "expected one"):
            register(session, UNIT)

    def test_a_closed_session_keeps_nothing(self):
        session = self.lease()
        fd = allocation(UNIT)
        register(session, UNIT, fd)
        os.close(fd)
        self.settles(1)
        session.call(close_session=api.session.CloseSessionRequest())
        self.settles(0)


class SlowWorker(unittest.TestCase):
    """The worker starts when the test lets it."""

    def setUp(self):
        directory = tempfile.mkdtemp(prefix="shunt-gpu-")
        self.addCleanup(shutil.rmtree, directory)
        self.gate = os.path.join(directory, "gate")
        os.mkfifo(self.gate)
        script = os.path.join(directory, "worker")
        with open(script, "w", encoding="ascii") as out:
            out.write(f'#!/bin/sh\ncase "$1" in --list) ;; *) read line < "{self.gate}";; esac\nexec "{WORKER}" "$@"\n')
        os.chmod(script, os.stat(script).st_mode | stat.S_IXUSR)
        self.shuntd = Shuntd("--gpu-worker", script)
        self.addCleanup(self.shuntd.stop)

    def ask(self):
        session = LeaseSession(self.shuntd.lease)
        self.addCleanup(session.close)
        fd = allocation(UNIT)
        session.send((fd,), register_device=api.memory.RegisterDeviceRequest(size_bytes=UNIT, device_uuid=gpu_uuid()))
        os.close(fd)
        return session

    def test_nobody_else_waits_for_a_registration(self):
        waiting = self.ask()
        # The same connection, and another.
        waiting.send(allocate_region=api.memory.AllocateRegionRequest(size_bytes=4096))
        reply, fds = waiting.receive()
        self.assertEqual(reply.WhichOneof("response"), "allocate_region")
        os.close(fds[0])
        other = LeaseSession(self.shuntd.lease)
        self.addCleanup(other.close)
        os.close(other.allocate(4096)[1])
        with open(self.gate, "w", encoding="ascii") as gate:
            gate.write("go\n")
        reply, _ = waiting.receive()
        self.assertEqual(reply.WhichOneof("response"), "register_device")

    def test_shuntd_stops_while_one_waits(self):
        waiting = self.ask()
        waiting.send(allocate_region=api.memory.AllocateRegionRequest(size_bytes=4096))
        os.close(waiting.receive()[1][0])  # the registration has been taken
        self.assertEqual(self.shuntd.stop(), 0)
        with self.assertRaises((LeaseError, ConnectionError)):
            waiting.receive()


class Ends(unittest.TestCase):
    def test_the_worker_ends_with_shuntd_however_that_ends(self):
        shuntd = Shuntd("--gpu-worker", WORKER)
        self.addCleanup(shuntd.stop)
        session = LeaseSession(shuntd.lease)
        self.addCleanup(session.close)
        fd = allocation(UNIT)
        register(session, UNIT, fd)
        os.close(fd)
        workers = [
            int(child)
            for task in os.listdir(f"/proc/{shuntd.process.pid}/task")
            for child in pathlib.Path(f"/proc/{shuntd.process.pid}/task/{task}/children").read_text().split()
        ]
        self.assertEqual(len(workers), 1)
        watched = os.pidfd_open(workers[0])
        self.addCleanup(os.close, watched)
        shuntd.process.kill()
        self.assertEqual(len(select.select([watched], [], [], 20)[0]), 1)

    def test_a_daemon_without_gpus_says_so(self):
        shuntd = Shuntd("--gpu-enabled", "off")
        self.addCleanup(shuntd.stop)
        session = LeaseSession(shuntd.lease)
        self.addCleanup(session.close)
        fd = allocation(UNIT)
        self.addCleanup(os.close, fd)
        with self.assertRaises(LeaseError) as refused:
            register(session, UNIT, fd)
        self.assertEqual(refused.exception.code, UNIMPLEMENTED)
        self.assertIn('gpu.enabled is "off"', refused.exception.message)


if __name__ == "__main__":
    unittest.main()
