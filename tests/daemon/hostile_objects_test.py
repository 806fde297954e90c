"""Object stores that stall, refuse, cut off and lie, as a session of the daemon sees them; and what the daemon finds
wrong with its configuration of them."""

import http.server
import os
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

from files_test import BLOCK, Client, ids, s
from harness import *

SIZE = 16 * BLOCK
UNAUTHENTICATED = 16
KEYS = s.ObjectCredentials(access_key_id="SHUNTTESTKEY", secret_access_key="shunt-test-secret")


class Bucket(http.server.BaseHTTPRequestHandler):
    """One that has the object "a", and a fault for what is asked for next."""

    protocol_version = "HTTP/1.1"
    fault, method, objects, over = None, "GET", {}, threading.Event()
    requests = []

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fails(self):
        """Whether the fault was this request's."""
        Bucket.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
        if self.fault is None or self.command != self.method:
            return False
        self.close_connection = True
        if self.fault == "stall":
            self.over.wait(30)
        elif self.fault == "503":
            self.answer(503, b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>")
        elif self.fault == "truncate":
            self.send_response(206)
            self.send_header("Content-Range", f"bytes 0-{SIZE - 1}/{SIZE}")
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            self.wfile.write(b"a" * 100)
        elif self.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        return True

    def do_HEAD(self):
        if self.fails():
            return
        if self.path not in ("/bucket/a", "/bucket/b", *self.objects):
            return self.answer(404)
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.send_header("ETag", '"e"')
        self.end_headers()

    def do_GET(self):
        if self.fails():
            return
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        self.answer(206, b"a" * (last - first + 1), Content_Range=f"bytes {first}-{last}/{SIZE}", ETag='"e"')

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.fails():
            return
        Bucket.objects[self.path] = body
        self.answer(200, ETag='"new"')

    def do_POST(self):  # STS
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.fails():
            return
        Bucket.exchanged += 1
        self.answer(200, (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>STSKEY{Bucket.exchanged}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
            "<SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
            "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        ).encode())


class Served(DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
        cls.server.daemon_threads = True
        cls.url = f"http://127.0.0.1:{cls.server.server_address[1]}"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.shutdown)
        cls.configure()
        super().setUpClass()

    @classmethod
    def configure(cls):
        cls.FLAGS = ("--storage-s3", f"s={cls.url} path-style")

    def setUp(self):
        Bucket.fault, Bucket.objects, Bucket.over, Bucket.requests = None, {}, threading.Event(), []
        Bucket.exchanged = 0
        self.names = iter(f"{self.id()}-{i}" for i in range(100))

    def place(self, key, credentials=KEYS, **fields):
        return dict(dict(endpoint="s", bucket="bucket", key=key, credentials=credentials), **fields)


class Faults(Served):
    CODES = {
        "stall": (DEADLINE_EXCEEDED,),
        "503": (UNAVAILABLE, DEADLINE_EXCEEDED),
        "truncate": (UNAVAILABLE, DEADLINE_EXCEEDED),
        "reset": (UNAVAILABLE, DEADLINE_EXCEEDED),
    }

    def fails(self, fault, *words):
        return _Fails(self, self.CODES[fault], words)

    def test_an_open_of_a_faulty_server_ends_in_words(self):
        a = Client(self, next(self.names))
        for fault in ("stall", "503", "reset"):
            with self.subTest(fault):
                Bucket.fault, Bucket.method = fault, "HEAD"
                with self.fails(fault, "a"):
                    a.store("OpenObject", **self.place("a", timeout_ms=700))
                Bucket.fault = None
                Bucket.over.set()
                a.free(a.store("OpenObject", **self.place("a")).region_id)

    def test_a_read_of_a_faulty_server_ends_in_words_and_the_next_is_whole(self):
        a = Client(self, next(self.names))
        region = a.store("OpenObject", **self.place("a")).region_id
        own, remote = a.prepare(a.blocks(16)).list_id, a.list_of(region, 16)
        for fault in self.CODES:
            with self.subTest(fault):
                Bucket.fault, Bucket.method, Bucket.over = fault, "GET", threading.Event()
                with self.fails(fault, "transfer"):
                    a.move(own, remote, timeout_ms=700)
                Bucket.fault = None
                Bucket.over.set()
                a.memory[:] = 0
                a.move(own, remote)
                self.assertTrue((a.memory[:SIZE] == ord("a")).all())

    def test_a_commit_to_a_faulty_server_fails_and_leaves_no_object(self):
        a = Client(self, next(self.names))
        own = a.prepare(a.blocks(16)).list_id
        for fault in ("stall", "503", "reset"):
            with self.subTest(fault):
                region = a.store("CreateObject", **self.place("new", size_bytes=SIZE)).region_id
                a.move(own, a.list_of(region, 16), push=True)
                Bucket.fault, Bucket.method, Bucket.over = fault, "PUT", threading.Event()
                with self.assertRaises(plain_grpc.grpc.RpcError) as refused:
                    a.store("CommitDraft", region_id=region, timeout_ms=700)
                code = refused.exception.code().value[0]
                # Without an answer nobody knows; a refusal is one.
                self.assertIn(code, (UNAVAILABLE, DEADLINE_EXCEEDED) if fault == "503" else (UNKNOWN, DEADLINE_EXCEEDED))
                self.assertIn("new", refused.exception.details())
                Bucket.over.set()
                Bucket.fault = None
                self.assertEqual(Bucket.objects, {})
                with self.refused(NOT_FOUND, f"region {region}"):
                    a.store("CommitDraft", region_id=region)


class _Fails:
    def __init__(self, test, codes, words):
        self.test, self.codes, self.words = test, codes, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if not isinstance(error, plain_grpc.grpc.RpcError):
            return False
        self.test.assertIn(error.code().value[0], self.codes, error.details())
        for word in (*self.words,):
            self.test.assertIn(word, error.details())
        self.test.assertNotIn("shunt-test-secret", error.details())
        return True


class DaemonKeys(Served):
    """The daemon's own identity, which a configured user may use."""

    LISTED, OTHER = 14001, 14002
    DAEMON = s.ObjectCredentials(daemon_identity=True)

    @classmethod
    def configure(cls):
        cls.directory = tempfile.mkdtemp(prefix="shunt-keys-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.token, cls.keys, config = (os.path.join(cls.directory, name) for name in ("token", "keys", "config"))
        cls.write_keys("FILEKEY")
        with open(cls.token, "w", encoding="ascii") as token:
            token.write("the.web.token\n")
        endpoint = f'[[storage.s3]]\nurl = "{cls.url}"\npath_style = true\n'
        with open(config, "w", encoding="ascii") as out:
            out.write(
                f'{endpoint}name = "s"\n'
                f'{endpoint}name = "environment"\ncredentials = "environment"\nusers = [{cls.LISTED}]\n'
                f'{endpoint}name = "file"\ncredentials = "file"\ncredentials_file = "{cls.keys}"\n'
                f'profile = "p"\nusers = [{cls.LISTED}]\n'
                f'{endpoint}name = "web"\ncredentials = "web_identity"\ncredentials_file = "{cls.token}"\n'
                f'role = "arn:aws:iam::1:role/r"\nsts = "{cls.url}"\nusers = [{cls.LISTED}]\n'
            )
        cls.FLAGS = ("--config", config, "--socket-mode", "0666")
        os.environ.update(AWS_ACCESS_KEY_ID="ENVIRONMENTKEY", AWS_SECRET_ACCESS_KEY="environment-secret")

    @classmethod
    def write_keys(cls, key):
        with open(cls.keys, "w", encoding="ascii") as out:
            out.write(f"[p]\naws_access_key_id = {key}\naws_secret_access_key = file-secret\n")

    def client(self, uid=None):
        name = next(self.names)
        return Client(self, name, session=self.session(name, uid=uid))

    def signed_by(self):
        """The key ids of all requests so far."""
        return {text.partition("Credential=")[2].partition("/")[0] for _, path, text in Bucket.requests if path != "/"}

    def test_each_source_signs_for_who_may_use_it(self):
        for uid in (None, self.LISTED) if os.geteuid() == 0 else (None,):
            a = self.client(uid)
            for endpoint, key in (("environment", "ENVIRONMENTKEY"), ("file", "FILEKEY"), ("web", "STSKEY")):
                with self.subTest(endpoint, uid=uid):
                    Bucket.requests = []
                    region = a.store("OpenObject", **self.place("a", self.DAEMON, endpoint=endpoint)).region_id
                    a.move(a.prepare(a.blocks(16)).list_id, a.list_of(region, 16))
                    self.assertEqual({name.rstrip("0123456789") for name in self.signed_by()}, {key})
                    # A second one has the same store: nothing is exchanged anew.
                    exchanged = Bucket.exchanged
                    a.store("OpenObject", **self.place("b", self.DAEMON, endpoint=endpoint))
                    self.assertEqual(Bucket.exchanged, exchanged)

    @unittest.skipIf(os.geteuid() != 0, "needs root to become other users")
    def test_who_is_not_listed_may_not(self):
        other = self.client(self.OTHER)
        for endpoint in ("environment", "file", "web"):
            with self.refused(PERMISSION_DENIED, f"endpoint '{endpoint}'", f"user {self.OTHER}", "storage.s3"):
                other.store("OpenObject", **self.place("a", self.DAEMON, endpoint=endpoint))
            with self.refused(PERMISSION_DENIED, f"user {self.OTHER}"):
                other.store("CreateObject", **self.place("a", self.DAEMON, endpoint=endpoint, size_bytes=1))
        self.assertEqual(Bucket.requests, [])
        # With its own keys, or none, it may use the endpoint.
        other.store("OpenObject", **self.place("a", endpoint="file"))
        other.store("OpenObject", **self.place("a", None, endpoint="file"))
        self.assertEqual(self.signed_by(), {"SHUNTTESTKEY", ""})

    def test_an_endpoint_without_credentials_has_none_for_anybody(self):
        with self.refused(FAILED_PRECONDITION, "endpoint 's'", "no credentials of the daemon's"):
            self.client().store("OpenObject", **self.place("a", self.DAEMON))

    def test_keys_and_the_daemons_are_not_both_meant(self):
        both = s.ObjectCredentials(daemon_identity=True, access_key_id="X", secret_access_key="Y")
        with self.refused(INVALID_ARGUMENT, "daemon_identity"):
            self.client().store("OpenObject", **self.place("a", both, endpoint="file"))

    def test_a_source_that_fails_shows_neither_paths_nor_keys(self):
        a = self.client()
        os.rename(self.token, self.token + ".away")
        try:
            with self.assertRaises(plain_grpc.grpc.RpcError) as refused:
                a.store("OpenObject", **self.place("a", self.DAEMON, endpoint="web"))
        finally:
            os.rename(self.token + ".away", self.token)
        self.assertNotIn(self.directory, refused.exception.details())
        self.assertNotIn("the.web.token", refused.exception.details())
        a.store("OpenObject", **self.place("a", self.DAEMON, endpoint="web"))


class Starts(unittest.TestCase):
    def test_what_is_wrong_with_an_endpoint_stops_the_start(self):
        with tempfile.TemporaryDirectory(prefix="shunt-ca-") as directory:
            text = os.path.join(directory, "text")
            with open(text, "w", encoding="ascii") as out:
                out.write("no certificate\n")
            for endpoint, words in (
                ("m=http://h:99999", ("endpoint m", "http://h:99999")),
                ("m=http://h/path", ("endpoint m", "http://h/path")),
                (f"m=https://h ca={directory}/absent", ("endpoint m", f"{directory}/absent", "can't be read")),
                (f"m=https://h ca={text}", ("endpoint m", text, "no certificate")),
                ("m=https://h credentials=what", ("credentials=what", "not environment, file or web_identity")),
                ("m=https://h user=7", ("users but without credentials",)),
                ("m=https://h credentials=file", ("without credentials_file",)),
                (f"m=https://h credentials=file credentials_file={directory}/absent", (f"{directory}/absent", "endpoint m")),
                (f"m=https://h credentials=file credentials_file={text}", (text, "profile 'default'")),
                (f"m=https://h credentials=web_identity credentials_file={text}", ("without role and sts",)),
            ):
                with self.subTest(endpoint):
                    daemon = Shuntd("--storage-s3", endpoint, check=False)
                    self.assertNotEqual(daemon.process.wait(timeout=30), 0)
                    for word in (*words, "storage-s3"):
                        self.assertIn(word, daemon.log())
                    daemon.stop()
                    checked = subprocess.run([SHUNTD, "--check-config", "--storage-s3", endpoint], capture_output=True, text=True)
                    self.assertNotEqual(checked.returncode, 0)
                    self.assertIn(words[0], checked.stderr)


if __name__ == "__main__":
    unittest.main()
