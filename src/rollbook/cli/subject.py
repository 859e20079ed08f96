"""Records as rules see them, for the commands that compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.checks.subject import Subject, open_subject

__all__ = ["subject_of"]


def subject_of(path: Path, **options: Any) -> Subject:
    """A record or a snapshot file; a record that nobody finished is finished first."""
    whole = any(path.glob("*_metadata.json")) and ((path / "manifest.json").exists() or not (path / "raw").exists())
    if path.is_dir() and not whole:
        from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB takes its time to import

        open_record(path)
    return open_subject(path, **options)
