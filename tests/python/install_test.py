"""pip installs the package without a network, a compiler or a trace in the source tree."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import support


class Install(support.DaemonTest):
    def test_installed_package_works_and_carries_its_types(self):
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "python")
            shutil.copytree(support.PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            environment = Path(directory, "venv")
            python = environment / "bin" / "python"

            def run(*command):
                clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
                clean.update(support.sanitizer_environment())
                done = subprocess.run(
                    command, cwd=directory, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
                self.assertEqual(done.returncode, 0, done.stdout)
                return done.stdout

            run(sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(environment))
            run(str(python), "-m", "pip", "install", "--no-index", "--no-build-isolation", str(source))
            code = (
                "import shunt, pathlib\n"
                "package = pathlib.Path(shunt.__file__).parent\n"
                "assert (package / 'py.typed').exists()\n"
                "with shunt.connect() as session:\n"
                "    comm = session.join('installed', 0, 1)\n"
                "    print(package, comm.all_reduce(session.array([1.0, 2.0])))\n"
            )
            output = run(str(python), "-c", code)
            self.assertIn(str(environment), output)
            self.assertIn("[1. 2.]", output)

    def test_package_and_library_are_of_one_version(self):
        self.assertEqual(support.shunt.library_version(), support.shunt.__version__)
        self.assertIn(f'version = "{support.shunt.__version__}"', (support.PACKAGE / "pyproject.toml").read_text())
