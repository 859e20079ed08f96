"""The one place where the page meets the series: views of a record's samples, cut into cells of time."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rollbook.hosts import natural
from rollbook.metrics.grid import Axis, Grid, Row, Scale
from rollbook.records.record import Record
from rollbook.tables.quoting import quoted

if TYPE_CHECKING:
    import duckdb

__all__ = ["Tables", "open_tables"]


class Tables:
    """Rates of one run by host, and by device."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def columns(self, view: str) -> set[str]:
        """The columns of a view; empty where there is no such view."""
        found = self._connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = ?", [view]
        ).fetchall()
        return {name for (name,) in found}

    def devices(self, view: str) -> list[Row]:
        """The devices of a view, in natural order."""
        found = self._connection.execute(f"SELECT DISTINCT host, device FROM {quoted(view)}").fetchall()  # noqa: S608 - quoted
        return sorted((Row(*names) for names in found), key=lambda row: (natural(row.host), natural(row.device)))

    def grids(self, view: str, columns: Sequence[str], axis: Axis, rows: Sequence[Row]) -> dict[str, Grid]:
        """For each column that has a sample the cells of all rows: least, mean and greatest in every bucket."""
        self._cut(view, columns, axis, rows, "device" if any(row.device for row in rows) else "''")
        extents = ", ".join(f"min(low{at}), max(high{at})" for at in range(len(columns)))
        ends = self._connection.execute(f"SELECT {extents} FROM cut").fetchall()[0]  # noqa: S608 - our own names
        return {
            name: self._grid(at, (low, high), axis, rows)
            for at, (name, low, high) in enumerate(zip(columns, ends[::2], ends[1::2], strict=True))
            if low is not None
        }

    def _cut(self, view: str, columns: Sequence[str], axis: Axis, rows: Sequence[Row], device: str) -> None:
        """Make the table `cut`: a line for each row and bucket, numbered in that order, with samples or without."""
        cells = ", ".join(
            f"min({name}) AS low{at}, avg({name}) AS mean{at}, max({name}) AS high{at}"
            for at, name in enumerate(map(quoted, columns))
        )
        query = f"""
            CREATE OR REPLACE TEMP TABLE cut AS
            WITH places AS (
                SELECT unnest(?::VARCHAR[]) AS host, unnest(?::VARCHAR[]) AS device, unnest(range(?)) AS place
            ), cells AS (
                SELECT host, {device} AS device, (epoch_ns(ts) - ?) // ? AS bucket, {cells}
                FROM {quoted(view)} GROUP BY ALL
            )
            SELECT place * ? + buckets.bucket AS number, * EXCLUDE (host, device, place, bucket)
            FROM places CROSS JOIN (SELECT unnest(range(?)) AS bucket) buckets
            LEFT JOIN cells USING (host, device, bucket)
            ORDER BY number
        """  # noqa: S608 - quoted
        names = [[row.host for row in rows], [row.device for row in rows], len(rows)]
        self._connection.execute(query, [*names, axis.start_ns, axis.width_ns, axis.buckets, axis.buckets])

    def _grid(self, at: int, extent: tuple[float, float], axis: Axis, rows: Sequence[Row]) -> Grid:
        scale = Scale.of(*extent)
        wanted = [f"coalesce(mean{at}, 'nan'::DOUBLE)"]
        wanted += [scale.sql(f"{plane}{at}") for plane in (("mean", "low", "high") if axis.beats > 1 else ("mean",))]
        lists = ", ".join(f"list({value} ORDER BY number)" for value in wanted)
        mean, *steps = self._connection.execute(f"SELECT {lists} FROM cut").fetchall()[0]  # noqa: S608 - our own names
        starts = range(0, len(mean), axis.buckets)
        return Grid(
            axis,
            list(rows),
            extent,
            scale,
            [array("d", mean[start : start + axis.buckets]) for start in starts],
            [[plane[start : start + axis.buckets] for start in starts] for plane in steps],
        )


@contextlib.contextmanager
def open_tables(run: Record) -> Iterator[Tables | None]:
    """The series of a record; None where it has none."""
    if not run.series_files():
        yield None
        return
    from rollbook.sql import connection as store  # noqa: PLC0415 - DuckDB takes a tenth of a second to import

    with store.connect(run, whole=True) as connection:
        yield Tables(connection)
