"""Uploads a finished issue report as one archive."""

from __future__ import annotations

import shutil
from pathlib import Path

from rollbook.aws.api import Account
from rollbook.aws.objects import Bucket, S3Path, Uploaded
from rollbook.bundle.archive import pack
from rollbook.bundle.reading import Bundle, archive_suffix
from rollbook.bundle.receive import file_name
from rollbook.errors import RecordError, UsageError
from rollbook.files import temporary_directory

__all__ = ["parse_target", "require_target", "upload_bundle"]


def parse_target(text: str) -> S3Path:
    """The bucket and prefix to upload below; raises `UsageError`."""
    target = S3Path.parse(text)
    if archive_suffix(Path(target.prefix)):
        raise UsageError(f"{text} names an object: give its prefix only, the archive keeps its name (see -o)")
    return target


def require_target(text: str, archive: Path | None, account: Account) -> None:
    """Raise an error if the upload cannot succeed, before anything is collected."""
    target = parse_target(text)
    bucket = Bucket(account, target.bucket)
    bucket.require_writable(target.key(archive.name if archive else "bundle.tar.gz"))
    if archive is not None:
        bucket.require_absent(target.key(archive.name))


def upload_bundle(
    bundle: Path | str,
    to: str,
    *,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> Uploaded:
    """Upload an issue report, a directory or an archive, below `to` (`s3://bucket/prefix`), and verify it.

    A directory is packed first. The local files stay as they are, and an existing object is not replaced. Raises
    `AwsError`, a `UsageError`, for credentials, permissions and names, `NoHostReached` if the server is not reached,
    and `RecordError` for a bundle that cannot be read.
    """
    path, target = Path(bundle), parse_target(to)
    bucket = Bucket(Account(region, profile, endpoint_url), target.bucket)
    if path.is_file():
        if not archive_suffix(path):
            raise UsageError(f"{path} is neither an issue report nor an archive of one")
        return bucket.upload(path, target.key(path.name))
    suffix = ".tar.zst" if shutil.which("zstd") else ".tar.gz"
    name = file_name(Bundle(path).summary.report_id) + suffix
    try:
        with temporary_directory(path.resolve().parent) as scratch:
            pack(path.resolve(), scratch / name)
            return bucket.upload(scratch / name, target.key(name))
    except OSError as error:
        raise RecordError(f"cannot pack {path}: {error.strerror}") from error
