"""The README's examples are real: the Python one runs, the C++ one is the file in examples/."""

import os
import re
import subprocess
import sys
import tempfile

import support

README = (support.ROOT / "README.md").read_text()


def blocks_of(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def block(language, of=1, number=0):
    blocks = blocks_of(language)
    assert len(blocks) == of, f"README.md has {len(blocks)} {language} blocks, expected {of}"
    return blocks[number]


def run_python(text, *arguments, **options):
    """What the text prints as a program."""
    environment = {**os.environ, "PYTHONPATH": str(support.PACKAGE), **support.sanitizer_environment()}
    done = subprocess.run(
        [sys.executable, "-B", "-c", text, *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=support.PATIENCE, **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class PythonExample(support.DaemonTest):
    def test_example_runs_as_four_processes(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(block("python", of=3))
            file.flush()
            environment = {**os.environ, "PYTHONPATH": str(support.PACKAGE), **support.sanitizer_environment()}
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


class TransferExamples(support.DaemonTest):
    def test_the_readmes_example_prints_what_it_says(self):
        self.assertEqual(run_python(block("python", of=3, number=1)), "42.0 7.0\n")

    def test_the_example_of_a_block_store_prints_what_it_says(self):
        self.assertEqual(run_python(block("python", of=3, number=2)), "16 4096 3.0\n")

    def test_the_example_of_the_page_on_transfers_runs(self):
        page = (support.ROOT / "docs" / "transfers.md").read_text()
        example, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        printed = run_python(example)
        self.assertIn("Report(bytes=524288, route='copy'", printed)
        self.assertIn("Notification(sender='', payload=b'taken')", printed)


class FileExample(support.DaemonTest):
    def test_the_example_of_files_reads_and_writes(self):
        page = (support.ROOT / "docs" / "transfers.md").read_text()
        _, example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        with tempfile.TemporaryDirectory() as directory:
            daemon = support.Daemon("--storage-roots", f"models={directory}")
            self.addCleanup(daemon.stop)
            cache = os.path.join(directory, "cache.bin")
            blocks = [os.urandom(4096) for _ in range(1024)]
            with open(cache, "wb") as file:
                file.write(b"".join(blocks))
            run_python(f"import os; os.environ['SHUNT_SOCKET'] = {daemon.socket!r}\n" + example, cwd=directory)
            blocks[5], blocks[6] = blocks[700], blocks[3]
            with open(cache, "rb") as file:
                self.assertEqual(file.read(), b"".join(blocks))
            with open(os.path.join(directory, "step-100"), "rb") as file:
                made = file.read()
            self.assertEqual((len(made), made[:8192]), (4 << 20, blocks[5] + blocks[6]))


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


class Settings(support.unittest.TestCase):
    def test_config_examples_are_fine_on_two_cpus(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("this process has one CPU")
        examples = blocks_of("toml")
        self.assertTrue(examples)
        for example in examples:
            with self.subTest(example), tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(example)
                file.flush()
                command = [str(support.BUILD / "bin" / "shuntd"), "--config", file.name, "--check-config"]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual((done.returncode, done.stdout), (0, "the configuration is fine\n"))


class Migration(support.unittest.TestCase):
    """docs/migration.md names what is there."""

    TEXT = (support.ROOT / "docs" / "migration.md").read_text()

    def test_every_c_name_is_in_the_header(self):
        header = (support.ROOT / "client" / "include" / "shunt.h").read_text()
        names = set(re.findall(r"`(shunt_\w+|SHUNT_(?!JOB)\w+)", self.TEXT))
        self.assertGreater(len(names), 30)
        self.assertEqual({name for name in names if not re.search(rf"\b{name}\b", header)}, set())

    def test_every_python_name_is_in_the_package(self):
        import shunt

        owners = {"comm": shunt.Communicator, "session": shunt.Session, "operation": shunt.Operation, "shunt": shunt}
        names = re.findall(r"\b(comm|session|operation|shunt)\.(?!h\b)(\w+)", self.TEXT)
        self.assertGreater(len(names), 25)
        self.assertEqual([name for owner, name in names if not hasattr(owners[owner], name)], [])


class Help(support.unittest.TestCase):
    def test_help_of_a_communicator_shows_its_properties(self):
        import pydoc

        import shunt

        text = pydoc.render_doc(shunt.Communicator, renderer=pydoc.plaintext)
        for name, words in (("rank", "from 0 to world_size - 1"), ("world_size", "How many ranks"), ("name", "joined under")):
            self.assertIn(f"|  {name}\n", text)
            self.assertIn(words, text)
