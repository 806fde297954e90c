"""The units as files: alike where they must be, and with little left open."""

import pathlib
import re
import shutil
import subprocess
import unittest

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd"
OPERATE = UNITS.parents[1] / "docs/operate.md"


def settings(name):
    """Lines without comments; a template's as those of an instance called shuntd would be."""
    lines = [line for line in (UNITS / name).read_text().splitlines() if line and not line.startswith("#")]
    return [line.replace(" (%i)", "").replace("shuntd@%i.socket", "shuntd.socket").replace("/run/shunt/%i/", "/run/shunt/")
            .replace("%i", "shuntd") for line in lines]


class Units(unittest.TestCase):
    def test_templates_differ_by_the_name_alone(self):
        for kind in ("service", "socket"):
            self.assertEqual(settings(f"shuntd@.{kind}"), settings(f"shuntd.{kind}"))

    def test_sockets_lie_where_the_example_configuration_has_them(self):
        socket = re.search(r'^socket = "(.*)"$', (UNITS / "shuntd.toml.example").read_text(), re.MULTILINE)[1]
        lines = settings("shuntd.socket")
        self.assertIn(f"ListenStream={socket}", lines)
        self.assertIn(f"ListenSequentialPacket={socket}.lease", lines)

    def test_the_sandbox_leaves_little_open_and_the_document_says_what(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("needs systemd-analyze")
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=40", UNITS / "shuntd.service"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        exposure = re.search(r"Overall exposure level for shuntd.service: ([\d.]+)", done.stdout)[1]
        document = OPERATE.read_text()
        self.assertIn(f"gives {exposure} of 10", document)
        left = re.findall(r"^\u2717 ([^=\s]+)=(\S*) ", done.stdout, re.MULTILINE)
        self.assertGreater(len(left), 5, done.stdout)
        for key, value in left:
            # Of a filter what it lets through ("~AF_(INET|INET6)"), else the key.
            prefix, _, several = value.lstrip("~").partition("(")
            words = [prefix + word for word in several.rstrip(")").split("|")] if value.startswith("~") else [key]
            for word in words:
                self.assertIn(f"`{word}`", document, f"{key}={value} is open, and the document does not say why")


if __name__ == "__main__":
    unittest.main()
