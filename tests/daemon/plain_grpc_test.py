"""The example without libshunt gives right results, alone and beside others."""

import unittest

from harness import *


class PlainGrpc(DaemonTest):
    def run_example(self, *arguments):
        example = ROOT / "examples" / "plain_grpc.py"
        return subprocess.Popen(
            [sys.executable, str(example), "--socket", self.shuntd.socket, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process, ranks):
        output, _ = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, output)
        self.assertEqual(output.count("is right"), ranks, output)

    def test_two_groups_at_once(self):
        one = self.run_example("--ranks", "3", "--count", "1000001")
        two = self.run_example("--ranks", "2", "--count", "5")
        self.finish(one, 3)
        self.finish(two, 2)


if __name__ == "__main__":
    unittest.main()
