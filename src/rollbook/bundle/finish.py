"""The end of an issue report: the files of a record, analysis, manifest, signature, archive."""

from __future__ import annotations

import shutil
from pathlib import Path

from rollbook.bundle.archive import pack
from rollbook.bundle.directory import BundleDirectory, archive_suffix
from rollbook.records.findings import Findings
from rollbook.records.signing import sign

__all__ = ["analyse_bundle", "finish"]


def analyse_bundle(path: Path) -> Findings:
    """Apply the rules to a bundle and write `findings.json` and `index.html` into it."""
    from rollbook.bundle.analysis import analyse  # noqa: PLC0415 - not every bundle is analysed

    return analyse(path)


def finish(directory: BundleDirectory, *, key: Path | None = None, archive: Path | None = None) -> Path:
    """Complete the record; returns the directory, or the archive, which replaces it. Raises `RecordError`."""
    directory.write_record()
    directory.record.write_manifest()
    if key is not None:
        sign(directory.path / "manifest.json", key)
    if archive is None or not archive_suffix(archive):
        return directory.path
    pack(directory.path, archive)
    shutil.rmtree(directory.path)
    return archive
