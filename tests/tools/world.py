"""What the tests of shuntctl share: daemons on loopback, and the program with what it prints."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for directory in ("python", "cluster"):
    sys.path.insert(0, os.path.join(HERE, "..", directory))
import support  # noqa: E402, F401  (finds the package)

SHUNTCTL = os.environ["SHUNTCTL"]

FINE, USAGE, UNREACHABLE, TROUBLE, REFUSED = range(5)


def ctl(*arguments, socket=None, **options):
    """The finished program."""
    where = ["--socket", socket] if socket else []
    options = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run([SHUNTCTL, *where, *arguments], check=False, **options)


def ctl_json(*arguments, socket=None, status=FINE):
    done = ctl(*arguments, "--json", socket=socket)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)
