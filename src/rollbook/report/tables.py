"""The one place where the page meets the series: views of a record's samples, cut into cells of time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rollbook.hosts import natural
from rollbook.record.run import Run
from rollbook.report.grid import Axis, Grid, Row

if TYPE_CHECKING:
    import duckdb

__all__ = ["Tables", "open_tables"]

FETCH = 8192


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

    def span(self) -> tuple[int, int] | None:
        """Times of the first and the last beat, in nanoseconds."""
        first, last = self._connection.execute(
            "SELECT min(epoch_ns(ts)), max(epoch_ns(ts)) FROM rates"
        ).fetchall()[0]
        return None if first is None else (first, last)

    def rows(self, view: str, key: str = "") -> list[Row]:
        """The hosts or devices of a view, in natural order."""
        names = ", ".join(_quoted(name) for name in ("host", key) if name)
        found = self._connection.execute(f"SELECT DISTINCT {names} FROM {_quoted(view)}").fetchall()  # noqa: S608 - quoted
        return sorted((Row(*names) for names in found), key=lambda row: (natural(row.host), natural(row.device)))

    def grids(self, view: str, columns: Sequence[str], axis: Axis, rows: Sequence[Row], key: str = "") -> list[Grid]:
        """For each column the least, mean and greatest sample of every row in every bucket."""
        place = {(row.host, row.device): at for at, row in enumerate(rows)}
        grids = [Grid.empty(axis, rows) for _ in columns]
        device = _quoted(key) if key else "''"
        cells = ", ".join(f"min({name}), avg({name}), max({name})" for name in map(_quoted, columns))
        self._connection.execute(
            f"SELECT host, {device}, (epoch_ns(ts) - ?) // ? AS bucket, {cells} FROM {_quoted(view)}"  # noqa: S608 - quoted
            " WHERE bucket BETWEEN 0 AND ? GROUP BY ALL",
            [axis.start_ns, axis.width_ns, axis.buckets - 1],
        )
        while found := self._connection.fetchmany(FETCH):
            for host, name, bucket, *values in found:
                row = place.get((host, name))
                if row is None:
                    continue
                for at, grid in enumerate(grids):
                    if values[3 * at] is not None:
                        grid.low[row][bucket], grid.mean[row][bucket], grid.high[row][bucket] = values[
                            3 * at : 3 * at + 3
                        ]
        return grids


@contextlib.contextmanager
def open_tables(run: Run) -> Iterator[Tables | None]:
    """The series of a record; None where it has none."""
    if not run.series_files():
        yield None
        return
    from rollbook.series import store  # noqa: PLC0415 - DuckDB takes a tenth of a second to import

    with store.connect(run) as connection:
        yield Tables(connection)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
