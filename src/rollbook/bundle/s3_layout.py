"""An issue report of a HyperPod cluster in S3, in the layout of the HyperPod collector: one archive per node.

    PREFIX/CLUSTER/TIME/
      instances/GROUP_INSTANCE.tar.gz   what a node sent
      kubectl_resources.tar.gz          what kubectl read
      report.tar.gz                     everything else: findings, page, manifest, Slurm, the service of HyperPod
      collector_script.sh               what ran on the nodes
      summary.json                      written last: if it exists, the upload is complete

Entries have the paths of the bundle, so that all archives, unpacked into one directory, are the bundle again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rollbook.aws.api import Account
from rollbook.aws.objects import Bucket, S3Path, Uploaded
from rollbook.bundle.archive import pack_files
from rollbook.bundle.delivery import Delivery, archive_name, reserved
from rollbook.bundle.directory import REDACTIONS, BundleDirectory
from rollbook.bundle.reading import Bundle
from rollbook.bundle.receive import file_name
from rollbook.bundle.request import Request
from rollbook.bundle.script import NAME, collector_script
from rollbook.bundle.summary import BundleSummary
from rollbook.errors import RecordError, UsageError
from rollbook.files import temporary_directory, write_file
from rollbook.records.layout import list_files
from rollbook.times import stamp

__all__ = ["parse_layout_path", "prepare", "require_layout_path", "upload_layout"]

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


def _own_directory(cluster: str, began: dt.datetime) -> str:
    """The part of all keys that is the report's own."""
    return f"{file_name(cluster)}/{stamp(began)}"


def prepare(delivery: Delivery, directory: BundleDirectory, request: Request, timeout: float) -> Delivery:
    """Write the script of the report, and upload it if nodes download it; returns where exactly nodes deliver.

    In the script, secrets in commands of the user are masked. Raises `UsageError` if the report is in S3 already, and
    the errors of `Bucket`.
    """
    directory.identify(delivery.cluster)
    delivery = dataclasses.replace(delivery, where=_own_directory(delivery.cluster.name, directory.began))
    delivery.bucket.require_absent(delivery.key(SUMMARY))
    seconds = max(1.0, timeout - reserved(timeout))
    items, limits = request.masked().items, request.limits
    script = collector_script(items, request.window, seconds=seconds, size=limits.node_bytes)
    write_file(directory.path / NAME, script)
    if delivery.mode == "node":
        delivery.bucket.upload(directory.path / NAME, delivery.key(NAME))
    return delivery


def upload_layout(bundle: Path, to: str, account: Account, keep: Path | None = None) -> list[Uploaded]:
    """Upload the report and verify every object, the summary last; with `keep`, the same files stay below it.

    Archives that nodes uploaded stay as they are. Without a summary, existing objects are from an interrupted
    upload of this report: what is missing or different is uploaded. Raises `UsageError` for a bundle of another kind,
    `RecordError` if files cannot be written, and the errors of `Bucket`.
    """
    target, summary = parse_layout_path(to), Bundle(bundle).summary
    if not summary.cluster_id:
        raise UsageError(f"{bundle} is not an issue report of a HyperPod cluster: upload it as one archive")
    where = _own_directory(summary.cluster_name, summary.timestamp)
    bucket = Bucket(account, target.bucket)
    bucket.require_absent(target.key(f"{where}/{SUMMARY}"))
    try:
        with _directory(bundle, keep and keep / where) as directory:
            done = []
            for name, files in _archives(bundle, summary).items():
                key = target.key(f"{where}/{name}")
                known = _delivered(summary, bucket.url(key))
                if known is None or not bucket.has(key, known):
                    (directory / name).parent.mkdir(mode=0o700, exist_ok=True)
                    pack_files(files, directory / name)
                    known = bucket.upload(directory / name, key, again=True)
                done.append(known)
            for name in (NAME, SUMMARY):
                if (bundle / name).exists():
                    write_file(directory / name, (bundle / name).read_bytes())
                    done.append(bucket.upload(directory / name, target.key(f"{where}/{name}"), again=True))
            return done
    except OSError as error:
        raise RecordError(f"cannot pack {bundle}: {error.strerror}") from error


def _delivered(summary: BundleSummary, url: str) -> Uploaded | None:
    """The object that a node uploaded there, if one did."""
    found = [node.archive for node in summary.results if node.archive is not None and node.archive.url == url]
    return next(
        (Uploaded(url=url, size=one.size, sha256=one.sha256, parts=one.parts, verified="sha256") for one in found), None
    )


def _archives(bundle: Path, summary: BundleSummary) -> dict[str, dict[str, Path]]:
    """The files of each archive, by their paths in the bundle."""
    instances = {
        PurePosixPath(file.path).parts[1]: node
        for node in summary.results
        for item in node.items
        for file in item.files
    }
    kubernetes = {item.id for item in summary.cluster if item.id.startswith("kubernetes")}
    found: dict[str, dict[str, Path]] = {}
    for name, path in list_files(bundle).items():
        first, second, *rest = *PurePosixPath(name).parts, ""
        rest = rest[:-1]
        node = instances.get(second) if first == "nodes" else None
        if node is not None and (rest != [REDACTIONS] or node.archive is None or not node.archive.url):
            archive = archive_name(node.node, node.node_group, node.instance_id)
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
    keep.mkdir(mode=0o700, parents=True, exist_ok=True)  # archives of nodes may exist already
    yield keep
