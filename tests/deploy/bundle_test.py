"""Makes a bundle (scripts/bundle) and uses it where none of the libraries that it carries is: bundle_test.py BUILD_DIR."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build")
# What a system without any of our dependencies still has: glibc and its loader.
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl)\.so.*)$")
PROGRAMS = ("shuntd", "shuntctl", "shunt-perf")


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="shunt-bundle-test-")
        cls.addClassCleanup(cls.directory.cleanup)
        work = pathlib.Path(cls.directory.name)
        cls.archive = work / "bundle.tar.gz"
        subprocess.run([ROOT / "scripts/bundle", "--no-build", "--build", BUILD, "--output", cls.archive],
                       check=True, stdout=subprocess.DEVNULL)
        # A root for chroot, too: the bundle lies at /somewhere/shunt in it.
        cls.root = work / "root"
        (cls.root / "somewhere").mkdir(parents=True)
        (cls.root / "tmp").mkdir()
        with tarfile.open(cls.archive) as archive:
            archive.extractall(cls.root / "somewhere")
        cls.bundle = cls.root / "somewhere/shunt"
        cls.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"}

    def elves(self):
        found = [path for path in self.bundle.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
        self.assertGreater(len(found), 20)
        return found

    def resolved(self, path):
        """{library: where the loader finds it}"""
        output = subprocess.run(["ldd", path], check=True, stdout=subprocess.PIPE, text=True, env=self.environment).stdout
        self.assertNotIn("not found", output, path)
        pairs = [line.strip().split(" => ") for line in output.splitlines() if " => " in line]
        return {name: pathlib.Path(where.split(" (")[0]) for name, where in pairs}

    def test_is_small_enough_to_carry(self):
        self.assertLess(self.archive.stat().st_size, 50 << 20)

    def test_every_library_of_a_program_but_glibcs_is_its_own(self):
        programs = [path for path in self.elves() if "bin" in path.parts]
        self.assertLessEqual(set(PROGRAMS), {path.name for path in programs})
        for path in programs:
            for name, where in self.resolved(path).items():
                with self.subTest(program=path.name, library=name):
                    self.assertEqual(GLIBC.match(name) is None, self.bundle in where.parents, where)

    def test_libshunt_leaves_its_host_the_hosts_cxx_library(self):
        for name, where in self.resolved(self.bundle / "lib/libshunt.so").items():
            with self.subTest(library=name):
                shared = GLIBC.match(name) or name.startswith(("libstdc++", "libgcc_s"))
                self.assertEqual(not shared, self.bundle in where.parents, where)

    def test_nothing_in_it_names_the_build(self):
        for path in self.elves():
            run_path = subprocess.run(["patchelf", "--print-rpath", path], check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertRegex(run_path.strip(), r"^\$ORIGIN[^:]*(:\$ORIGIN[^:]*)?$", path)
        self.assertNotIn(str(BUILD), (self.bundle / "gpu-tests.json").read_text())

    def test_runs_where_there_is_only_glibc(self):
        needed = {where for path in self.elves() for name, where in self.resolved(path).items() if GLIBC.match(name)}
        needed.add(pathlib.Path("/lib64/ld-linux-x86-64.so.2"))
        for where in needed:
            if not where.exists():
                continue
            target = self.root / where.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(where.resolve(), target)
        # The loader asks /proc where the program lies.
        (self.root / "proc").mkdir()
        change = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)), "sh", "-c",
                  'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"', self.root]

        def run(*command):
            return subprocess.run([*change, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=self.environment, timeout=60)

        first = run("/somewhere/shunt/bin/shuntd", "--version")
        if re.match("(unshare|mount|chroot): ", first.stdout):
            self.skipTest(f"cannot change the root here: {first.stdout.strip()}")
        self.assertEqual(first.returncode, 0, first.stdout)
        self.assertRegex(first.stdout, r"\d+\.\d+\.\d+")
        for program in PROGRAMS:
            done = run(f"/somewhere/shunt/bin/{program}", "--help")
            self.assertEqual(done.returncode, 0, f"{program}: {done.stdout}")
        for test in json.loads((self.bundle / "gpu-tests.json").read_text()):
            command = [word.replace("@BUNDLE@", "/somewhere/shunt") for word in test["command"]]
            program = self.root / command[0].lstrip("/")
            if not program.exists() or not is_elf(program):
                continue  # the node's own Python
            done = run(*command)  # no GPU is reached from there
            self.assertEqual(done.returncode, 77, f"{test['name']}: {done.stdout}")
            self.assertIn("skipped: ", done.stdout, test["name"])

    def test_gpu_test_prints_a_line_for_each_test(self):
        names = [test["name"] for test in json.loads((self.bundle / "gpu-tests.json").read_text())]
        if not names:
            self.skipTest("built without the CUDA toolkit: no test has the label gpu")
        done = subprocess.run([self.bundle / "scripts/gpu-test"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=self.environment)
        for name in names:
            self.assertRegex(done.stdout, rf"(?m)^{name} +(passed|skipped) +\d+\.\d s  ", done.stdout)
        self.assertIn(f"{len(names)} tests, 0 failed", done.stdout)
        self.assertEqual(done.returncode, 0)

    def test_gpu_test_tells_a_failure(self):
        """In a copy of the bundle's list with programs whose end is known."""
        with tempfile.TemporaryDirectory() as name:
            listed = [{"name": "good", "command": ["/bin/true"]}, {"name": "bad", "command": ["/bin/false"]},
                      {"name": "gone", "command": ["@BUNDLE@/nothing"]}, {"name": "stuck", "command": ["/bin/sleep", "60"]}]
            timeouts = {"stuck": 0.1}
            pathlib.Path(name, "gpu-tests.json").write_text(json.dumps(
                [{**test, "environment": ["A=b"], "timeout": timeouts.get(test["name"], 30)} for test in listed]))
            done = subprocess.run([ROOT / "scripts/gpu-test", name], stdout=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, r"(?m)^good +passed ")
            self.assertRegex(done.stdout, r"(?m)^bad +failed \(1\) ")
            self.assertRegex(done.stdout, r"(?m)^gone +failed \(not started\) ")
            self.assertRegex(done.stdout, r"(?m)^stuck +failed \(over 0.1 s\) ")
            self.assertIn("4 tests, 3 failed, 0 skipped", done.stdout)
            pathlib.Path(name, "gpu-tests.json").unlink()
            done = subprocess.run([ROOT / "scripts/gpu-test", name], stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no unpacked bundle", done.stderr)


if __name__ == "__main__":
    if os.environ.get("SANITIZED"):
        print("skipped: sanitized programs need the sanitizer's libraries")
        sys.exit(77)
    for tool in ("patchelf", "strip", "ldd"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            sys.exit(77)
    unittest.main()
