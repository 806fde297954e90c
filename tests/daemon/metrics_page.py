"""A page of metrics as a scrape has it, and a daemon that has one."""

import collections
import re
import shutil
import socket
import subprocess
import sys
import urllib.request

Sample = collections.namedtuple("Sample", "name labels value")
_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


class Page:
    def __init__(self, text):
        self.text = text
        self.types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        self.help = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
        self.samples = []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, labels, value = _LINE.match(line).groups()
                self.samples.append(Sample(name, dict(_LABEL.findall(labels or "")), float(value)))

    def values(self, name, **labels):
        return [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]

    def value(self, name, **labels):
        """Of the one sample; the sum of several would hide a label that is wrong."""
        values = self.values(name, **labels)
        assert len(values) == 1, f"{len(values)} samples {name} {labels}"
        return values[0]

    def total(self, name, **labels):
        return sum(self.values(name, **labels))


def scrape(address, node=None):
    """The page at `address`, "HOST:PORT"; from inside a node of netns.py if one is given."""
    def get():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            return Page(answer.read().decode())

    if node is None:
        return get()
    with node.inside():
        return get()


def ask(address, data):
    """What comes back for these bytes, until the other side closes."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as connection:
        connection.sendall(data)
        got = b""
        while piece := connection.recv(1 << 16):
            got += piece
        return got


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % probe.getsockname()[1]


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            sys.exit(77)


def promtool(*arguments, text=None, cwd=None):
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False, cwd=cwd)
