"""A record judged: what its rules find, and whether it is still what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.checks import engine
from rollbook.checks.run_data import RunData, open_run_data
from rollbook.checks.verify import Verified
from rollbook.checks.verify import verify as verified
from rollbook.journal.state import is_unfinished
from rollbook.mlperf import rounds
from rollbook.records.findings import Findings

__all__ = ["check", "run_data_of", "verify"]


def check(record: Path | str, *, baseline: Path | str | None = None) -> Findings:
    """What every rule says of a record or a snapshot file, worst first; with `baseline`, also against that one."""
    other = None if baseline is None else run_data_of(Path(baseline))
    return engine.check(run_data_of(Path(record), baseline=other))


def verify(record: Path | str, allowed_signers: Path | str | None = None) -> Verified:
    """Whether a record is what its manifest says: its `problems` are none where it is.

    With a file of allowed signers (ssh-keygen(1)) a record that none of them signed has one.
    """
    return verified(Path(record), None if allowed_signers is None else Path(allowed_signers))


def run_data_of(path: Path, **options: Any) -> RunData:
    """A record or a snapshot file as rules see it; a record that nobody finished is finished first."""
    if is_unfinished(path):
        from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB takes its time to import

        open_record(path)
    options.setdefault("mlperf_round", rounds.load())
    return open_run_data(path, **options)
