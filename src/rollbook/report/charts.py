"""The charts of a run and the outliers in them: from the series to cells, from cells to words."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rollbook.hosts import natural
from rollbook.metrics.catalogue import METRICS, Metric
from rollbook.metrics.grid import Axis, Grid, Row
from rollbook.metrics.outliers import FEWEST_ROWS, Stretch, against_peers, over_time
from rollbook.metrics.units import outlier_text
from rollbook.metrics.views import PARTS
from rollbook.protocol.beats import nearest_beat
from rollbook.records.record import RecordHosts
from rollbook.report.chart_order import most_telling
from rollbook.report.model import MS, Chart, Devices, Mark, OutlierShown
from rollbook.report.pack import pack
from rollbook.sql.grids import Tables

__all__ = ["Drawn", "draw"]

MOST_OUTLIERS = 60
MOST_DEVICES = 600
"""Rows of devices in one chart; more would make the page too large, then only hosts that stand out have theirs."""


@dataclasses.dataclass
class Drawn:
    """Charts, outliers, the marks they leave on the time line, and what the reader has to know about them."""

    charts: list[Chart]
    outliers: list[OutlierShown]
    marks: list[Mark]
    notes: list[str]


@dataclasses.dataclass(frozen=True)
class _Odd:
    row: Row
    metric: Metric
    stretch: Stretch
    axis: Axis


def draw(tables: Tables, run: RecordHosts, place: Mapping[str, int]) -> Drawn:
    """Everything that is drawn of the series; `place` gives each host's place on the page."""
    rows = sorted((Row(host.name) for host in run.series if host.samples), key=lambda row: natural(row.host))
    times = _times(run)
    if not rows or times is None:
        return Drawn([], [], [], ["The series holds no sample."])
    axis = Axis.of(*times, len(rows))
    grids = _by_host(tables, axis, rows)
    flat = [metric for metric, grid in grids.items() if grid.extent == (0.0, 0.0)]
    shown = {metric: grid for metric, grid in grids.items() if metric not in flat}
    devices = _devices(tables, list(shown), times, place)
    odd = _without_echoes([*_odd_rows(devices, by_device=True), *_odd_rows(shown, by_device=False)], devices)
    odd.sort(key=lambda one: -one.stretch.strength)
    strengths: dict[str, float] = {}
    for one in odd:
        strengths.setdefault(one.metric.column, one.stretch.strength)
    telling = most_telling(list(shown.items()), strengths)
    drawn = {metric: _few(grid, {one.row.host for one in odd}) for metric, grid in devices.items()}
    outliers = [_shown(one, place) for one in odd[:MOST_OUTLIERS]]
    return Drawn(
        [_chart(metric, grid, drawn.get(metric), place, telling) for metric, grid in shown.items()],
        outliers,
        [Mark("outlier", one.start, one.end, one.text, one.host) for one in outliers],
        [*_notes(axis, run, flat, len(odd)), *_left_out(devices, drawn)],
    )


def _times(run: RecordHosts) -> tuple[int, int, int] | None:
    """The first and the last sample of all, and the time between two. A host's clock cannot lead outside the run."""
    ends = [time for host in run.series for time in (host.first_ns, host.last_ns) if time is not None]
    if not ends or not run.interval_seconds:
        return None
    beat = round(run.interval_seconds * 1e9)
    step = beat * run.merged
    # Merged samples have the time of their last beat: cells begin half a beat before the first, as their groups do.
    first = nearest_beat(max(min(ends), run.started_ns - step), beat) + (step - beat) // 2
    return first, max(first, min(max(ends), run.ended_ns + step)), step


def _by_host(tables: Tables, axis: Axis, rows: Sequence[Row]) -> dict[Metric, Grid]:
    """What each host did, in the order of the metrics; each part of the rates is read once."""
    found: dict[str, Grid] = {}
    for view in PARTS:
        there = tables.columns(view)
        if wanted := [metric.column for metric in METRICS if metric.column in there]:
            found |= tables.grids(view, wanted, axis, rows)
    return {metric: found[metric.column] for metric in METRICS if metric.column in found}


def _devices(
    tables: Tables, metrics: Sequence[Metric], times: tuple[int, int, int], place: Mapping[str, int]
) -> dict[Metric, Grid]:
    """By metric; where every host has but one device, that is the host itself."""
    found: dict[Metric, Grid] = {}
    for view in dict.fromkeys(metric.devices for metric in metrics if metric.devices):
        there = tables.columns(view)
        wanted = {metric.column: metric for metric in metrics if metric.devices == view and metric.column in there}
        rows = [row for row in tables.devices(view) if row.host in place] if wanted else []
        if len(rows) == len({row.host for row in rows}):
            continue
        grids = tables.grids(view, list(wanted), Axis.of(*times, len(rows)), rows)
        found |= {wanted[column]: grid for column, grid in grids.items()}
    return found


def _few(grid: Grid, hosts: Collection[str]) -> Grid:
    """The rows that there is room for: all, or those of these hosts."""
    if len(grid.rows) <= MOST_DEVICES:
        return grid
    return grid.select([at for at, row in enumerate(grid.rows) if row.host in hosts][:MOST_DEVICES])


def _left_out(all_: Mapping[Metric, Grid], drawn: Mapping[Metric, Grid]) -> list[str]:
    fewer = [metric for metric, grid in all_.items() if len(drawn[metric].rows) < len(grid.rows)]
    if not fewer:
        return []
    titles = ", ".join(metric.title for metric in fewer)
    return [f"By device only the hosts that stand out are drawn, for want of room: {titles}. All were compared."]


def _odd_rows(grids: Mapping[Metric, Grid], *, by_device: bool) -> list[_Odd]:
    found = []
    for metric, grid in grids.items():
        for peers in _peers(grid.rows) if by_device else [list(range(len(grid.rows)))]:
            lines = [grid.mean[at] for at in peers]
            stretches = against_peers(lines, metric.judge)
            if len(peers) < FEWEST_ROWS and metric.trouble:
                stretches = [one for row, line in enumerate(lines) for one in over_time(row, line, metric.judge)]
            found += [_Odd(grid.rows[peers[one.row]], metric, one, grid.axis) for one in stretches]
    return found


def _peers(rows: Sequence[Row]) -> list[list[int]]:
    """Devices that can be compared: those of one name, or where these are few, those of one kind."""
    named: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        named.setdefault(row.device, []).append(at)
    groups: dict[str, list[int]] = {}
    for name, members in named.items():
        kind = name if len(members) >= FEWEST_ROWS else re.sub("[0-9].*", "", name)
        groups.setdefault(kind, []).extend(members)
    return list(groups.values())


def _without_echoes(odd: Sequence[_Odd], devices: Mapping[Metric, Grid]) -> list[_Odd]:
    """One name for one thing: the host where most of its devices stand out, else the device and not its host too."""
    owned = {metric: Counter(row.host for row in grid.rows) for metric, grid in devices.items()}
    found = Counter((one.row.host, one.metric) for one in odd if one.row.device)

    def is_device(host: str, metric: Metric) -> bool:
        number = found[host, metric]
        return number == 1 or 0 < number <= owned[metric][host] / 2

    return [one for one in odd if bool(one.row.device) == is_device(one.row.host, one.metric)]


def _shown(one: _Odd, place: Mapping[str, int]) -> OutlierShown:
    return OutlierShown(
        host=place[one.row.host],
        metric=one.metric.column,
        text=outlier_text(one.row, one.metric, one.stretch, one.axis),
        start=one.axis.at(one.stretch.first) / MS,
        end=one.axis.at(one.stretch.last + 1) / MS,
    )


def _chart(metric: Metric, grid: Grid, devices: Grid | None, place: Mapping[str, int], telling: Sequence[str]) -> Chart:
    return Chart(
        id=metric.column,
        title=metric.title,
        unit=metric.unit,
        about=metric.about,
        scarce=metric.scarce,
        ceiling=metric.ceiling,
        telling=telling.index(metric.column) if metric.column in telling else None,
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


def _notes(axis: Axis, run: RecordHosts, flat: Sequence[Metric], odd: int) -> list[str]:
    step = f"{(run.interval_seconds or 0) * run.merged:g} s"
    notes = []
    if run.merged > 1:
        notes.append(f"The series is so long that {run.merged} samples became one; raw/ has them all.")
    if axis.beats > 1:
        notes.append(
            f"There is a sample every {step}; {axis.beats} of them share one cell of {axis.width_ns / 1e9:g} s, "
            "which keeps their least, mean and greatest value, so that peaks survive. All of them are in series/."
        )
    else:
        notes.append(f"Every sample is drawn, one every {step}.")
    if flat:
        notes.append(f"Always zero, and not drawn: {', '.join(metric.title for metric in flat)}.")
    if odd > MOST_OUTLIERS:
        notes.append(f"{odd} hosts or devices stand out; the {MOST_OUTLIERS} strongest are named.")
    return notes
