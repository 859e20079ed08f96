"""Checks that the tables of a record hold everything in its journal, before the journal is deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import duckdb

from rollbook.clean import count_text
from rollbook.errors import RecordError
from rollbook.journal.state import failure_of
from rollbook.journal.survey import Survey
from rollbook.records.record import LossKind
from rollbook.tables.parquet import connect
from rollbook.tables.quoting import parquet
from rollbook.tables.reasons import UNREADABLE
from rollbook.tables.seal import Sealed, seal

__all__ = ["reasons_to_keep"]

ONLY_IN_JOURNAL: tuple[LossKind, ...] = ("undecodable", "rejected", "excess")
"""Losses of samples that the journal has."""


def reasons_to_keep(found: Survey, sealed: Sealed, path: Path) -> list[str]:
    """Why the journal of the record at `path` must be kept; empty if it may be deleted.

    The journal is decoded again into separate tables, and both sets are read back: the names and types of the columns,
    and for every host and source the number of rows and a checksum over all values must be equal. The kernel is asked
    to drop the tables from its page cache first, so that they come from the disk where the file system supports it. A
    journal with damaged entries, with samples that could not be inflated, with samples or facts that a parser rejected,
    with more columns than a table may have, or of a collector that died, is the only evidence of what is missing and is
    kept.
    """
    why = []
    if not found.ended:
        why.append(failure_of(found.directory) or "the collector died")
    if found.damaged:
        why.append(f"{found.damaged} entries are damaged")
    if found.missing:
        why.append(f"{count_text(found.missing, 'segment')} missing")
    losses = [loss for sources in sealed.losses.values() for source in sources for loss in source.losses]
    if without_rows := sum(loss.samples for loss in losses if loss.kind in ONLY_IN_JOURNAL):
        why.append(f"{without_rows} samples could not be turned into rows")
    why += [f"{table} lacks {count_text(count, 'column')}" for table, count in sealed.left_out.items()]
    if refused := sum(host.refused for host in found.hosts):
        why.append(f"facts that could not be read: {refused}")
    return why or _differences(found, path)


def _differences(found: Survey, path: Path) -> list[str]:
    again = path / ".again"
    try:
        seal(found, again, max_samples=int(found.begin.get("max_samples") or 0))
        with connect() as connection:
            sides = [_content(connection, directory) for directory in (path / "series", again)]
    except (*UNREADABLE, RecordError) as error:
        return [f"the tables cannot be read back: {error}"]
    finally:
        shutil.rmtree(again, ignore_errors=True)
    names = sorted(name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name))
    return [f"{name} does not read back as it was decoded" for name in names]


def _content(connection: duckdb.DuckDBPyConnection, directory: Path) -> dict[str, Any]:
    """The columns of each table, and for each host the number of its rows and the sum of their hashes."""
    content = {}
    for path in sorted(directory.glob("*.parquet")):
        _drop_cache(path)
        table = parquet(path)
        columns = connection.execute(f"DESCRIBE FROM {table}").fetchall()
        rows = f"SELECT host, count(*), sum(hash(one)::HUGEINT) FROM {table} one GROUP BY host ORDER BY host"  # noqa: S608
        content[path.stem] = columns, connection.execute(rows).fetchall()
    return content


def _drop_cache(path: Path) -> None:
    """Drop a file from the page cache; only pages that are on the disk can be dropped, so it is synced first."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
