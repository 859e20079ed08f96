"""Objects in S3, or in any server with its protocol: files are uploaded with checksums and verified afterwards."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import hashlib
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from rollbook.aws.api import Account, AwsError, explain
from rollbook.errors import UsageError

__all__ = ["Bucket", "S3Path", "Uploaded"]

PART = 16 << 20
MOST_PARTS = 10_000
PARALLEL = 4
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
ABSENT = ("403", "404")  # answers to HEAD have no body, so the SDK has only the HTTP status


class S3Path(NamedTuple):
    """A bucket and a prefix without slashes at its ends, which may be empty."""

    bucket: str
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The path that `s3://bucket/prefix` names; raises `UsageError`."""
        scheme, _, rest = text.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not BUCKET.fullmatch(bucket):
            raise UsageError(f"{text!r} is not an S3 path: write s3://bucket/prefix")
        names = [name for name in prefix.split("/") if name]
        if {".", ".."} & set(names) or not prefix.isprintable():
            raise UsageError(f"{text!r} is not an S3 path: the prefix has a part that servers read differently")
        return cls(bucket, "/".join(names))

    def key(self, name: str) -> str:
        """The key of an object below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    """A verified object. `verified` names the checksum that the server returned and that matched."""

    url: str
    size: int
    sha256: str
    parts: int
    verified: Literal["sha256", "md5"]


class Bucket:
    """A bucket to upload to. Errors are `AwsError` (credentials, permission, name) or `NoHostReached`."""

    def __init__(self, account: Account, name: str, *, part: int = PART) -> None:
        self.name, self._account, self._part = name, account, part

    def require_writable(self, key: str) -> None:
        """Raise an error if an object cannot be written there: starts an upload in parts, and ends it without one."""
        upload = self._call("create_multipart_upload", key)["UploadId"]
        with contextlib.suppress(Exception):  # without the permission to abort, an empty upload stays
            self._call("abort_multipart_upload", key, UploadId=upload)

    def require_absent(self, key: str) -> None:
        """Raise `UsageError` if the object exists. Without the permission to look, it counts as absent."""
        if self._head(key) is not None:
            raise UsageError(f"{self.url(key)} exists; it is not replaced")

    def upload(self, path: Path, key: str) -> Uploaded:
        """Upload a file, in parts if it is large, and verify size and checksum; an existing object is not replaced."""
        self.require_absent(key)
        size = path.stat().st_size
        part = max(self._part, -(-size // MOST_PARTS))
        if size <= part:
            parts = 0
            with path.open("rb") as file:
                digests = [hashlib.file_digest(file, "sha256").digest()]
                file.seek(0)
                self._call("put_object", key, Body=file, ContentLength=size, ChecksumSHA256=_text(digests[0]))
        else:
            digests = self._upload_parts(path, key, size, part)
            parts = len(digests)
        return self._verify(path, key, part, digests, parts)

    def url(self, key: str) -> str:
        """The object as `s3://bucket/key`."""
        return f"s3://{self.name}/{key}"

    def _upload_parts(self, path: Path, key: str, size: int, part: int) -> list[bytes]:
        """Upload all parts, a few in parallel; a failed upload is removed from the server."""
        upload = self._call("create_multipart_upload", key, ChecksumAlgorithm="SHA256")["UploadId"]

        def send(number: int) -> tuple[bytes, str]:
            data = _read(path, number * part, part)
            digest = hashlib.sha256(data).digest()
            answer = self._call(
                "upload_part",
                key,
                UploadId=upload,
                PartNumber=number + 1,
                Body=data,
                ChecksumSHA256=_text(digest),
            )
            return digest, str(answer["ETag"])

        try:
            with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
                waiting = [pool.submit(send, number) for number in range(-(-size // part))]
                try:
                    sent = [one.result() for one in waiting]
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
            listed = [
                {"PartNumber": number, "ETag": tag, "ChecksumSHA256": _text(digest)}
                for number, (digest, tag) in enumerate(sent, 1)
            ]
            self._call("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": listed})
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                self._call("abort_multipart_upload", key, UploadId=upload)
            raise
        return [digest for digest, _ in sent]

    def _verify(self, path: Path, key: str, part: int, digests: list[bytes], parts: int) -> Uploaded:
        size = path.stat().st_size
        head = self._head(key)
        if head is None:
            raise AwsError(
                f"{self.url(key)} was uploaded, but cannot be verified: HEAD finds no such object, or is denied"
            )
        expected = _text(hashlib.sha256(b"".join(digests)).digest()) + f"-{parts}" if parts else _text(digests[0])
        if head["ContentLength"] != size:
            raise AwsError(f"{self.url(key)} has {head['ContentLength']} bytes instead of {size}")
        verified: Literal["sha256", "md5"] = "sha256"
        if (found := head.get("ChecksumSHA256")) is None:
            verified, expected, found = "md5", _entity_tag(path, part, parts), str(head.get("ETag", "")).strip('"')
        if found != expected:
            raise AwsError(
                f"{self.url(key)} cannot be verified: its {verified.upper()} is {found}, expected {expected}"
            )
        with path.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() if parts else digests[0].hex()
        return Uploaded(url=self.url(key), size=size, sha256=whole, parts=parts, verified=verified)

    def _head(self, key: str) -> dict[str, Any] | None:
        """What the server has of an object; None if there is none, or if it may not be read."""
        try:
            return self._call("head_object", key, ChecksumMode="ENABLED")
        except _Absent:
            return None

    def _call(self, operation: str, key: str, **parameters: Any) -> dict[str, Any]:
        client = self._account.client("s3")
        try:
            answer: dict[str, Any] = getattr(client, operation)(Bucket=self.name, Key=key, **parameters)
        except Exception as error:  # botocore's errors have no common root with those of its HTTP library
            details = getattr(error, "response", None) or {}
            if str(details.get("Error", {}).get("Code")) in ABSENT:
                raise _Absent from error
            raise explain(error, f"{operation} on {self.url(key)}", "--s3-") from error
        return answer


class _Absent(Exception):
    """HEAD finds no object, or may not."""


def _read(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _entity_tag(path: Path, part: int, parts: int) -> str:
    """The entity tag that servers without other checksums give an object: its MD5, or that of the MD5s of its parts."""
    digests = [
        hashlib.md5(_read(path, number * part, part), usedforsecurity=False).digest() for number in range(parts or 1)
    ]
    if not parts:
        return digests[0].hex()
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{parts}"
