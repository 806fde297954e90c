"""The demo, shortened: four processes and one process train to the same weights."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support


class Demo(unittest.TestCase):
    def test_data_parallel_training_equals_training_in_one_process(self):
        try:
            import sklearn  # noqa: F401
        except ImportError:
            self.skipTest("python3-sklearn is not installed")
        if support.SANITIZER:
            self.skipTest("its script starts programs that need the sanitizer's runtime beside some that have it")
        environment = {**os.environ, "SHUNT_BUILD_DIR": str(support.BUILD), "PYTHON": sys.executable}
        done = subprocess.run(
            [str(support.ROOT / "examples" / "demo" / "run.sh"), "--epochs", "3", "--no-table"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("all ranks hold the same bits: yes", done.stdout)
        self.assertIn("4 processes on 2 nodes", done.stdout)
        speed = "not a speed-up" in done.stdout
        self.assertEqual(speed, len(os.sched_getaffinity(0)) < 4, done.stdout)

    def test_the_script_looks_at_its_arguments_before_it_builds(self):
        # Whatever would install or build comes from PATH: these fail the test if they run.
        with tempfile.TemporaryDirectory() as directory:
            for tool in ("cmake", "dpkg-query", "apt-get"):
                path = Path(directory, tool)
                path.write_text("#!/bin/sh\necho built; exit 9\n")
                path.chmod(0o755)
            environment = {**os.environ, "PATH": directory + ":" + os.environ["PATH"]}
            for arguments, status in ((["--help"], 0), (["--epochs", "1", "-h"], 0), (["--speed"], 2), (["--ranks"], 2)):
                done = subprocess.run(
                    [str(support.ROOT / "scripts" / "demo"), *arguments],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                self.assertEqual(done.returncode, status, done.stdout)
                self.assertIn("usage: scripts/demo", done.stdout)
                self.assertNotIn("built", done.stdout)
