"""The arguments RECORD and BUNDLE: a path, `latest`, or the start of a record's name or time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rollbook.cli.configuration import results_directory
from rollbook.errors import RecordError

__all__ = ["BundlePath", "RecordPath", "find"]


class RecordPath(click.Path):
    """A path to a record, or a name that is looked up in the results directory."""

    name = "record"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the record; raises `UsageError` if the name is ambiguous, `RecordError` if it is unknown."""
        del param, ctx
        return find(os.fspath(value))


class BundlePath(RecordPath):
    """An issue report: a directory, which is found as a record is, or an archive."""

    name = "bundle"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the report; raises the errors of a record, and `RecordError` if it is something else."""
        from rollbook.bundle.reading import archive_suffix, is_bundle  # noqa: PLC0415 - few commands read a bundle
        from rollbook.records.locate import locate_record  # noqa: PLC0415

        path = locate_record(super().convert(value, param, ctx))
        if not path.exists():
            raise RecordError(f"{path} does not exist")
        if not (archive_suffix(path) if path.is_file() else is_bundle(path)):
            raise RecordError(f"{path} is neither an issue report nor an archive of one")
        return path


def find(text: str) -> Path:
    """The record that a text means, as for the Python functions, but in the configured results directory."""
    from rollbook.api.listing import record_path  # noqa: PLC0415 - for completion it is not needed

    return record_path(text, results_directory)
