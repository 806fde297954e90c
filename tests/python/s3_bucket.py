"""Makes a bucket on an S3 server: one signed request (AWS's "Signature Version 4") of the tests' own."""

import datetime
import hashlib
import hmac
import urllib.parse
import urllib.request


def make(server, key_id, secret, bucket):
    host = urllib.parse.urlparse(server).netloc
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    canonical = "\n".join(["PUT", f"/{bucket}", "", *(f"{k}:{v}" for k, v in headers.items()), "", names, digest])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    asked = urllib.request.Request(f"{server}/{bucket}", data=b"", headers=headers, method="PUT")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        answer.read()
