"""Completion in the shells that are here, and what usage errors and --help say."""

import shutil
import subprocess
import unittest

from world import FINE, UNREACHABLE, USAGE, ctl

BASH = """
source /dev/stdin
complete_words() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shuntctl; echo "${COMPREPLY[@]}"
}
"""


class Shells(unittest.TestCase):
    def bash(self, *words):
        """What bash offers for the last of the words."""
        script = ctl("completion", "bash").stdout
        quoted = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(["bash", "-c", f"{BASH}\ncomplete_words {quoted}"], input=script, capture_output=True,
                              text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes_commands_options_and_choices(self):
        self.assertEqual(self.bash("shuntctl", "sta"), ["status"])
        for command in ("status", "topology", "links", "sessions", "communicators", "transfers", "explain", "doctor",
                        "drain", "top", "completion", "hang", "trace", "stragglers"):
            self.assertIn(command, self.bash("shuntctl", ""))
        self.assertEqual(self.bash("shuntctl", "drain", "--u"), ["--undo"])
        self.assertEqual(self.bash("shuntctl", "hang", "--old"), ["--older-than"])
        self.assertIn("/etc/passwd", self.bash("shuntctl", "trace", "--out", "/etc/passw"))
        self.assertEqual(self.bash("shuntctl", "links", "--js"), ["--json"])
        self.assertEqual(self.bash("shuntctl", "--socket", "/x", "topology", "--sv"), ["--svg"])
        self.assertEqual(self.bash("shuntctl", "completion", ""), self.bash("shuntctl", "completion", "")[:])
        self.assertIn("zsh", self.bash("shuntctl", "completion", "z"))
        self.assertIn("all_reduce", self.bash("shuntctl", "explain", "all_r"))
        self.assertIn("/etc/passwd", self.bash("shuntctl", "--ca", "/etc/pass"))

    def test_scripts_are_of_their_shells(self):
        for shell in ("bash", "zsh", "fish"):
            script = ctl("completion", shell)
            self.assertEqual(script.returncode, FINE)
            self.assertIn("drain", script.stdout)
            if shutil.which(shell) is None:
                continue
            done = subprocess.run([shell, "-n", "/dev/stdin"], input=script.stdout, capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_usage_errors_have_a_status_of_their_own(self):
        for arguments in (["completion", "tcsh"], ["links", "--interval", "soon"], ["links", "--interval", "0s"],
                          ["top", "--samples", "0"], ["explain"], ["status", "--nonsense"], ["drain", "extra"],
                          ["status", "--address", "127.0.0.1:1"],
                          ["status", "--address", "127.0.0.1:1", "--ca", "/no/ca", "--cert", "x", "--key", "y"]):
            done = ctl(*arguments)
            self.assertEqual(done.returncode, USAGE, (arguments, done.stderr))
            self.assertNotEqual(done.stderr, "", arguments)
        self.assertEqual(ctl("--help").returncode, FINE)
        self.assertEqual(ctl("top", "--once", socket="/no/daemon").returncode, UNREACHABLE)


if __name__ == "__main__":
    unittest.main()
