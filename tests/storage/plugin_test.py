#!/usr/bin/env python3
"""Builds the example plugin as its users would, out of the tree and with nothing but the one header, and runs a
command that finds it in SHUNT_TEST_PLUGIN.

  plugin_test.py CC HEADER_DIRECTORY COMMAND...
"""
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    compiler, headers, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    source = pathlib.Path(__file__).resolve().parent / "plugin" / "memory_store.c"
    with tempfile.TemporaryDirectory(prefix="shunt-plugin-") as directory:
        library = os.path.join(directory, "memory_store.so")
        subprocess.run([compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC",
                        "-I", headers, str(source), "-o", library], check=True)
        sys.exit(subprocess.run(command, env=dict(os.environ, SHUNT_TEST_PLUGIN=library)).returncode)


if __name__ == "__main__":
    main()
