"""The README's examples are real: the Python one runs, the C++ one is the file in examples/."""

import os
import re
import subprocess
import sys
import tempfile

import support

README = (support.ROOT / "README.md").read_text()


def block(language):
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1, f"README.md has {len(blocks)} {language} blocks, expected 1"
    return blocks[0]


class PythonExample(support.DaemonTest):
    def test_example_runs_as_four_processes(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(block("python"))
            file.flush()
            environment = {**os.environ, "PYTHONPATH": str(support.PACKAGE)}
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-B", file.name, str(rank)],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for rank in range(4)
            ]
            outputs = [rank.communicate(timeout=support.PATIENCE)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * 4, outputs)
        for rank, output in enumerate(outputs):
            self.assertIn(f"rank {rank}: [ 6. 10.]", output)


class CppExample(support.DaemonTest):
    def test_example_runs_as_two_processes(self):
        program = support.BUILD / "bin" / "all_reduce"
        ranks = [
            subprocess.Popen([str(program), str(rank), "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank in range(2)
        ]
        outputs = [rank.communicate(timeout=support.PATIENCE)[0] for rank in ranks]
        self.assertEqual(outputs, ["rank 0: 1\n", "rank 1: 1\n"])

    def test_example_is_the_one_that_is_built(self):
        self.assertEqual(block("cpp"), (support.ROOT / "examples" / "all_reduce.cc").read_text())
