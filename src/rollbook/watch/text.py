"""The board as text: rows of its table, details of one host. Text from hosts is made safe for the terminal here."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter

from rollbook.clean import clean, count_text
from rollbook.metrics.formatting import amount, ratio_text
from rollbook.metrics.live import Values
from rollbook.metrics.outliers import DEVIATIONS, FEWEST_ROWS
from rollbook.watch.board import Board, HostView

__all__ = ["TREND", "details", "headings", "status_line", "table_row"]

BARS = "▁▂▃▄▅▆▇█"
TREND = 12  # beats in the table
ABSENT = "·"
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))  # each used from twice its size on


def headings(board: Board, order: str = "unusual") -> dict[str, str]:
    """The columns of the table with their titles.

    The trend is that of the metric that orders the table, or of the one in which a host is most unusual.
    """
    first = {name: name for name in ("host", "state", "unusual")}
    trend = {"trend": f"{BARS[0]}{BARS[2]} {board.metrics[_trend_metric(board, order)].watch}"}
    return first | trend | {name: board.metrics[name].watch for name in board.columns}


def _trend_metric(board: Board, order: str) -> str:
    return order if order in board.metrics else board.most_unusual


def table_row(board: Board, host: HostView, order: str = "unusual") -> list[str]:
    """A host's row, in the order of the headings."""
    trend = _trend(board, host, _trend_metric(board, order), TREND)
    values = [_value(board, host.values, name).removesuffix(" tasks") for name in board.columns]
    return [clean(host.name), _state(board, host), _unusual(board, host), trend, *values]


def details(board: Board, host: HostView, devices: dict[str, Values]) -> str:
    """One host: its state, every metric with its trend and the median of all hosts, and its devices."""
    lines = [f"{clean(host.name)}  {_state(board, host)}  {clean(host.method)}".rstrip()]
    if host.reason:
        lines.append(clean(host.reason))
    if host.drops:
        lines.append(f"dropped out {count_text(host.drops, 'time')}")
    if unusual := _unusual(board, host):
        lines.append(f"unusual: {unusual}")
    lines += ["", f"{'':18}{'now':>12}  {'median':>12}"]
    for column in board.columns:
        now, usual = _value(board, host.values, column), _value(board, board.medians, column)
        title, trend = board.metrics[column].title, _trend(board, host, column, 60)
        lines.append(f"{title:18}{now:>12}  {usual:>12}  {trend}".rstrip())
    lines += [""] if devices else []
    for name, values in devices.items():
        shown = [column for column in values if column in board.metrics]
        text = "  ".join(f"{board.metrics[column].watch} {_value(board, values, column)}" for column in shown)
        lines.append(f"{clean(name):18}{text}")
    return "\n".join(lines)


def status_line(board: Board, order: str) -> str:
    """How many hosts are in which state, the time, and the order."""
    states = Counter(host.state for host in board.hosts.values())
    counts = [
        count_text(len(board.hosts), "host"),
        *(f"{count} {state}" for state, count in sorted(states.items())),
    ]
    at = dt.datetime.fromtimestamp(board.now_ns / 1e9, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if board.now_ns else ""
    too_few = 1 < len(board.hosts) < FEWEST_ROWS
    few = f"too few hosts to compare, at least {FEWEST_ROWS} needed" if too_few else ""
    by = board.metrics[order].watch if order in board.metrics else order
    return "  ".join(filter(None, (", ".join(counts), at, f"sorted by {by}", few)))


def _value(board: Board, values: Values, column: str) -> str:
    return amount(values[column], board.metrics[column].unit) if column in values else ABSENT


def _state(board: Board, host: HostView) -> str:
    if host.is_up and host.state != "back":
        return "up"
    if host.state == "connecting" or not host.since_ns:
        return host.state
    seconds = max(0, board.now_ns - host.since_ns) / 1e9
    size, unit = next((one for one in UNITS if seconds >= 2 * one[0]), (1, "s"))
    return f"{host.state} {seconds / size:.0f} {unit}"


def _unusual(board: Board, host: HostView) -> str:
    """`disk write 9.1 ×`, if it is far enough from the median; the value itself if the median is close to zero."""
    name = host.unusual_metric
    if not host.is_up or name not in host.values or min(host.unusual, host.deviations[name][-1]) < DEVIATIONS:
        return ""
    value, metric = host.values[name], board.metrics[name]
    return f"{metric.watch} {ratio_text(value, board.medians[name], metric.threshold) or amount(value, metric.unit)}"


def _trend(board: Board, host: HostView, column: str, width: int) -> str:
    """The last beats as bars, on one scale for all hosts; gaps are blank."""
    top = board.metrics[column].ceiling or board.top(column)
    return "".join(
        " " if math.isnan(one) else BARS[min(7, int(8 * one / top)) if top > 0 and one > 0 else 0]
        for one in list(host.history.get(column, ()))[-width:]
    )
