"""Judges a record: what the rules find, and whether its files are unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.checks import engine
from rollbook.checks.run_data import RunData, open_run_data
from rollbook.checks.verify import Verified
from rollbook.checks.verify import verify as verify_record
from rollbook.journal.state import is_unfinished
from rollbook.mlperf import rounds
from rollbook.records.findings import Findings
from rollbook.records.locate import locate_record

__all__ = ["check", "run_data_of", "verify"]


def check(record: Path | str, *, baseline: Path | str | None = None) -> Findings:
    """Apply every rule to a record or a snapshot file, also against a `baseline` if given; worst outcome first."""
    other = None if baseline is None else run_data_of(Path(baseline))
    return engine.check(run_data_of(Path(record), baseline=other))


def verify(record: Path | str, allowed_signers: Path | str | None = None) -> Verified:
    """Compare a record with its manifest; `problems` is empty if every file is unchanged.

    With a file of allowed signers (ssh-keygen(1)), a record that none of them signed has a problem.
    """
    return verify_record(locate_record(Path(record)), None if allowed_signers is None else Path(allowed_signers))


def run_data_of(path: Path, **options: Any) -> RunData:
    """A record or a snapshot file as rules see it; an unfinished record is finished as `open_record` does."""
    path = locate_record(path)
    if is_unfinished(path):
        from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB is slow to import

        open_record(path)
    options.setdefault("mlperf_round", rounds.load())
    return open_run_data(path, **options)
