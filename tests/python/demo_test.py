"""The demo, shortened: four processes and one process train to the same weights."""

import os
import subprocess
import sys
import unittest

import support


class Demo(unittest.TestCase):
    def test_data_parallel_training_equals_training_in_one_process(self):
        try:
            import sklearn  # noqa: F401
        except ImportError:
            self.skipTest("python3-sklearn is not installed")
        environment = {**os.environ, "SHUNT_BUILD_DIR": str(support.BUILD), "PYTHON": sys.executable}
        done = subprocess.run(
            [str(support.ROOT / "examples" / "demo" / "run.sh"), "--epochs", "3", "--no-table"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("all ranks hold the same bits: yes", done.stdout)
