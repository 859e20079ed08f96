"""The end of an issue report: the files of a record, analysis, manifest, signature, archive."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from rollbook.bundle.analysis import apply_rules
from rollbook.bundle.archive import pack
from rollbook.bundle.directory import BundleDirectory
from rollbook.bundle.mark_key import forget_key
from rollbook.bundle.obfuscate import obfuscate
from rollbook.errors import RecordError
from rollbook.records.findings import Findings
from rollbook.records.signing import sign, signature_file

__all__ = ["Finished", "finish"]


class Finished(NamedTuple):
    """The directory or archive of a bundle, and its findings or why there are none."""

    path: Path
    findings: Findings | None
    problem: str


def finish(
    directory: BundleDirectory,
    *,
    names: Path | None = None,
    key: Path | None = None,
    archive: Path | None = None,
) -> Finished:
    """Complete the record and analyse it; an archive replaces the directory.

    With `names`, host names, addresses and users are replaced, and that file has the map. Raises `RecordError` if the
    bundle cannot be written.
    """
    directory.write_record()
    if names is not None:
        obfuscate(directory.path, names)
        forget_key(directory.request.id)
    manifest = directory.path / "manifest.json"
    signature_file(manifest).unlink(missing_ok=True)  # of a bundle that is resumed
    manifest.unlink(missing_ok=True)
    findings, problem = None, ""
    try:
        findings = apply_rules(directory.path)
    except RecordError as error:  # the evidence is worth more than the findings
        problem = str(error)
    directory.record.write_manifest()
    if key is not None:
        sign(manifest, key)
    if archive is None:
        return Finished(directory.path, findings, problem)
    pack(directory.path, archive)
    forget_key(directory.request.id)
    shutil.rmtree(directory.path)
    return Finished(archive, findings, problem)
