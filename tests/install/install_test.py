"""Installs into a temporary prefix and uses it as a stranger would: install_test.py BUILD_DIR."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else str(ROOT / "build")
CMAKE = os.environ.get("CMAKE", "cmake")
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")

CONSUMER = """
cmake_minimum_required(VERSION 3.22)
project(consumer CXX)
find_package(Shunt 0.1 REQUIRED)
add_executable(consumer all_reduce.cc)
target_compile_features(consumer PRIVATE cxx_std_17)
target_link_libraries(consumer PRIVATE shunt::shunt)
"""


class Prefix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="shunt-install-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.work = pathlib.Path(cls.directory.name)
        first = cls.work / "first"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", str(first)], check=True, stdout=subprocess.DEVNULL)
        # Moved: nothing in it may hold the place where it was installed.
        cls.prefix = first.rename(cls.work / "moved")
        cls.lib = next(cls.prefix.rglob("libshunt.so")).parent
        hidden = ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "PYTHONPATH", "SHUNT_LIBRARY", "SHUNT_SOCKET")
        cls.environment = {key: value for key, value in os.environ.items() if key not in hidden}

    def run_command(self, *command, expect=0, **environment):
        done = subprocess.run(
            [str(word) for word in command], cwd=self.work, env={**self.environment, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
        )
        self.assertEqual(done.returncode, expect, f"{command}: {done.stdout}")
        return done.stdout

    def flags(self):
        output = self.run_command("pkg-config", "--cflags", "--libs", "shunt", PKG_CONFIG_PATH=str(self.lib / "pkgconfig"))
        self.assertIn(str(self.prefix), os.path.normpath(output.split()[0][2:]))
        return output.split()

    def assert_finds_no_daemon(self, program):
        """The README's program, started: it has found its library, and says what to do."""
        socket = str(self.work / "none.sock")
        output = self.run_command(program, expect=1, LD_LIBRARY_PATH=str(self.lib), SHUNT_SOCKET=socket)
        self.assertIn(f"no shuntd answers at {socket}", output)

    def test_every_program_starts(self):
        programs = sorted((self.prefix / "bin").iterdir())
        self.assertEqual([program.name for program in programs], ["shunt-gpu-worker", "shunt-perf", "shunt-sim", "shuntctl", "shuntd"])
        for program in programs:
            self.run_command(program, "--help")
        for name in ("shuntd", "shuntctl"):
            self.assertIn(f"{name} 0.", self.run_command(self.prefix / "bin" / name, "--version"))

    def test_an_installed_benchmark_finds_its_daemon_and_library(self):
        self.run_command(self.prefix / "bin" / "shunt-perf", "all_reduce", "--sizes", "8", "--blocks", "1", "--block-ms", "1")

    def test_c_through_pkg_config(self):
        self.run_command(CC, "-o", "c_host", ROOT / "tests/abi/c_host.c", *self.flags())
        self.run_command(self.work / "c_host", LD_LIBRARY_PATH=str(self.lib))

    def test_cpp_through_pkg_config(self):
        self.run_command(CXX, "-std=c++17", "-o", "all_reduce", ROOT / "examples/all_reduce.cc", *self.flags())
        self.assert_finds_no_daemon(self.work / "all_reduce")

    def test_cpp_through_cmake(self):
        source = self.work / "consumer"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(CONSUMER)
        shutil.copy(ROOT / "examples/all_reduce.cc", source)
        self.run_command(CMAKE, "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.run_command(CMAKE, "--build", source / "build")
        self.assert_finds_no_daemon(source / "build" / "consumer")

    def test_python_with_the_library_named(self):
        try:
            import numpy  # noqa: F401
        except ImportError as missing:
            self.skipTest(str(missing))
        output = self.run_command(
            sys.executable, "-B", "-c", "import shunt; print(shunt.library_version(), shunt.__version__)",
            PYTHONPATH=str(ROOT / "client/python"), SHUNT_LIBRARY=str(self.lib / "libshunt.so"),
        )
        library, package = output.split()
        self.assertEqual(library, package)


if __name__ == "__main__":
    if os.environ.get("SANITIZED"):
        print("skipped: a sanitized library needs its own runtime in every program")
        sys.exit(77)
    unittest.main()
