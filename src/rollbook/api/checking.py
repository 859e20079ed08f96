"""Judges a record: what the rules find, and whether its files are unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.checks import engine
from rollbook.checks.subject import Subject, open_subject
from rollbook.checks.verify import Verified
from rollbook.checks.verify import verify as verify_record
from rollbook.journal.log import unfinished
from rollbook.records.findings import Findings
from rollbook.records.locate import locate_record

__all__ = ["check", "subject_of", "verify"]


def check(record: Path | str, *, baseline: Path | str | None = None) -> Findings:
    """Apply every rule to a record or a snapshot file, also against a `baseline` if given; worst outcome first."""
    other = None if baseline is None else subject_of(Path(baseline))
    return engine.check(subject_of(Path(record), baseline=other))


def verify(record: Path | str, allowed_signers: Path | str | None = None) -> Verified:
    """Compare a record with its manifest; `problems` is empty if every file is unchanged.

    With a file of allowed signers (ssh-keygen(1)), a record that none of them signed has a problem.
    """
    return verify_record(locate_record(Path(record)), None if allowed_signers is None else Path(allowed_signers))


def subject_of(path: Path, **options: Any) -> Subject:
    """A record or a snapshot file as rules see it; an unfinished record is finished as `open_record` does."""
    path = locate_record(path)
    if unfinished(path):
        from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB is slow to import

        open_record(path)
    return open_subject(path, **options)
