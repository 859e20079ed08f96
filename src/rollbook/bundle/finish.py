"""The end of an issue report: the files of a record, analysis, manifest, signature, archive."""

from __future__ import annotations

import shutil
from pathlib import Path

from rollbook.bundle.analysis import apply_rules
from rollbook.bundle.archive import pack
from rollbook.bundle.directory import SUMMARY, BundleDirectory
from rollbook.bundle.mark_key import forget_key
from rollbook.bundle.obfuscate import obfuscate
from rollbook.bundle.summary import BundleSummary
from rollbook.errors import RecordError, UsageError
from rollbook.records.document import read
from rollbook.records.findings import Findings
from rollbook.records.layout import require_outside
from rollbook.records.locate import MANIFEST
from rollbook.records.signing import sign, signature_file

__all__ = ["finish", "require_new_archive"]


def require_new_archive(bundle: Path, archive: Path) -> None:
    """Raise `UsageError` for an archive that exists, or inside the bundle, whose directory is removed in the end."""
    require_outside(bundle, archive)
    if archive.exists():
        raise UsageError(f"{archive} exists; it is not replaced")


def finish(
    directory: BundleDirectory,
    *,
    names: Path | None = None,
    key: Path | None = None,
    archive: Path | None = None,
) -> tuple[Path, BundleSummary, Findings | None, str]:
    """Complete and analyse a bundle; returns its path, its summary, its findings, and the reason if there are none.

    With `names`, host names, addresses and users are replaced, in what is returned too, and that file has the map. With
    `archive`, the directory is packed into that file and removed. Raises `RecordError` if the bundle cannot be written,
    and the errors of `require_new_archive`.
    """
    if archive is not None:
        require_new_archive(directory.path, archive)
    directory.write_record()
    if names is not None:
        obfuscate(directory.path, names)
        forget_key(directory.request.id)
    summary = read(directory.path / SUMMARY, BundleSummary)
    manifest = directory.path / MANIFEST
    signature_file(manifest).unlink(missing_ok=True)  # of a bundle that is resumed
    manifest.unlink(missing_ok=True)
    findings, problem = None, ""
    try:
        findings = apply_rules(directory.path)
    except RecordError as error:  # the evidence is worth more than the findings
        problem = str(error)
    directory.record.write_manifest()
    if key is not None:
        sign(directory.path, key)
    if archive is None:
        return directory.path, summary, findings, problem
    pack(directory.path, archive)
    forget_key(directory.request.id)
    shutil.rmtree(directory.path)
    return archive, summary, findings, problem
