"""Records as rules see them, for the commands that compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.checks.subject import Subject, open_subject
from rollbook.series.journal import unfinished

__all__ = ["subject_of"]


def subject_of(path: Path, **options: Any) -> Subject:
    """A record or a snapshot file; a record that nobody finished is finished first."""
    if unfinished(path):
        from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB takes its time to import

        open_record(path)
    return open_subject(path, **options)
