"""Upload of issue reports to a real S3 server: uploads are verified, and every failure keeps the local bundle."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from rollbook import RecordError, upload_bundle
from rollbook.aws import api
from rollbook.aws.api import Account
from rollbook.aws.objects import Bucket, S3Path
from rollbook.bundle.reading import Bundle
from rollbook.bundle.s3_layout import _archives
from rollbook.errors import AwsError, TimedOut, UsageError
from tests.support.bundles import BundleCase, write_bundle
from tests.support.commands import ROLLBOOK, Ended, Rollbook
from tests.support.s3 import BUCKET, OWNER, READER, S3


@pytest.fixture
def run(s3: S3, rollbook: Rollbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rollbook:
    """Run `rollbook bundle` in an empty directory, by default as the owner of the bucket."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def start(*arguments: str, user: tuple[str, str] = OWNER, endpoint: str = s3.endpoint) -> Ended:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", user[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", user[1])
        monkeypatch.setattr(api, "_clients", {})  # cached clients have old credentials
        return rollbook("bundle", *arguments, "--s3-endpoint-url", endpoint)

    return start


def test_upload_a_bundle(run: Rollbook, s3: S3, tmp_path: Path) -> None:
    """The archive contains the bundle, which is also kept locally; credentials are neither printed nor stored."""
    done = run("--via", "local", "--item", "os", "--no-once", "--upload", f"s3://{BUCKET}/cases/")
    assert done.code == 0, done.err
    [local] = tmp_path.glob("results/bundle/*")
    [key] = s3.keys("cases/")
    assert f"uploaded to s3://{BUCKET}/{key}" in done.err
    assert "SHA-256 verified" in done.err
    data = s3.read(key)
    if key.endswith(".zst"):
        data = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()}
    for secret in OWNER:
        assert secret not in done.err + done.out
        assert secret.encode() not in data
    assert [path.name for path in local.parent.iterdir()] == [local.name]


@pytest.mark.usefixtures("owner")
def test_a_report_whose_document_nobody_reads_is_uploaded(s3: S3, tmp_path: Path) -> None:
    """`rollbook bundle --upload … --json | true` loses the output only."""
    argv = [*ROLLBOOK, "bundle", "--via", "local", "--item", "os", "--no-once", "--json"]
    argv += ["--upload", f"s3://{BUCKET}/unread", "--s3-endpoint-url", s3.endpoint]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(argv, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 0, done.stderr
    assert len(s3.keys("unread/")) == 1


def test_existing_objects_are_not_replaced(run: Rollbook, s3: S3, tmp_path: Path) -> None:
    """The object equals the archive, and an existing object is never replaced."""
    argv = ["--via", "local", "--item", "os", "--no-once", "--json"]
    done = run(*argv, "-o", "case.tar.gz", "--upload", f"s3://{BUCKET}/again")
    assert done.code == 0, done.err
    assert json.loads(done.out)["total_nodes"] == 1
    sent = (tmp_path / "case.tar.gz").read_bytes()
    assert s3.read("again/case.tar.gz") == sent
    (tmp_path / "case.tar.gz").write_bytes(b"another")
    refused = run("upload", "case.tar.gz", f"s3://{BUCKET}/again")
    assert refused.code == 2
    assert f"s3://{BUCKET}/again/case.tar.gz exists; it is not replaced" in refused.err
    (tmp_path / "case.tar.gz").unlink()
    early = run(*argv, "-o", "case.tar.gz", "--upload", f"s3://{BUCKET}/again")
    assert early.code == 2
    assert not (tmp_path / "case.tar.gz").exists()
    assert s3.read("again/case.tar.gz") == sent


FAILURES = {
    "bucket": (f"s3://{BUCKET}-missing/x", OWNER, None, 2, "bucket does not exist"),
    "permission": (f"s3://{BUCKET}/x", READER, None, 2, "not allowed to call create_multipart_upload"),
    "secret": (f"s3://{BUCKET}/x", (OWNER[0], "wrong-secret-91"), None, 2, "does not accept the credentials"),
    "key": (f"s3://{BUCKET}/x", ("AKIANOSUCHKEYNOSUCH1", "s"), None, 2, "does not accept the credentials"),
    "endpoint": (f"s3://{BUCKET}/x", OWNER, "http://127.0.0.1:9", 4, "cannot reach AWS"),
    "login": (f"s3://{BUCKET}/x", OWNER, f"http://me:{OWNER[1]}@127.0.0.1:9", 2, "must not contain credentials"),
    "path": ("http://reports/x", OWNER, None, 2, "is not an S3 path"),
    "object": (f"s3://{BUCKET}/x.tar.gz", OWNER, None, 2, "give its prefix only"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_found_before_anything_is_read(run: Rollbook, s3: S3, tmp_path: Path, name: str) -> None:
    """One line of error without secrets; nothing is collected, and no upload remains on the server."""
    path, user, endpoint, code, message = FAILURES[name]
    done = run("--via", "local", "--item", "os", "--upload", path, user=user, endpoint=endpoint or s3.endpoint)
    assert done.code == code, done.err
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert user[1] not in done.err or len(user[1]) == 1
    assert not (tmp_path / "results").exists()
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_failure_after_collection_keeps_the_bundle(run: Rollbook, s3: S3, tmp_path: Path) -> None:
    """The bucket is deleted while nodes are read: the bundle is kept and can be uploaded later."""
    s3.client().create_bucket(Bucket="short-lived")
    client = f"boto3.client('s3', endpoint_url={s3.endpoint!r}, region_name='us-east-1')"
    (tmp_path / "remove.py").write_text(f"import boto3; {client}.delete_bucket(Bucket='short-lived')")
    command = f"{sys.executable} {tmp_path / 'remove.py'}"
    argv = ["--via", "local", "--item", "os", "--no-once", "--command", command]
    done = run(*argv, "--upload", "s3://short-lived/x")
    assert done.code == 2, done.err
    assert "bucket does not exist" in done.err.splitlines()[-1]
    [local] = tmp_path.glob("results/bundle/*")
    again = f"rollbook bundle upload {local.relative_to(tmp_path)} s3://short-lived/x --s3-endpoint-url {s3.endpoint}"
    assert again in done.err
    later = run("upload", str(local), f"s3://{BUCKET}/later", "--json")
    assert later.code == 0, later.err
    found = json.loads(later.out)
    data = s3.read(found["url"].removeprefix(f"s3://{BUCKET}/"))
    assert (found["size"], found["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("status", [403, 404])
def test_error_responses_without_a_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """A proxy may refuse requests without S3's XML body: the error has the HTTP status."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_POST  # noqa: N815 - names that http.server calls

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), OWNER, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    (tmp_path / "file").write_bytes(b"x")
    with HTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        bucket = Bucket(Account(endpoint_url=f"http://127.0.0.1:{server.server_address[1]}"), BUCKET)
        with pytest.raises(AwsError, match=f"on s3://{BUCKET}/x failed \\({status}\\)"):
            bucket.upload(tmp_path / "file", "x")
        server.shutdown()


@pytest.mark.usefixtures("owner")
def test_large_files_in_parts(s3: S3, tmp_path: Path) -> None:
    """With parts of 5 MiB, the minimum of S3, the object equals the file."""
    data = os.urandom((5 << 20) * 2 + 12345)
    (tmp_path / "large").write_bytes(data)
    done = Bucket(Account(endpoint_url=s3.endpoint), BUCKET, part=5 << 20).upload(tmp_path / "large", "parts/large")
    assert (done.parts, done.size, done.verified) == (3, len(data), "sha256")
    assert done.sha256 == hashlib.sha256(data).hexdigest()
    assert s3.read("parts/large") == data


@pytest.mark.usefixtures("owner")
def test_damaged_upload(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses a part with a wrong checksum, and no object or upload remains."""
    (tmp_path / "large").write_bytes(os.urandom((5 << 20) * 2))
    bucket = Bucket(Account(endpoint_url=s3.endpoint), BUCKET, part=5 << 20)
    call = bucket._call

    def damage(operation: str, key: str, **parameters: object) -> dict[str, object]:
        if operation == "upload_part" and parameters["PartNumber"] == 2:
            parameters["Body"] = b"x" * (5 << 20)
        return call(operation, key, **parameters)

    monkeypatch.setattr(bucket, "_call", damage)
    with pytest.raises(AwsError, match="upload_part"):
        bucket.upload(tmp_path / "large", "damaged")
    assert not s3.keys("damaged")
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_download_that_fails_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network error, which may be an `OSError`, is explained as one, and no part of the object remains."""

    class Body:
        def iter_chunks(self, _: int) -> Iterator[bytes]:
            yield b"first part"
            raise ReadTimeoutError(endpoint_url="http://s3")

    path = tmp_path / "archive"
    path.write_bytes(b"old")
    bucket = Bucket(Account(), BUCKET)
    monkeypatch.setattr(bucket, "_call", lambda *_: {"ContentLength": 20, "Body": Body()})
    with pytest.raises(TimedOut, match=r"AWS did not answer get_object on s3://.*/key in time"):
        bucket.download("key", path, 100)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("part", [5 << 20, 16 << 20], ids=["parts", "one"])
def test_uploads_are_verified(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Without SHA-256 the entity tag is compared; a different size or checksum in the response is an error."""
    (tmp_path / "file").write_bytes(os.urandom((5 << 20) + 77))
    bucket = Bucket(Account(endpoint_url=s3.endpoint), BUCKET, part=part)
    head, change = bucket._head, dict[str, Any]()

    def changed(key: str) -> dict[str, Any] | None:
        found = head(key)
        return found and {name: value for name, value in {**found, **change}.items() if value is not None}

    monkeypatch.setattr(bucket, "_head", changed)
    change.update(ChecksumSHA256=None)
    assert bucket.upload(tmp_path / "file", f"compared/{part}/md5").verified == "md5"
    answers: list[dict[str, Any]] = [{"ContentLength": 5}, {"ChecksumSHA256": "AAAA"}, {"ETag": '"00"'}]
    for number, wrong in enumerate(answers):
        change.clear()
        change.update({"ChecksumSHA256": None, **wrong})
        with pytest.raises(AwsError, match=r"instead of|cannot be verified"):
            bucket.upload(tmp_path / "file", f"compared/{part}/{number}")


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "bucket/x", "s3://B/x", "s3://bucket/../x", "s3://bucket/a\nb"])
def test_invalid_paths(text: str) -> None:
    """Invalid S3 paths are refused without a server."""
    with pytest.raises(UsageError, match="is not an S3 path"):
        S3Path.parse(text)


def test_keys() -> None:
    """Repeated and trailing slashes of a prefix are removed; a key never starts with a slash."""
    assert S3Path.parse("s3://bucket/").key("a") == "a"
    assert S3Path.parse("s3://bucket//p//q/").key("a") == "p/q/a"


def test_not_a_bundle(tmp_path: Path) -> None:
    """A file or directory that is not an issue report is refused."""
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match="neither an issue report"):
        upload_bundle(tmp_path / "notes.txt", "s3://bucket/x")
    with pytest.raises(RecordError):
        upload_bundle(tmp_path, "s3://bucket/x")


def test_archives_of_the_s3_layout(tmp_path: Path) -> None:
    """Files of Kubernetes, of each node, and all others have separate archives; without a group, the node's name."""
    case = BundleCase(about="", outcome="", items={"n1": {"os": {"/etc/os-release": "x"}}}, cluster={"kubectl": "{}"})
    write_bundle(tmp_path, case)
    found = _archives(tmp_path, Bundle(tmp_path).summary)
    assert {name: list(files) for name, files in found.items()} == {
        "instances/n1.tar.gz": ["nodes/n1/os/0"],
        "kubectl_resources.tar.gz": ["cluster/kubernetes-0/0"],
        "report.tar.gz": ["summary.json"],
    }
