"""An issue report of a HyperPod cluster in S3, in the layout of the HyperPod collector: one archive per node.

    PREFIX/CLUSTER/TIME/
      instances/GROUP_INSTANCE.tar.gz   what a node sent
      kubectl_resources.tar.gz          what kubectl read
      report.tar.gz                     everything else: findings, page, manifest, Slurm, the service of HyperPod
      summary.json                      written last: where it is, everything has arrived

Entries have the paths of the bundle, so that all archives, unpacked into one directory, are the bundle again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rollbook.aws.api import Account
from rollbook.aws.objects import Bucket, S3Path, Uploaded
from rollbook.bundle.archive import pack_files
from rollbook.bundle.reading import Bundle
from rollbook.bundle.receive import file_name
from rollbook.bundle.summary import BundleSummary
from rollbook.errors import RecordError, UsageError
from rollbook.files import temporary_directory, write_file
from rollbook.records.layout import list_files
from rollbook.times import stamp

__all__ = ["parse_layout_path", "require_layout_path", "upload_layout"]

PREFIX = "hyperpod-issue-reports"
"""The prefix if the path is only a bucket."""
SUMMARY = "summary.json"


def parse_layout_path(text: str) -> S3Path:
    """The bucket and prefix; raises `UsageError`."""
    target = S3Path.parse(text)
    return S3Path(target.bucket, target.prefix or PREFIX)


def require_layout_path(text: str, account: Account) -> None:
    """Raise an error if objects cannot be written there, before anything is collected."""
    target = parse_layout_path(text)
    Bucket(account, target.bucket).require_writable(target.key(SUMMARY))


def upload_layout(bundle: Path, to: str, account: Account, keep: Path | None = None) -> list[Uploaded]:
    """Upload the report and verify every object, the summary last; with `keep`, the same files stay below it.

    Raises `UsageError` if `keep` has them already, `RecordError` if they cannot be written, and the errors of `Bucket`.
    """
    target, summary = parse_layout_path(to), Bundle(bundle).summary
    where = f"{file_name(summary.cluster_name)}/{stamp(summary.timestamp)}"
    bucket = Bucket(account, target.bucket)
    bucket.require_absent(target.key(f"{where}/{SUMMARY}"))
    try:
        with _directory(bundle, keep and keep / where) as directory:
            for name, files in _archives(bundle, summary).items():
                (directory / name).parent.mkdir(mode=0o700, exist_ok=True)
                pack_files(files, directory / name)
            write_file(directory / SUMMARY, (bundle / SUMMARY).read_bytes())
            names = sorted(list_files(directory), key=lambda name: name == SUMMARY)
            return [bucket.upload(directory / name, target.key(f"{where}/{name}")) for name in names]
    except OSError as error:
        raise RecordError(f"cannot pack {bundle}: {error.strerror}") from error


def _archives(bundle: Path, summary: BundleSummary) -> dict[str, dict[str, Path]]:
    """The files of each archive, by their paths in the bundle."""
    instances = {
        PurePosixPath(file.path).parts[1]: file_name(
            f"{node.node_group}_{node.instance_id}" if node.node_group else node.node
        )
        for node in summary.results
        for item in node.items
        for file in item.files
    }
    kubernetes = {item.id for item in summary.cluster if item.id.startswith("kubernetes")}
    found: dict[str, dict[str, Path]] = {}
    for name, path in list_files(bundle).items():
        first, second, *_ = *PurePosixPath(name).parts, ""
        if first == "nodes":
            archive = f"instances/{instances.get(second, second)}.tar.gz"
        elif first == "cluster" and second in kubernetes:
            archive = "kubectl_resources.tar.gz"
        else:
            archive = "report.tar.gz"
        found.setdefault(archive, {})[name] = path
    return found


@contextlib.contextmanager
def _directory(bundle: Path, keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with temporary_directory(bundle.resolve().parent) as scratch:
            yield scratch
        return
    try:
        keep.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise UsageError(f"cannot create {keep}: {error.strerror}") from error
    yield keep
