"""Whether the tables of a record hold all that its journal has, so that the journal can go."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb

from rollbook.errors import RecordError
from rollbook.journal.log import failure
from rollbook.journal.survey import Survey
from rollbook.tables.quoting import parquet
from rollbook.tables.seal import Sealed, seal

__all__ = ["doubts"]


def doubts(found: Survey, sealed: Sealed, path: Path) -> list[str]:
    """Why the journal of the record at `path` must stay, in words; empty where it may go.

    The journal is decoded a second time into tables of its own, and both are read back from the disk: the names and
    types of the columns, and for every host and source the number of rows and a checksum over all values must be the
    same. A journal with damaged entries, with samples that could not be inflated, with samples or facts that a parser
    refused, or that a collector left behind when it died, is the only evidence of what is missing: it stays.
    """
    why = []
    if not found.ended:
        why.append(failure(found.directory) or "the collector died")
    if found.damaged:
        why.append(f"{found.damaged} entries are damaged")
    if sealed.lost.total() or sealed.refused.total():
        why.append(f"{sealed.lost.total() + sealed.refused.total()} samples could not be read")
    if refused := sum(host.refused for host in found.hosts):
        why.append(f"facts that could not be read: {refused}")
    return why or _differences(found, path)


def _differences(found: Survey, path: Path) -> list[str]:
    again = path / ".again"
    try:
        seal(found, again, max_samples=int(found.begin.get("max_samples") or 0))
        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            sides = [_content(connection, directory) for directory in (path / "series", again)]
    except (duckdb.Error, RecordError) as error:
        return [f"the tables cannot be read back: {error}"]
    finally:
        shutil.rmtree(again, ignore_errors=True)
    names = sorted(name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name))
    return [f"{name} does not read back as it was decoded" for name in names]


def _content(connection: duckdb.DuckDBPyConnection, directory: Path) -> dict[str, Any]:
    """Of each table its columns, and of each host the number of its rows and the sum of their hashes."""
    content = {}
    for path in sorted(directory.glob("*.parquet")):
        table = parquet(path)
        columns = connection.execute(f"DESCRIBE FROM {table}").fetchall()
        rows = f"SELECT host, count(*), sum(hash(one)::HUGEINT) FROM {table} one GROUP BY host ORDER BY host"  # noqa: S608
        content[path.stem] = columns, connection.execute(rows).fetchall()
    return content
