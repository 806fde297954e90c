"""shuntctl shows what is there, as tables and as JSON, and says what to do when there is no daemon."""

import json
import unittest

from harness import *

SHUNTCTL = os.environ.get("SHUNTCTL", "shuntctl")


class Shuntctl(DaemonTest):
    def run_ctl(self, *arguments, socket_path=None):
        return subprocess.run(
            [SHUNTCTL, "--socket", socket_path or self.shuntd.socket, *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def json(self, *arguments):
        result = self.run_ctl(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_status(self):
        self.lease("someone")
        status = self.json("status")
        self.assertEqual(status["pid"], self.shuntd.process.pid)
        self.assertGreaterEqual(status["sessions"], 1)
        self.assertFalse(status["stopping"])
        text = self.run_ctl("status").stdout
        self.assertIn(str(self.shuntd.process.pid), text)
        self.assertIn("sessions", text)
        self.assertIn("served by the daemon", text)

    def test_sessions(self):
        session = self.lease('a "name"')
        os.close(session.allocate(1 << 20)[1])
        shown = [s for s in self.json("sessions") if s["session_id"] == session.opened.session_id]
        self.assertEqual(shown[0]["name"], 'a "name"')
        self.assertEqual(shown[0]["pid"], os.getpid())
        self.assertEqual(shown[0]["regions"], 1)
        self.assertIn(str(os.getpid()), self.run_ctl("sessions").stdout)

    def test_communicators(self):
        session = self.lease()
        session.join("shown", 0, 1, job="j1")
        session.send_join("half", 1, 2)
        wait_until(lambda: len([c for c in self.json("communicators") if c["name"] == "half"]) == 1)
        shown = {c["name"]: c for c in self.json("communicators")}
        self.assertEqual(shown["shown"]["state"], "ready")
        self.assertEqual(shown["shown"]["job"], "j1")
        self.assertEqual(shown["half"]["state"], "joining")
        self.assertEqual([m["rank"] for m in shown["half"]["members"]], [1])
        text = self.run_ctl("communicators").stdout
        self.assertIn("shown", text)
        self.assertIn("joining", text)

    def test_a_record_that_is_kept_warm_has_no_id(self):
        session = self.lease()
        session.join("left", 0, 1)
        session.close()
        wait_until(lambda: [c["state"] for c in self.json("communicators") if c["name"] == "left"] == ["idle"])
        row = [line.split() for line in self.run_ctl("communicators").stdout.splitlines() if " left " in line]
        self.assertEqual(row[0][:2], ["-", "left"])

    def test_topology(self):
        topology = self.json("topology")
        self.assertEqual(topology["cpus"], len(os.sched_getaffinity(0)))
        self.assertGreater(topology["memory_bytes"], 0)
        self.assertIn("NUMA", self.run_ctl("topology").stdout)

    def test_doctor(self):
        checks = self.json("doctor")
        self.assertIn("daemon answers", [check["check"] for check in checks])
        self.assertTrue(all(check["result"] in ("ok", "warning") for check in checks), checks)
        self.assertTrue(all(check["advice"] == "" for check in checks if check["result"] == "ok"), checks)
        self.assertEqual(self.run_ctl("doctor").returncode, 0)

    def test_doctor_and_topology_agree_on_memory(self):
        text = self.run_ctl("doctor").stdout
        memory = self.run_ctl("topology").stdout.split(", ")[1].split("\n")[0]
        self.assertIn(f"the machine has {memory}\n", text)

    def test_another_user_is_told_that_it_is_about_permission(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to become another user")
        run = lambda command: subprocess.run(
            [SHUNTCTL, "--socket", self.shuntd.socket, command], capture_output=True, text=True, timeout=30, user=65534
        )
        doctor = run("doctor")
        self.assertEqual(doctor.returncode, 3)
        self.assertIn("socket_mode", doctor.stdout)
        self.assertIn("Permission denied", doctor.stdout)
        self.assertNotIn("start shuntd", doctor.stdout)
        status = run("status")
        self.assertEqual(status.returncode, 2)
        self.assertIn("may not connect", status.stderr)
        self.assertNotIn("no daemon", status.stderr)

    def test_without_a_daemon(self):
        for command in ("status", "sessions", "communicators", "topology", "links", "transfers", "drain"):
            result = self.run_ctl(command, socket_path="/tmp/no/shuntd.sock")
            self.assertEqual(result.returncode, 2)
            self.assertIn("/tmp/no/shuntd.sock", result.stderr)
            self.assertIn("shuntd --socket /tmp/no/shuntd.sock", result.stderr)
        doctor = self.run_ctl("doctor", socket_path="/tmp/no/shuntd.sock")
        self.assertEqual(doctor.returncode, 3)
        self.assertIn("/tmp/no/shuntd.sock", doctor.stdout)

    def test_a_command_that_is_none(self):
        result = self.run_ctl("nonsense")
        self.assertEqual(result.returncode, 1)
        self.assertIn('"nonsense" is no command; known: status', result.stderr)
        self.assertEqual(self.run_ctl().returncode, 1)


if __name__ == "__main__":
    unittest.main()
