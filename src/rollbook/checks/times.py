"""Times of findings, read from the tables of the run.

A finding with `start_ns` and `end_ns` in its evidence, on the collector's clock, is marked on the page's time line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rollbook.records.findings import Change
from rollbook.sources import catalogue
from rollbook.sources.base import keys_of
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
    """A time range as evidence."""
    return {"start_ns": start_ns, "end_ns": end_ns}


def rise(record: Path | None, change: Change, hosts: Sequence[str]) -> dict[str, int]:
    """The time range in which a counter rose on these hosts: from the sample before the first rise to the last one.

    Empty if the source was not sampled, or if the counter rose before the first or after the last sample.
    """
    source, *_, column = change.field.split(".")
    table = record / "series" / f"{source}.parquet" if record else None
    if table is None or not table.exists():
        return {}
    import duckdb  # noqa: PLC0415 - rarely needed, and slow to import

    from rollbook.tables.reasons import UNREADABLE  # noqa: PLC0415

    keys = keys_of(catalogue.source(source).row_type)
    key = " || ' ' || ".join(f"{quoted(name)}::VARCHAR" for name in keys) or "''"
    query = RISES.format(column=quoted(column), key=key, table=parquet(table))
    with duckdb.connect() as connection:
        try:
            found = connection.execute(query, [list(hosts), change.row]).fetchone()
        except UNREADABLE:  # the column is missing or the table is unreadable: the finding has no time
            return {}
    return span(*found) if found and None not in found else {}
