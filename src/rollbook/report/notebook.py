"""Records as HTML for notebooks: a table, and the charts that the page shows first, as SVG without script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from statistics import fmean, median

from rollbook.errors import RollbookError
from rollbook.metrics.formatting import amount, number
from rollbook.metrics.grid import Grid, present
from rollbook.metrics.metric import Metric
from rollbook.records.labels import label_of
from rollbook.records.record import Record
from rollbook.records.results import results_of
from rollbook.report.build import first_charts
from rollbook.sql.grids import open_tables

__all__ = ["COLOURS", "figure", "record_html", "side_by_side"]

COLOURS = ("#3b82c4", "#d9822b", "#3f9c5a", "#a65fc0")  # readable on light and dark backgrounds
WIDTH, HEIGHT, TOP, BOTTOM = 300, 110, 18, 14  # pixels, with room for the texts above and below
POINTS = 150  # of a line: about one for two pixels

Values = Sequence[float]
"""One value per bucket of time, `nan` without a sample."""


def record_html(record: Record) -> str:
    """What was run, how it ended, its hosts, its results, and the first charts if the record has samples."""
    metadata, hosts = record.metadata, record.coverage
    label = label_of(metadata.get("label") or {})
    command, code = metadata.get("executed_command"), metadata.get("exit_code")
    rows = [
        ("record", str(record.path)),
        ("name", label.name),
        ("tags", " ".join(label.tags)),
        ("started", metadata.get("invocation_start_time")),
        ("command", f"{command} (exit status {code})" if command else ""),
        ("hosts", f"{hosts.by_status.get('complete', 0)} of {hosts.requested} complete" if hosts.requested else ""),
    ]
    rows += [
        (f"{one.job} {one.metric}".strip(), f"{one.value:,.6g} {one.unit}".strip())
        for one in results_of(metadata)
        if one.is_main and one.value is not None
    ]
    cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows if v)
    return f"<table>{cells}</table>{side_by_side(_figures(record))}"


def side_by_side(figures: Iterable[str]) -> str:
    """Charts in rows, as many as fit the width."""
    return "".join(f'<span style="display:inline-block;margin:4px 12px 4px 0">{one}</span>' for one in figures)


def figure(
    title: str,
    unit: str,
    seconds: float,
    lines: Sequence[tuple[Values, str]],
    *,
    band: tuple[Values, Values] | None = None,
    top: float | None = None,
) -> str:
    """A chart of lines with their colours over the same time, up to `top` or the greatest value.

    `band` is a lowest and a greatest value for each bucket, drawn behind the first line.
    """
    values = [value for line in (*(line for line, _ in lines), *(band or ())) for value in present(line)]
    top, bottom = max(values, default=0.0) if top is None else top, min([0.0, *values])
    scale = (HEIGHT - TOP - BOTTOM) / ((top - bottom) or 1.0)
    longest = max((len(line) for line, _ in lines), default=0)

    def point(at: float, value: float) -> str:
        return f"{at * WIDTH / max(1, longest - 1):.1f},{HEIGHT - BOTTOM - (value - bottom) * scale:.1f}"

    shapes = []
    if band is not None:
        lows, highs = _stretches(_thinned(band[0], min)), _stretches(_thinned(band[1], max))
        for low, high in zip(lows, highs, strict=True):
            outline = "L".join(point(*one) for one in (*high, *reversed(low)))
            shapes.append(f'<path d="M{outline}Z" fill="{lines[0][1]}" fill-opacity="0.25"/>')
    for line, colour in lines:
        # A stretch of one sample is a dot: the line has no length, but round ends.
        path = "".join(
            f"M{point(*stretch[0])}" + ("".join(f"L{point(*one)}" for one in stretch[1:]) or "h0")
            for stretch in _stretches(_thinned(line, fmean))
        )
        style = f'fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="round"'
        shapes.append(f'<path d="{path}" {style}/>')
    texts = (
        (0, 11, "start", f"{title}: up to {amount(top, unit)}"),
        (0, HEIGHT - 2, "start", "0 s"),
        (WIDTH, HEIGHT - 2, "end", f"{number(seconds)} s"),
    )
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor" font-size="10">{escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    axis = f'<path d="M0,{HEIGHT - BOTTOM}H{WIDTH}" stroke="currentColor" stroke-opacity="0.4"/>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{axis}{"".join(shapes)}{labels}</svg>'


def _figures(record: Record) -> list[str]:
    """The first charts; none if the record has no samples or a table cannot be read."""
    try:
        with open_tables(record) as tables:
            return [_of_hosts(metric, grid) for metric, grid in first_charts(record, tables)] if tables else []
    except RollbookError:
        return []


def _of_hosts(metric: Metric, grid: Grid) -> str:
    """The median of the hosts in each bucket, and the range of all of them."""
    columns = [sorted(present(cells)) for cells in zip(*grid.mean, strict=True)]
    middle = [median(column) if column else math.nan for column in columns]
    low, high = ([column[at] if column else math.nan for column in columns] for at in (0, -1))
    title = metric.title if len(grid.rows) == 1 else f"{metric.title}, median and range of {len(grid.rows)} hosts"
    seconds = grid.axis.width_ns * grid.axis.buckets / 1e9
    return figure(title, metric.unit, seconds, [(middle, COLOURS[0])], band=(low, high), top=grid.extent[1])


Point = tuple[float, float]
"""A place on the time axis, in buckets, and a value."""


def _thinned(values: Values, merge: Callable[[Sequence[float]], float]) -> list[Point]:
    """At most `POINTS` points: neighbours become one, `nan` if none of them has a sample."""
    step = -(-len(values) // POINTS) or 1
    groups = [(at, present(values[at : at + step])) for at in range(0, len(values), step)]
    return [(at + (step - 1) / 2, merge(group) if group else math.nan) for at, group in groups]


def _stretches(points: Sequence[Point]) -> list[list[Point]]:
    """The points in stretches without a gap."""
    found: list[list[Point]] = [[]]
    for point in points:
        if not math.isnan(point[1]):
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]
