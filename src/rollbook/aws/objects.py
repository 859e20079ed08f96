"""Objects in S3, or in any server with its protocol: files are uploaded with checksums and verified afterwards."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from rollbook.aws.api import Account, explain
from rollbook.errors import AwsError, UsageError
from rollbook.files import atomic_file

__all__ = ["PART", "Bucket", "Grant", "S3Path", "Uploaded"]

PART = 16 << 20
"""Bytes of a part; a larger object is uploaded in several."""
MAX_PARTS = 10_000
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
            why = "the prefix must not contain unprintable characters or a part '.' or '..'"
            raise UsageError(f"{text!r} is not an S3 path: {why}")
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


@dataclasses.dataclass(frozen=True)
class Grant:
    """Presigned requests that upload one object, in parts if it is large. Whoever has their URLs can use them."""

    key: str
    size: int
    part: int
    digests: tuple[str, ...]
    """The SHA-256 of each part, as base64; the requests are only valid for these bytes."""
    upload: str = ""
    """The id of the upload in parts; empty for a single request."""
    urls: tuple[str, ...] = dataclasses.field(default=(), repr=False)


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

    def upload(self, path: Path, key: str, *, again: bool = False) -> Uploaded:
        """Upload a file, in parts if it is large, and verify size and checksum; an existing object is not replaced.

        If the upload is made `again`, an object that is this file stays, and another one is replaced.
        """
        size = path.stat().st_size
        part = max(self._part, -(-size // MAX_PARTS))
        if not again:
            self.require_absent(key)
        elif self._head(key) is not None:
            with contextlib.suppress(AwsError):
                return self.verify(path, key, part)
        if size <= part:
            with path.open("rb") as file:
                digest = _text(hashlib.file_digest(file, "sha256").digest())
                file.seek(0)
                self._call("put_object", key, Body=file, ContentLength=size, ChecksumSHA256=digest)
        else:
            self._upload_parts(path, key, size, part)
        return self.verify(path, key, part)

    def grant(self, key: str, size: int, digests: Sequence[str], part: int, seconds: float) -> Grant:
        """Presigned requests for an object of `size` bytes, whose parts of `part` bytes have these SHA-256.

        They end after `seconds`. The upload ends with `accept` or `withdraw`. Raises `ValueError` if the number of
        parts is another one.
        """
        self.require_absent(key)
        parts = list(zip([min(part, size - start) for start in range(0, size, part)], digests, strict=True))
        common: dict[str, Any] = {"Bucket": self.name, "Key": key}
        operation, upload = "put_object", ""
        if len(parts) > 1:
            upload = self._call("create_multipart_upload", key, ChecksumAlgorithm="SHA256")["UploadId"]
            operation, common = "upload_part", {**common, "UploadId": upload}
        urls = []
        client = self._account.client("s3")
        for number, (length, digest) in enumerate(parts, 1):
            more = {"PartNumber": number} if upload else {}
            parameters = {**common, **more, "ContentLength": length, "ChecksumSHA256": digest}
            urls.append(client.generate_presigned_url(operation, Params=parameters, ExpiresIn=max(1, int(seconds))))
        return Grant(key, size, part, tuple(digests), upload, tuple(urls))

    def accept(self, grant: Grant, tags: Sequence[str]) -> None:
        """Complete an upload, whose parts have these entity tags, and verify that the object has arrived."""
        if grant.upload:
            listed = [
                {"PartNumber": number, "ETag": tag, "ChecksumSHA256": digest}
                for number, (digest, tag) in enumerate(zip(grant.digests, tags, strict=True), 1)
            ]
            self._call("complete_multipart_upload", grant.key, UploadId=grant.upload, MultipartUpload={"Parts": listed})
        head = self._require_head(grant.key, grant.size)
        found = head.get("ChecksumSHA256")
        expected = _checksum([base64.b64decode(digest) for digest in grant.digests])
        if found is not None and found != expected:
            raise AwsError(f"{self.url(grant.key)} cannot be verified: its SHA256 is {found}, expected {expected}")

    def withdraw(self, grant: Grant) -> None:
        """Remove the parts of an upload that failed."""
        if grant.upload:
            with contextlib.suppress(Exception):  # the reason for which it failed is the one to report
                self._call("abort_multipart_upload", grant.key, UploadId=grant.upload)

    def download(self, key: str, path: Path, most: int) -> None:
        """Write an object of at most `most` bytes to a file, atomically. Raises `RollbookError`."""
        answer = self._call("get_object", key)
        if answer["ContentLength"] > most:
            raise AwsError(f"{self.url(key)} has {answer['ContentLength']} bytes, more than the limit of the node")
        with atomic_file(path) as file:
            for chunk in self._chunks(answer["Body"], key):
                file.write(chunk)

    def _chunks(self, body: Any, key: str) -> Iterator[bytes]:
        try:
            yield from body.iter_chunks(1 << 20)
        except Exception as error:  # of the HTTP library, in part an `OSError`
            raise explain(error, f"get_object on {self.url(key)}", "--s3-") from error

    def has(self, key: str, known: Uploaded) -> bool:
        """Whether an object exists with the known size and, if the server reports one, the known checksum."""
        head = self._head(key)
        if head is None or head["ContentLength"] != known.size:
            return False
        found = str(head.get("ChecksumSHA256") or "")
        return known.parts > 0 or not found or found == _text(bytes.fromhex(known.sha256))

    def url(self, key: str) -> str:
        """The object as `s3://bucket/key`."""
        return f"s3://{self.name}/{key}"

    def _upload_parts(self, path: Path, key: str, size: int, part: int) -> None:
        """Upload all parts, a few in parallel; a failed or interrupted upload is removed from the server."""
        upload = self._call("create_multipart_upload", key, ChecksumAlgorithm="SHA256")["UploadId"]
        ended = threading.Event()

        def send(number: int) -> dict[str, Any]:
            data = _read(path, number * part, part)
            digest = _text(hashlib.sha256(data).digest())
            answer = self._call(
                "upload_part",
                key,
                UploadId=upload,
                PartNumber=number + 1,
                Body=_Part(data, ended),
                ChecksumSHA256=digest,
            )
            return {"PartNumber": number + 1, "ETag": str(answer["ETag"]), "ChecksumSHA256": digest}

        try:
            with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
                waiting = [pool.submit(send, number) for number in range(-(-size // part))]
                try:
                    sent = [one.result() for one in waiting]
                except BaseException:
                    ended.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
            self._call("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": sent})
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                self._call("abort_multipart_upload", key, UploadId=upload)
            raise

    def verify(self, path: Path, key: str, part: int) -> Uploaded:
        """Compare an object, uploaded in parts of `part` bytes, with a file: size, and SHA-256 or else MD5."""
        size = path.stat().st_size
        head = self._require_head(key, size)
        parts = -(-size // part) if size > part else 0
        found = head.get("ChecksumSHA256")
        verified: Literal["sha256", "md5"] = "sha256" if found is not None else "md5"
        pieces = (_read(path, number * part, part) for number in range(parts or 1))
        digests = [hashlib.new(verified, piece, usedforsecurity=False).digest() for piece in pieces]
        if found is None:
            found, expected = str(head.get("ETag", "")).strip('"'), _entity_tag(digests, parts)
        else:
            expected = _checksum(digests)
        if found != expected:
            raise AwsError(
                f"{self.url(key)} cannot be verified: its {verified.upper()} is {found}, expected {expected}"
            )
        with path.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest()
        return Uploaded(url=self.url(key), size=size, sha256=whole, parts=parts, verified=verified)

    def _require_head(self, key: str, size: int) -> dict[str, Any]:
        head = self._head(key)
        if head is None:
            raise AwsError(
                f"{self.url(key)} was uploaded, but cannot be verified: HEAD finds no such object, or is denied"
            )
        if head["ContentLength"] != size:
            raise AwsError(f"{self.url(key)} has {head['ContentLength']} bytes instead of {size}")
        return head

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
            if operation == "head_object" and str(details.get("Error", {}).get("Code")) in ABSENT:
                raise _Absent from error
            raise explain(error, f"{operation} on {self.url(key)}", "--s3-") from error
        return answer


class _Absent(Exception):
    """HEAD finds no object, or may not."""


class _Part(io.BytesIO):
    """The body of a request, which breaks off when the upload has ended: an interrupted program does not wait."""

    def __init__(self, data: bytes, ended: threading.Event) -> None:
        super().__init__(data)
        self._ended = ended

    def read(self, size: int | None = -1, /) -> bytes:
        if self._ended.is_set():
            raise OSError("the upload has ended")
        return super().read(size)


def _read(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _checksum(digests: Sequence[bytes]) -> str:
    """The SHA-256 that S3 reports for an object: its own, or that of the SHA-256 of its parts."""
    if len(digests) == 1:
        return _text(digests[0])
    return f"{_text(hashlib.sha256(b''.join(digests)).digest())}-{len(digests)}"


def _entity_tag(digests: Sequence[bytes], parts: int) -> str:
    """The entity tag that servers without other checksums give an object: its MD5, or that of the MD5s of its parts."""
    if not parts:
        return digests[0].hex()
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{parts}"
