"""The charts of a run, from the metrics of the catalogue."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rollbook.metrics.grid import Grid
from rollbook.metrics.metric import Metric
from rollbook.records.record import RecordHosts
from rollbook.report.chart_order import highlights
from rollbook.report.model import MS, Chart, Devices
from rollbook.report.pack import pack
from rollbook.sql.grids import Grids, Tables

__all__ = ["chart_grids", "draw"]

MAX_DEVICES = 600
"""Rows of devices in one chart. A chart with more has only the devices of outliers, or the page would be too large."""
MAX_DEVICES_IN_ALL = 5 * MAX_DEVICES
"""The same for all charts together."""


def draw(
    tables: Tables,
    hosts: RecordHosts,
    place: Mapping[str, int],
    *,
    metrics: Sequence[str] = (),
    outlier_hosts: Collection[str] = (),
) -> tuple[list[Chart], list[str]]:
    """The charts of all metrics that have samples, and what the reader has to know about them.

    `place` gives each host's place on the page. `metrics` and `outlier_hosts` are those with outliers, the strongest
    first.
    """
    found = chart_grids(tables, hosts)
    if found is None:
        return [], [*_damage(tables), "The series has no samples."]
    first = highlights(list(found.by_host.items()), metrics)
    devices = _devices(found.by_device, outlier_hosts)
    charts = [_chart(metric, grid, devices.get(metric), place, first) for metric, grid in found.by_host.items()]
    return charts, [*_damage(tables), *_notes(found, hosts, devices)]


def chart_grids(tables: Tables, hosts: RecordHosts) -> Grids | None:
    """The metrics that have a chart; None for a run without samples."""
    everything = tables.all_grids(hosts)
    return everything.select(lambda metric: bool(metric.chart)) if everything else None


def _devices(by_device: Mapping[Metric, Grid], hosts: Collection[str]) -> dict[Metric, Grid]:
    """The rows of devices that there is room for: all, or those of these hosts."""
    found, room = {}, MAX_DEVICES_IN_ALL
    for metric, grid in by_device.items():
        if len(grid.rows) > min(MAX_DEVICES, room):
            found[metric] = grid.select([at for at, row in enumerate(grid.rows) if row.host in hosts][:MAX_DEVICES])
        else:
            found[metric] = grid
            room -= len(grid.rows)
    return found


def _chart(metric: Metric, grid: Grid, devices: Grid | None, place: Mapping[str, int], first: Sequence[str]) -> Chart:
    return Chart(
        id=metric.name,
        title=metric.title,
        unit=metric.unit,
        description=metric.description,
        runs_out=metric.runs_out,
        ceiling=metric.ceiling,
        highlight=first.index(metric.name) if metric.name in first else None,
        hosts=[place[row.host] for row in grid.rows],
        start=grid.axis.start_ns / MS,
        bucket=grid.axis.width_ns / MS,
        beats=grid.axis.beats,
        packed=pack(grid),
        devices=_device_part(devices, place) if devices and devices.rows else None,
    )


def _device_part(grid: Grid, place: Mapping[str, int]) -> Devices:
    return Devices(
        hosts=[place[row.host] for row in grid.rows],
        names=[row.device for row in grid.rows],
        start=grid.axis.start_ns / MS,
        bucket=grid.axis.width_ns / MS,
        packed=pack(grid),
    )


def _damage(tables: Tables) -> list[str]:
    if not tables.damaged:
        return []
    return [f"Charts are missing because these tables are damaged: {', '.join(tables.damaged)}; see rollbook verify."]


def _notes(grids: Grids, hosts: RecordHosts, devices: Mapping[Metric, Grid]) -> list[str]:
    step, axis = f"{(hosts.interval_seconds or 0) * hosts.merged:g} s", grids.axis
    notes = []
    if hosts.merged > 1:
        notes.append(f"The series is long: {hosts.merged} samples were merged into one. raw/ has all of them.")
    if axis.beats > 1:
        notes.append(
            f"Samples are {step} apart; a cell of {axis.width_ns / 1e9:g} s shows the minimum, mean and maximum of "
            f"{axis.beats} samples, so that peaks stay visible. All samples are in series/."
        )
    else:
        notes.append(f"Every sample is drawn; samples are {step} apart.")
    if grids.always_zero:
        notes.append(f"Not drawn because always zero: {', '.join(metric.title for metric in grids.always_zero)}.")
    fewer = [metric.title for metric, grid in grids.by_device.items() if len(devices[metric].rows) < len(grid.rows)]
    if fewer:
        notes.append(f"To keep the page small, only devices of outlier hosts are drawn for: {', '.join(fewer)}.")
    return notes
