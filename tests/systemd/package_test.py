"""The Debian package on a machine with a real systemd: package_test.py BUILD_DIR packs what is built there."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from machine import *

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
CPACK = os.environ.get("CPACK", "cpack")
# What every installation of anything changes.
OF_DPKG = re.compile(r"(var/lib/(dpkg|apt|PackageKit|systemd(?!/deb-systemd))|var/(log|cache|tmp)|tmp|run|opt|root)(/|$)|"
                     r"etc/(ld\.so\.cache|\.pwd\.lock|(passwd|group|shadow|gshadow)-?)$")


def setUpModule():
    global DEB
    work = tempfile.TemporaryDirectory(prefix="shunt-package-")
    unittest.addModuleCleanup(work.cleanup)
    DEB = pack(work.name)


def pack(directory):
    done = subprocess.run([CPACK, "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", directory],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"cpack: {done.stdout}")
    return next(pathlib.Path(directory).glob("*.deb"))


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(lambda root: shutil.copy(DEB, root / "opt/shunt.deb"))
        cls.addClassCleanup(cls.machine.stop)

    def apt(self, *words):
        return self.machine.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "--no-install-recommends", *words, timeout=120)

    def state(self, unit="shuntd.service"):
        return self.machine.show(unit, "ActiveState", "MainPID", "UnitFileState")

    def files(self):
        """What differs from this system's own files, but for what dpkg keeps of any package."""
        upper = self.machine.files.top / "upper"
        paths = (path.relative_to(upper).as_posix() for path in upper.rglob("*") if not path.is_dir() or path.is_symlink())
        return {path for path in paths if not OF_DPKG.match(path)}

    def connects(self, *groups):
        return self.machine.succeeds("setpriv", "--reuid=10001", "--regid=10001", f"--groups={','.join(groups)}", "shuntctl", "status")

    def test_the_package_says_what_it_needs(self):
        fields = subprocess.run(["dpkg-deb", "--field", DEB], stdout=subprocess.PIPE, text=True, check=True).stdout
        depends = re.search(r"^Depends: (.*)$", fields, re.MULTILINE)[1]
        for name in ("libc6", "libgrpc++", "libsystemd0", "init-system-helpers"):
            self.assertIn(name, depends)
        self.assertNotIn("-dev", depends)
        listing = subprocess.run(["dpkg-deb", "--contents", DEB], stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in listing.splitlines():
            self.assertRegex(line, r"^\S+ root/root ")
            self.assertRegex(line, r"^(d|-|l)r[w-]..?", line)

    def test_from_installation_to_purge(self):
        before = self.files()
        self.apt("install", "/opt/shunt.deb")
        with self.subTest("a daemon runs and is enabled"):
            for unit in ("shuntd.service", "shuntd.socket"):
                state = self.state(unit)
                self.assertEqual((state["ActiveState"], state["UnitFileState"]), ("active", "enabled"), unit)
            self.machine.run("shuntctl", "status")
        with self.subTest("the group may connect, others may not"):
            group = self.machine.run("getent", "group", "shunt").split(":")[2]
            self.assertTrue(self.connects("10001", group))
            self.assertFalse(self.connects("10001"))
        with self.subTest("Python and compilers find the library"):
            self.machine.run("/usr/bin/python3", "-c", "import shunt; shunt.connect().close()")
            self.assertIn("-lshunt", self.machine.run("pkg-config", "--libs", "shunt"))
        with self.subTest("an upgrade keeps the daemon and what the administrator wrote"):
            pid = self.state()["MainPID"]
            config = self.machine.root / "etc/shunt/shuntd.toml"
            self.assertIn('socket_mode = "0660"', config.read_text())
            config.write_text(config.read_text().replace('log_level = "info"', 'log_level = "warn"'))
            self.apt("install", "--reinstall", "/opt/shunt.deb")
            self.assertEqual(self.state()["MainPID"], pid)
            self.assertIn('log_level = "warn"', config.read_text())
        with self.subTest("removal keeps the configuration alone"):
            self.apt("remove", "shunt")
            self.assertNotEqual(self.state()["ActiveState"], "active")
            enabled = ("etc/systemd/system/", "var/lib/systemd/deb-systemd-helper-enabled/")
            left = {path for path in self.files() - before if not path.startswith(enabled)}
            self.assertEqual(left, {"etc/shunt/shuntd.toml"})
            self.assertFalse(self.machine.succeeds("test", "-e", "/run/shunt"))
        with self.subTest("purging leaves nothing but the user"):
            self.apt("purge", "shunt")
            self.assertEqual(self.files() - before, set())
            self.assertFalse((self.machine.root / "etc/shunt").exists())
            self.machine.run("getent", "passwd", "shunt")


class Container(unittest.TestCase):
    """What deploy/k8s/Containerfile does with the package, but for the download."""

    def test_the_package_needs_no_systemd(self):
        files = Files()
        self.addCleanup(files.remove)
        shutil.copy(DEB, files.root / "opt/shunt.deb")
        for name in ("systemd-sysusers", "systemd-tmpfiles", "systemctl"):
            (files.root / "usr/bin" / name).unlink(missing_ok=True)
        script = ("mount -t proc proc /proc; apt-get -y --no-install-recommends install /opt/shunt.deb && "
                  "setpriv --reuid 7071 --regid 7071 --clear-groups shuntd --config /etc/shunt/shuntd.toml --check-config && "
                  "getent passwd shunt")
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "chroot", files.root, "sh", "-ec", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("the configuration is fine", done.stdout)


if __name__ == "__main__":
    if os.environ.get("SANITIZED"):
        skip("a sanitized library needs its own runtime in every program")
    for program in (CPACK, "dpkg-deb", "dpkg-shlibdeps", "apt-get"):
        if shutil.which(program) is None:
            skip(f"needs {program}")
    in_namespace()
    sys.argv[1:] = sys.argv[2:]
    unittest.main(verbosity=2)
