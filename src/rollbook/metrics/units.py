"""Numbers, times and outliers in words."""

from __future__ import annotations

import datetime as dt

from rollbook.metrics.catalogue import Metric
from rollbook.metrics.grid import Axis, Row
from rollbook.metrics.outliers import Judge, Stretch

__all__ = ["amount", "clock_span", "number", "outlier_text", "times"]

BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SHORT_NS = 300 * 10**9
RATIO_FROM = 0.5  # of the floor: below, "so many times nearly nothing" says nothing


def number(value: float) -> str:
    """Three digits that count: `0.41`, `9.1`, `27`, `1234`."""
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def amount(value: float, unit: str) -> str:
    """A value with its unit: `1.5 GiB/s`, `34 %`."""
    if unit.startswith("B"):
        power = 0
        while abs(value) >= 1023.95 and power < len(BYTES) - 1:
            value /= 1024
            power += 1
        return f"{number(value)} {BYTES[power]}{unit[1:]}"
    if unit == "ms" and abs(value) >= 1000:
        return f"{number(value / 1000)} s"
    return f"{number(value)} {unit}".rstrip()


def times(value: float, usual: float, judge: Judge) -> str:
    """How many times the usual a value is: `9.1 ×`; empty where the usual is next to nothing."""
    if abs(usual) < RATIO_FROM * judge.floor:
        return ""
    ratio = value / usual
    return f"{ratio:.2f} ×" if ratio < 1 else f"{ratio:.1f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def clock_span(start_ns: int, end_ns: int) -> str:
    """`12:04–12:19`, in UTC; with seconds where it is short."""
    form = "%H:%M:%S" if end_ns - start_ns < SHORT_NS else "%H:%M"
    return "–".join(dt.datetime.fromtimestamp(ns / 1e9, dt.UTC).strftime(form) for ns in (start_ns, end_ns))


def outlier_text(row: Row, metric: Metric, stretch: Stretch, axis: Axis) -> str:
    """`node17 nvme1n1 write latency 9.1 × the median of 31 peers (27 ms, theirs 3 ms), 12:04–12:19 UTC`."""
    others = f"the median of {stretch.peers} peers" if stretch.peers else "its own median over the run"
    theirs = "theirs" if stretch.peers else "usually"
    value, usual = amount(stretch.value, metric.unit), amount(stretch.usual, metric.unit)
    ratio = times(stretch.value, stretch.usual, metric.judge)
    how = f"{ratio} {others} ({value}, {theirs} {usual})" if ratio else f"{value} where {others} is {usual}"
    name = metric.title if metric.title[:2].isupper() else metric.title[0].lower() + metric.title[1:]
    return f"{row} {name} {how}, {clock_span(axis.at(stretch.first), axis.at(stretch.last + 1))} UTC"
