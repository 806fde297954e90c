"""shuntctl against a daemon elsewhere: who has a certificate that the operator named may look, and nobody else."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from world import FINE, REFUSED, UNREACHABLE, ctl, support

from loopback import Daemon, free_ports  # noqa: E402


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(directory):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=test", "-keyout", directory / "ca.key", "-out", directory / "ca.pem")


def certificate(directory, name):
    """Of the authority, for `name`."""
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.csr")
    extensions = directory / f"{name}.ext"
    extensions.write_text(f"subjectAltName=DNS:{name}\n")
    openssl("x509", "-req", "-in", directory / f"{name}.csr", "-CA", directory / "ca.pem", "-CAkey", directory / "ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", directory / f"{name}.pem")


class Remote(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.directory = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory(prefix="shunt-remote-")))
        authority(cls.directory)
        for name in ("a", "ops", "intern"):
            certificate(cls.directory, name)
        other = cls.directory / "other"
        other.mkdir()
        authority(other)
        certificate(other, "ops")
        cls.daemons, cls.addresses = {}, {}
        # "closed": as every daemon is that names nobody.
        for name, admin in (("open", '[admin]\nremote = ["boss", "ops"]'), ("closed", "")):
            port = free_ports(1)[0]
            cls.addresses[name] = f"127.0.0.1:{port}"
            lines = [f'listen = "127.0.0.1:{port}"', f'members = ["a=127.0.0.1:{port}"]']
            lines += [f'tls_{key} = "{cls.directory / file}"' for key, file in
                      (("cert", "a.pem"), ("key", "a.key"), ("ca", "ca.pem"))]
            sub = cls.directory / name
            sub.mkdir()
            cls.daemons[name] = Daemon(sub, "a", "\n".join([*lines, admin]))
            cls.stack.callback(cls.daemons[name].stop)

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def ask(self, *arguments, daemon="open", who="ops", directory=None, node="a"):
        directory = directory or self.directory
        return ctl(*arguments, "--address", self.addresses[daemon], "--ca", str(self.directory / "ca.pem"), "--cert",
                   str(directory / f"{who}.pem"), "--key", str(directory / f"{who}.key"), "--node", node)

    def test_a_certificate_that_is_named_sees_what_root_sees(self):
        status = self.ask("status", "--json")
        self.assertEqual(status.returncode, FINE, status.stderr)
        shown = json.loads(status.stdout)
        self.assertEqual(shown["pid"], self.daemons["open"].process.pid)
        self.assertEqual(shown["cluster"]["node"], "a")
        for command in ("sessions", "communicators", "transfers", "links", "topology"):
            done = self.ask(command)
            self.assertEqual((done.returncode, done.stderr), (FINE, ""), command)
        doctor = self.ask("doctor", "--json")
        self.assertEqual(doctor.returncode, FINE, doctor.stdout)
        self.assertNotIn("kernel", doctor.stdout)  # of this machine, which is not the one that is asked about

    def test_it_changes_nothing(self):
        done = self.ask("drain")
        self.assertEqual(done.returncode, REFUSED)
        self.assertIn("on its node", done.stderr)
        self.assertEqual(json.loads(self.ask("status", "--json").stdout)["state"], "serving")

    def test_another_certificate_of_the_cluster_may_not_look(self):
        for who in ("intern", "a"):  # a's own, too: a node is no operator
            done = self.ask("status", who=who)
            self.assertEqual(done.returncode, REFUSED)
            self.assertIn(f"made out for {who}, whom the daemon's admin.remote does not name", done.stderr)

    def test_another_authority_may_not_even_connect(self):
        done = self.ask("status", directory=self.directory / "other")
        self.assertEqual(done.returncode, UNREACHABLE)
        self.assertIn(self.addresses["open"], done.stderr)

    def test_a_daemon_that_names_nobody_serves_nobody(self):
        done = self.ask("status", daemon="closed")
        self.assertEqual(done.returncode, REFUSED)
        self.assertIn("admin.remote", done.stderr)

    def test_the_daemon_must_be_whom_its_certificate_says(self):
        done = self.ask("status", node="b")
        self.assertEqual(done.returncode, UNREACHABLE)
        self.assertIn("--node", done.stderr)

    def test_names_without_tls_are_a_configuration_error(self):
        config = self.directory / "plain.toml"
        config.write_text('[admin]\nremote = ["ops"]\n[cluster]\nlisten = "127.0.0.1:7071"\n')
        done = subprocess.run([os.environ["SHUNTD"], "--config", config, "--check-config"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("admin.remote", done.stderr)
        self.assertIn("tls_cert", done.stderr)


if __name__ == "__main__":
    unittest.main()
