"""Analyses an issue report: every rule over its snapshot, its logs and its values; findings and a page as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.bundle.directory import adopt_states
from rollbook.bundle.evidence import BundleData
from rollbook.bundle.page import write_page
from rollbook.bundle.reading import Bundle, archive_suffix, unpack
from rollbook.bundle.rules import rules
from rollbook.checks import engine
from rollbook.errors import RecordError, UsageError
from rollbook.files import write_file
from rollbook.records.document import encode, read
from rollbook.records.findings import Findings
from rollbook.records.layout import update_manifest
from rollbook.records.locate import MANIFEST
from rollbook.records.reading import require_own
from rollbook.records.record import RecordHosts
from rollbook.records.signing import is_signed

__all__ = ["analyse", "apply_rules", "open_bundle_data"]


def analyse(bundle: Path) -> Findings:
    """Apply all rules to an issue report; writes `findings.json` and `index.html` into it and returns the findings.

    An archive is unpacked next to itself first, into a directory of its name. Raises `UsageError` for a report that is
    signed, because the signature covers its files, and `RecordError` for one of another user and for one that cannot
    be read or written. The summary of one that was interrupted gets what is known of its nodes first.
    """
    directory = _directory(bundle)
    require_own(directory, "analyse a copy")
    if not is_signed(directory):
        adopt_states(directory)
    return apply_rules(directory)


def apply_rules(directory: Path) -> Findings:
    """As `analyse`, for a report that this process has written."""
    if is_signed(directory):
        raise UsageError(f"{directory} is signed; writing its findings would invalidate the signature: analyse a copy")
    run = open_bundle_data(directory)
    findings = engine.check(run)
    write_file(directory / "findings.json", encode(findings))
    write_page(run, findings, directory / "index.html")
    if (directory / MANIFEST).exists():
        for name in ("findings.json", "index.html"):
            update_manifest(directory, name)
    return findings


def open_bundle_data(directory: Path, **options: Any) -> BundleData:
    """An issue report as rules see it; without `hosts.json`, as when collection was interrupted, without facts."""
    bundle = Bundle(directory)
    path = directory / "hosts.json"
    hosts = read(path, RecordHosts) if path.exists() else RecordHosts(started_ns=0, ended_ns=0, start=[])
    return BundleData(bundle, hosts, rules(), **options)


def _directory(bundle: Path) -> Path:
    """The directory of a report, unpacked if it is an archive."""
    suffix = archive_suffix(bundle)
    if not suffix or bundle.is_dir():
        return bundle
    target = bundle.with_name(bundle.name.removesuffix(suffix))
    if target.exists():
        raise RecordError(f"{target} already exists: analyse it, or remove it to unpack {bundle.name} again")
    return unpack(bundle, target)
