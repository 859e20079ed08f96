"""The end of an issue report: the files of a record, analysis, manifest, signature, archive."""

from __future__ import annotations

import shutil
from pathlib import Path

from rollbook.bundle.analysis import analyse
from rollbook.bundle.archive import pack
from rollbook.bundle.directory import BundleDirectory, archive_suffix
from rollbook.errors import RecordError
from rollbook.records.signing import sign, signature_file

__all__ = ["finish"]


def finish(directory: BundleDirectory, *, key: Path | None = None, archive: Path | None = None) -> tuple[Path, str]:
    """Complete the record; returns the directory, or the archive, which replaces it, and why it was not analysed.

    Raises `RecordError` if the bundle cannot be written.
    """
    directory.write_record()
    manifest = directory.path / "manifest.json"
    signature_file(manifest).unlink(missing_ok=True)  # of a bundle that is resumed
    manifest.unlink(missing_ok=True)
    problem = ""
    try:
        analyse(directory.path)
    except RecordError as error:  # the evidence is worth more than the findings
        problem = str(error)
    directory.record.write_manifest()
    if key is not None:
        sign(manifest, key)
    if archive is None or not archive_suffix(archive):
        return directory.path, problem
    pack(directory.path, archive)
    shutil.rmtree(directory.path)
    return archive, problem
