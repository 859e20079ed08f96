"""Metrics of a record as grids: one row per host or device, one cell per bucket of time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rollbook.hosts import natural
from rollbook.metrics import catalogue
from rollbook.metrics.grid import Axis, Grid, Row, Scale
from rollbook.metrics.metric import Metric
from rollbook.metrics.views import host_view, tables_of
from rollbook.protocol.beats import nearest_beat
from rollbook.records.record import Record, RecordHosts
from rollbook.tables.quoting import quoted

if TYPE_CHECKING:
    import duckdb

__all__ = ["Grids", "Tables", "open_tables", "sampled_span"]


class Span(NamedTuple):
    """The first and the last sample, and the time between two, in nanoseconds."""

    first_ns: int
    last_ns: int
    step_ns: int


@dataclasses.dataclass(frozen=True)
class Grids:
    """The metrics of a run by host, and by device where hosts have several; `axis` is the time of the former.

    Metrics without any sample are in neither, those that are always zero only in `always_zero`.
    """

    axis: Axis
    by_host: Mapping[Metric, Grid]
    by_device: Mapping[Metric, Grid]
    always_zero: Sequence[Metric]

    def select(self, wanted: Callable[[Metric], bool]) -> Grids:
        """The grids of only these metrics."""
        by_host, by_device = (
            {metric: grid for metric, grid in grids.items() if wanted(metric)}
            for grids in (self.by_host, self.by_device)
        )
        return Grids(self.axis, by_host, by_device, list(filter(wanted, self.always_zero)))


class Tables:
    """The views of one record, with the metrics of hosts and devices.

    With `charts`, grids have all metrics that are drawn; without it only the means of those that are compared. Metrics
    of `damaged` tables are in no grid.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, *, charts: bool = True, damaged: Sequence[str] = ()
    ) -> None:
        self.connection, self._charts, self.damaged = connection, charts, damaged
        self._computed: tuple[RecordHosts, Grids | None] | None = None

    def all_grids(self, hosts: RecordHosts) -> Grids | None:
        """The grids of the metrics of a run, computed once; None for a run without samples."""
        if self._computed is None or self._computed[0] is not hosts:
            metrics = [one for one in catalogue.load().values() if one.compared or (self._charts and one.chart)]
            self._computed = hosts, _grids_of(self, hosts, metrics)
        return self._computed[1]

    def phase_statistics(self) -> list[dict[str, Any]]:
        """The rows of `phase_stats`: every metric in every phase, over time and hosts, or in the whole run."""
        found = self.connection.execute("SELECT * FROM phase_stats")
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def columns(self, view: str) -> set[str]:
        """The columns of a view; empty if there is no such view."""
        return self._columns.get(view, set())

    @functools.cached_property
    def _columns(self) -> dict[str, set[str]]:
        """The columns of all views: DuckDB looks into every view for those of one."""
        found: dict[str, set[str]] = {}
        query = "SELECT table_name, column_name FROM information_schema.columns"
        for view, name in self.connection.execute(query).fetchall():
            found.setdefault(view, set()).add(name)
        return found

    def devices(self, view: str) -> list[Row]:
        """The devices of a view, in natural order."""
        found = self.connection.execute(f"SELECT DISTINCT host, device FROM {quoted(view)}").fetchall()  # noqa: S608 - quoted
        return sorted((Row(*names) for names in found), key=lambda row: (natural(row.host), natural(row.device)))

    def grids(self, view: str, columns: Sequence[str], axis: Axis, rows: Sequence[Row]) -> dict[str, Grid]:
        """The grid of each column that has a sample; without `charts` it has no `steps`."""
        self._cut(view, columns, axis, rows)
        extents = ", ".join(f"min(low{at}), max(high{at})" for at in range(len(columns)))
        ends = self.connection.execute(f"SELECT {extents} FROM cut").fetchall()[0]  # noqa: S608 - our own names
        return {
            name: self._grid(at, (low, high), axis, rows)
            for at, (name, low, high) in enumerate(zip(columns, ends[::2], ends[1::2], strict=True))
            if low is not None
        }

    def _cut(self, view: str, columns: Sequence[str], axis: Axis, rows: Sequence[Row]) -> None:
        """Create the table `cut`: a line for each row and bucket, numbered in that order, also without samples."""
        device = "device" if any(row.device for row in rows) else "''"
        low, high = ("min", "max") if self._charts else ("avg", "avg")
        cells = ", ".join(
            f"{low}({name}) AS low{at}, avg({name}) AS mean{at}, {high}({name}) AS high{at}"
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
        self.connection.execute(query, [*names, axis.start_ns, axis.width_ns, axis.buckets, axis.buckets])

    def _grid(self, at: int, extent: tuple[float, float], axis: Axis, rows: Sequence[Row]) -> Grid:
        scale = Scale.of(*extent)
        planes = () if not self._charts else ("mean", "low", "high") if axis.beats > 1 else ("mean",)
        wanted = [f"coalesce(mean{at}, 'nan'::DOUBLE)", *(scale.sql(f"{plane}{at}") for plane in planes)]
        lists = ", ".join(f"list({value} ORDER BY number)" for value in wanted)
        mean, *steps = self.connection.execute(f"SELECT {lists} FROM cut").fetchall()[0]  # noqa: S608 - our own names
        starts = range(0, len(mean), axis.buckets)
        return Grid(
            axis,
            list(rows),
            extent,
            scale,
            [array("d", mean[start : start + axis.buckets]) for start in starts],
            [[plane[start : start + axis.buckets] for start in starts] for plane in steps],
        )


def sampled_span(hosts: RecordHosts) -> Span | None:
    """When a run was sampled; None without samples. A wrong clock of a host cannot lead outside the run."""
    ends = [time for host in hosts.series for time in (host.first_ns, host.last_ns) if time is not None]
    if not ends or not hosts.interval_seconds:
        return None
    beat = round(hosts.interval_seconds * 1e9)
    step = beat * hosts.merged
    # Merged samples have the time of their last beat: cells begin half a beat before the first, as their groups do.
    first = nearest_beat(max(min(ends), hosts.started_ns - step), beat) + (step - beat) // 2
    return Span(first, max(first, min(max(ends), hosts.ended_ns + step)), step)


def _grids_of(tables: Tables, hosts: RecordHosts, metrics: Collection[Metric]) -> Grids | None:
    rows = sorted((Row(host.name) for host in hosts.series if host.samples), key=lambda row: natural(row.host))
    span = sampled_span(hosts)
    if not rows or span is None:
        return None
    axis = Axis.of(*span, len(rows))
    found: dict[str, Grid] = {}
    for part, wanted in _by_part(metrics).items():  # each view is read once
        there = tables.columns(host_view(part)) if tables_of(host_view(part)).isdisjoint(tables.damaged) else ()
        if names := [metric.name for metric in wanted if metric.name in there]:
            found |= tables.grids(host_view(part), names, axis, rows)
    grids = {metric: found[metric.name] for metric in metrics if metric.name in found}
    always_zero = [metric for metric, grid in grids.items() if grid.extent == (0.0, 0.0)]
    by_host = {metric: grid for metric, grid in grids.items() if metric not in always_zero}
    by_device = _by_device(tables, span, list(by_host), {row.host for row in rows})
    return Grids(axis, by_host, by_device, always_zero)


def _by_part(metrics: Collection[Metric]) -> dict[str, list[Metric]]:
    found: dict[str, list[Metric]] = {}
    for metric in metrics:
        found.setdefault(metric.part, []).append(metric)
    return found


def _by_device(tables: Tables, span: Span, metrics: Sequence[Metric], hosts: Collection[str]) -> dict[Metric, Grid]:
    """The grids of devices, unless every host has only one: then its grid would be that of the host."""
    found: dict[Metric, Grid] = {}
    for view, members in _by_part([metric for metric in metrics if metric.devices]).items():
        there = tables.columns(view)
        wanted = {metric.name: metric for metric in members if metric.name in there}
        rows = [row for row in tables.devices(view) if row.host in hosts] if wanted else []
        if len(rows) > len({row.host for row in rows}):
            grids = tables.grids(view, list(wanted), Axis.of(*span, len(rows)), rows)
            found |= {wanted[name]: grid for name, grid in grids.items()}
    return found


@contextlib.contextmanager
def open_tables(record: Record, *, charts: bool = True) -> Iterator[Tables | None]:
    """The views of a record; None if it has no series. Without `charts`, grids have only what rules compare.

    Raises `RecordError` if a table turns out to be damaged when it is read.
    """
    if not record.series_files():
        yield None
        return
    from rollbook.sql.connection import connect_internal  # noqa: PLC0415 - DuckDB takes a tenth of a second to import
    from rollbook.sql.damage import replaced_tables  # noqa: PLC0415

    with connect_internal(record) as connection:
        yield Tables(connection, charts=charts, damaged=replaced_tables(connection))
