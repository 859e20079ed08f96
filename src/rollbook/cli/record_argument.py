"""The argument RECORD: a path, `latest`, or the start of a record's name or time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rollbook.cli.configuration import results_directory

__all__ = ["RecordPath", "find"]


class RecordPath(click.Path):
    """A path to a record, or a name that is looked up in the results directory."""

    name = "record"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the record; raises `UsageError` if the name is ambiguous or unknown."""
        del param, ctx
        return find(os.fspath(value))


def find(text: str) -> Path:
    """The record that a text means; a text with a slash that matches no record is left to the command to explain."""
    from rollbook.api.listing import find_record  # noqa: PLC0415 - most commands are given a path

    if os.path.lexists(text) or text.startswith((".", "/", "~")):
        return Path(text)
    return find_record(text, results_directory())
