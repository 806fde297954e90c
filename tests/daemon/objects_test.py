"""Objects as ends of transfers, on the S3 server that tests/storage/s3_server.py has started."""

import datetime
import hashlib
import hmac
import os
import tempfile
import unittest
import urllib.parse
import urllib.request

import grpc
import numpy

from files_test import BLOCK, Client, ids, s, strided
from harness import *

UNAUTHENTICATED = 16
SERVER = os.environ["SHUNT_TEST_S3"]
KEY_ID, SECRET = "SHUNTTESTKEY", "shunt-test-secret"
KEYS = s.ObjectCredentials(access_key_id=KEY_ID, secret_access_key=SECRET)


def request(method, path, query="", body=b""):
    """A signed request of the test's own (AWS's "Signature Version 4"): the answer's body."""
    host = urllib.parse.urlparse(SERVER).netloc
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    canonical = "\n".join([method, path, query, *(f"{k}:{v}" for k, v in headers.items()), "", names, digest])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in (now[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    url = SERVER + path + ("?" + query if query else "")
    asked = urllib.request.Request(url, data=body if method == "PUT" else None, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return answer.read()


class Objects(DaemonTest):
    FLAGS = ("--storage-s3", f"rgw={SERVER} path-style,dead=http://127.0.0.1:1 path-style")
    BUCKET = f"daemon-{os.getpid()}"

    @classmethod
    def setUpClass(cls):
        request("PUT", f"/{cls.BUCKET}")
        super().setUpClass()

    def setUp(self):
        self.random = numpy.random.default_rng(5)
        self.names = iter(f"{self.id()}-{i}" for i in range(100))

    def client(self, size=64 * BLOCK):
        client = Client(self, next(self.names), size)
        client.memory[:] = self.random.integers(0, 256, client.memory.size, dtype=numpy.uint8)
        return client

    def place(self, key, **fields):
        return dict(dict(endpoint="rgw", bucket=self.BUCKET, key=key, credentials=KEYS), **fields)

    def put(self, key, size):
        data = self.random.integers(0, 256, size, dtype=numpy.uint8)
        request("PUT", f"/{self.BUCKET}/{key}", body=data.tobytes())
        return data

    def get(self, key):
        return numpy.frombuffer(request("GET", f"/{self.BUCKET}/{key}"), dtype=numpy.uint8)

    def test_ranges_of_an_object_are_read(self):
        data = self.put("read", 64 * BLOCK)
        a = self.client()
        opened = a.store("OpenObject", **self.place("read"))
        self.assertEqual(opened.size_bytes, 64 * BLOCK)
        order = self.random.permutation(64)[:20]
        report = a.move(a.prepare().list_id, a.list_of(opened.region_id, 64), ids(range(20)), ids(order))
        self.assertEqual((report.route, report.bytes), ("read", 20 * BLOCK))
        self.assertTrue((a.memory[: 20 * BLOCK].reshape(20, BLOCK) == data.reshape(64, BLOCK)[order]).all())
        listed = a.session.memory.ListRegions(api.memory.ListRegionsRequest(token=a.session.token)).regions
        self.assertEqual(listed[-1].kind, api.memory.REGION_KIND_OBJECT)

    def test_an_object_appears_whole_with_its_commit(self):
        # Of several parts, written over each other's borders.
        for size in (3 * BLOCK, 20 << 20):
            count = size // BLOCK
            a = self.client(size)
            reply, _ = a.session.lease.call(create_object=s.CreateObjectRequest(**self.place("written", size_bytes=size)))
            region = reply.create_file.region_id
            order = self.random.permutation(count)
            own = a.prepare(a.blocks(count)).list_id
            report = a.move(own, a.list_of(region, count), ids(order), dict(all=True), push=True)
            self.assertEqual(report.route, "write")
            a.session.lease.call(commit_draft=s.CommitDraftRequest(region_id=region))
            self.assertTrue((self.get("written").reshape(count, BLOCK) == a.memory.reshape(count, BLOCK)[order]).all())

    def test_a_draft_that_is_given_up_leaves_nothing(self):
        for end in ("abort", "free", "session"):
            a = self.client(20 << 20)
            count = (20 << 20) // BLOCK
            region = a.store("CreateObject", **self.place("left", size_bytes=20 << 20)).region_id
            own = a.prepare(a.blocks(count)).list_id
            a.move(own, a.list_of(region, count), push=True)
            if end == "abort":
                a.store("AbortDraft", region_id=region)
            elif end == "free":
                a.free(region)
            else:
                a.session.close()
            wait_until(lambda: b"<UploadId>" not in request("GET", f"/{self.BUCKET}", "uploads="), what="the upload's end")
            self.assertNotIn(b"<Key>left</Key>", request("GET", f"/{self.BUCKET}", "list-type=2"))

    def test_what_goes_wrong_is_told_in_words(self):
        self.put("there", BLOCK)
        a = self.client()
        for code, fields in (
            (NOT_FOUND, dict(key="missing")),
            (NOT_FOUND, dict(bucket="no-such-bucket")),
            (UNAUTHENTICATED, dict(credentials=s.ObjectCredentials(access_key_id=KEY_ID, secret_access_key="wrong"))),
            (PERMISSION_DENIED, dict(credentials=None)),
            (NOT_FOUND, dict(endpoint="elsewhere")),
            (INVALID_ARGUMENT, dict(bucket="")),
        ):
            with self.subTest(fields):
                try:
                    a.store("OpenObject", **self.place(**dict(dict(key="there"), **fields)))
                    self.fail("nothing was refused")
                except grpc.RpcError as error:
                    self.assert_code(error, code)
                    self.assertNotIn("wrong", error.details())
        with self.refused(UNAVAILABLE, "there", "connect"):
            a.store("OpenObject", **self.place("there", endpoint="dead", timeout_ms=300))
        region = a.store("OpenObject", **self.place("there")).region_id
        file = a.list_of(region, 1)
        with self.refused(PERMISSION_DENIED, f"region {region}", "for reading"):
            a.post(a.prepare().list_id, file, ids([0]), push=True)
        # Another one by its name, and none.
        self.put("there", BLOCK)
        with self.refused(ABORTED, "there"):
            a.move(a.prepare().list_id, file, ids([0]))
        request("DELETE", f"/{self.BUCKET}/there")
        with self.refused(NOT_FOUND, "there"):
            a.move(a.prepare().list_id, file, ids([0]))
        taken = self.put("taken", 10)
        region = a.store("CreateObject", **self.place("taken", size_bytes=BLOCK, if_absent=True)).region_id
        a.move(a.prepare().list_id, a.list_of(region, 1), ids([0]), push=True)
        with self.refused(ALREADY_EXISTS, "taken"):
            a.store("CommitDraft", region_id=region)
        self.assertTrue((self.get("taken") == taken).all())

    def test_files_and_objects_are_not_of_one_transfer(self):
        self.put("mixed", BLOCK)
        a = self.client()
        region = a.store("OpenObject", **self.place("mixed")).region_id
        file = a.pass_path(__file__)
        mixed = a.prepare([strided(region, 0, 100), strided(file, 0, 100)]).list_id
        own = a.prepare([strided(a.region, 0, 100, (2, 100))]).list_id
        with self.refused(UNIMPLEMENTED, f"region {region}", f"region {file}", "different stores"):
            a.post(own, mixed)


class DaemonIdentity(DaemonTest):
    """The daemon's own keys, from each source that this server can check."""

    BUCKET = f"identity-{os.getpid()}"
    OTHER = 15001

    @classmethod
    def setUpClass(cls):
        request("PUT", f"/{cls.BUCKET}")
        cls.directory = tempfile.mkdtemp(prefix="shunt-keys-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.keys = os.path.join(cls.directory, "keys")
        cls.write_keys("NOLONGERVALID")
        cls.FLAGS = (
            "--socket-mode", "0666", "--storage-s3",
            f"environment={SERVER} path-style credentials=environment,"
            f"file={SERVER} path-style credentials=file credentials_file={cls.keys}",
        )
        os.environ.update(AWS_ACCESS_KEY_ID=KEY_ID, AWS_SECRET_ACCESS_KEY=SECRET)
        try:
            super().setUpClass()
        finally:
            del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]

    @classmethod
    def write_keys(cls, key_id):
        with open(cls.keys, "w", encoding="ascii") as out:
            out.write(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = {SECRET}\n")

    def place(self, endpoint, **fields):
        own = s.ObjectCredentials(daemon_identity=True)
        return dict(endpoint=endpoint, bucket=self.BUCKET, key="k", credentials=own, **fields)

    def test_objects_are_written_and_read_with_the_daemons_keys(self):
        a = Client(self, "a")
        a.memory[:] = numpy.random.default_rng(1).integers(0, 256, a.memory.size, dtype=numpy.uint8)
        before, own = a.memory.copy(), a.prepare().list_id
        with self.refused(UNAUTHENTICATED, "k"):
            a.store("OpenObject", **self.place("file"))
        self.write_keys(KEY_ID)  # which are taken up when the old ones are refused
        for endpoint in ("environment", "file"):
            region = a.store("CreateObject", **self.place(endpoint, size_bytes=64 * BLOCK)).region_id
            a.move(own, a.list_of(region, 64), push=True)
            a.store("CommitDraft", region_id=region)
            a.memory[:] = 0
            a.move(own, a.list_of(a.store("OpenObject", **self.place(endpoint)).region_id, 64))
            self.assertTrue((a.memory == before).all())
        with self.refused(PERMISSION_DENIED, "k"):  # without keys
            a.store("OpenObject", endpoint="file", bucket=self.BUCKET, key="k")

    @unittest.skipIf(os.geteuid() != 0, "needs root to become another user")
    def test_nobody_else_may_use_them(self):
        other = Client(self, "other", session=self.session("other", uid=self.OTHER))
        for endpoint in ("environment", "file"):
            with self.refused(PERMISSION_DENIED, f"user {self.OTHER}"):
                other.store("OpenObject", **self.place(endpoint))


if __name__ == "__main__":
    unittest.main()
