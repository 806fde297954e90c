"""Runs one module of tests: run.py MODULE [unittest's arguments]. Exit code 77 means skipped."""

import sys

SKIPPED = 77

if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error} (Debian: python3-numpy)")
        sys.exit(SKIPPED)

    import support

    support.main(module=sys.argv.pop(1))
