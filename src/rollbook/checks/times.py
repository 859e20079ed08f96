"""When something happened that start and end only tell the sum of, as far as the series of the run shows it.

A finding whose evidence has `start_ns` and `end_ns`, on the collector's clock, is shown at that place of the time line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rollbook.records.findings import Change
from rollbook.sources import catalogue
from rollbook.sources.base import compare_of
from rollbook.tables.quoting import parquet, quoted

__all__ = ["rise", "span"]

RISES = """
SELECT min(epoch_ns(since)), max(epoch_ns(ts)) FROM (
    SELECT host, ts, {column} AS count, lag(ts) OVER samples AS since, lag({column}) OVER samples AS before
    FROM {table} WHERE list_contains(?, host) AND ({key}) = ?
    WINDOW samples AS (PARTITION BY host ORDER BY ts)
) WHERE count > before
"""


def span(start_ns: int, end_ns: int) -> dict[str, int]:
    """A stretch of time as evidence."""
    return {"start_ns": start_ns, "end_ns": end_ns}


def rise(record: Path | None, change: Change, hosts: Sequence[str]) -> dict[str, int]:
    """From the last sample before a count rose on any of the hosts to the sample that saw its last rise.

    Empty where the source was not sampled, or the count rose outside the series.
    """
    source, *_, column = change.field.split(".")
    table = record / "series" / f"{source}.parquet" if record else None
    if table is None or not table.exists():
        return {}
    import duckdb  # noqa: PLC0415 - only a count that rose needs it

    keys = [name for name, how in compare_of(catalogue.source(source).row_type).items() if how.mode == "key"]
    key = " || ' ' || ".join(f"{quoted(name)}::VARCHAR" for name in keys) or "''"
    query = RISES.format(column=quoted(column), key=key, table=parquet(table))
    with duckdb.connect() as connection:
        try:
            found = connection.execute(query, [list(hosts), change.row]).fetchone()
        except duckdb.Error:  # no sample had the column, or the table cannot be read: the finding stands without it
            return {}
    return span(*found) if found and None not in found else {}
