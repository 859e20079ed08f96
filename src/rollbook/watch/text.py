"""The board in words: cells of its table, lines about one host. What came from hosts is made safe to show here."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter

from rollbook.clean import clean
from rollbook.metrics.live import Values
from rollbook.metrics.outliers import DEVIATIONS, FEWEST_ROWS
from rollbook.metrics.units import amount, times
from rollbook.watch.board import SHOWN, Board, HostView

__all__ = ["TREND", "cells", "details", "headings", "status_line"]

TITLES = {
    "cpu_busy": "CPU",
    "cpu_iowait": "I/O wait",
    "disk_read": "disk read",
    "disk_write": "disk write",
    "net_rx": "net in",
    "net_tx": "net out",
    "gpu_util": "GPU",
    "gpu_memory": "GPU mem",
    "rdma_rx": "RDMA in",
    "rdma_tx": "RDMA out",
    "nfs_read": "NFS read",
    "nfs_write": "NFS write",
    "mem_available": "mem avail",
    "load_1min": "load",
    "psi_cpu": "PSI CPU",
    "psi_memory": "PSI mem",
    "psi_io": "PSI I/O",
}
BARS = "▁▂▃▄▅▆▇█"
TREND = 12  # beats in the table
ABSENT = "·"
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))  # each from twice of it on


def headings(board: Board, order: str = "unusual") -> dict[str, str]:
    """The columns of the table with their titles: what every host has, and what any has.

    The trend is that of the column that the table is ordered by, or where somebody is most unusual.
    """
    first = {name: name for name in ("host", "state", "unusual")}
    trend = {"trend": f"{BARS[0]}{BARS[2]} {TITLES[_trend(board, order)]}"}
    return first | trend | {name: TITLES[name] for name in board.columns}


def _trend(board: Board, order: str) -> str:
    return order if order in SHOWN else board.oddest


def cells(board: Board, host: HostView, order: str = "unusual") -> list[str]:
    """A host's row, in the order of the headings."""
    trend = _trend(board, order)
    values = [_value(host.values, name) for name in board.columns]
    return [clean(host.name), _state(board, host), _unusual(board, host), _spark(board, host, trend, TREND), *values]


def details(board: Board, host: HostView, devices: dict[str, Values]) -> str:
    """All about one host: state, every value with its trend beside the median of all, and its devices."""
    lines = [f"{clean(host.name)}  {_state(board, host)}  {clean(host.method)}".rstrip()]
    if host.reason:
        lines.append(clean(host.reason))
    if host.drops:
        lines.append(f"dropped out {host.drops} time{'s' if host.drops > 1 else ''}")
    if unusual := _unusual(board, host):
        lines.append(f"unusual: {unusual}")
    lines += ["", f"{'':18}{'now':>12}  {'median':>12}"]
    for column in board.columns:
        now, usual = _value(host.values, column), _value(board.medians, column)
        lines.append(f"{SHOWN[column].title:18}{now:>12}  {usual:>12}  {_spark(board, host, column, 60)}".rstrip())
    lines += [""] if devices else []
    for name, rates in devices.items():
        told = "  ".join(f"{TITLES[column]} {_value(rates, column)}" for column in rates)
        lines.append(f"{clean(name):18}{told}")
    return "\n".join(lines)


def status_line(board: Board, column: str) -> str:
    """How many hosts are in which state, the time, and the order."""
    states = Counter(host.state for host in board.hosts.values())
    told = [
        f"{len(board.hosts)} host{'s' if len(board.hosts) != 1 else ''}",
        *(f"{count} {state}" for state, count in sorted(states.items())),
    ]
    at = dt.datetime.fromtimestamp(board.now_ns / 1e9, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if board.now_ns else ""
    few = f"too few hosts to tell who is unusual, {FEWEST_ROWS} are needed" if len(board.hosts) < FEWEST_ROWS else ""
    return "  ".join(filter(None, (", ".join(told), at, f"by {TITLES.get(column, column)}", few)))


def _value(values: Values, column: str) -> str:
    return amount(values[column], SHOWN[column].unit) if column in values else ABSENT


def _state(board: Board, host: HostView) -> str:
    if host.there and host.state != "back":
        return "up"
    if host.state == "connecting" or not host.since_ns:
        return host.state
    seconds = max(0, board.now_ns - host.since_ns) / 1e9
    size, unit = next((one for one in UNITS if seconds >= 2 * one[0]), (1, "s"))
    return f"{host.state} {seconds / size:.0f} {unit}"


def _unusual(board: Board, host: HostView) -> str:
    """`disk write 9.1 ×`, where it is far enough off; without the ratio where the median is next to nothing."""
    if not host.there or host.odd not in host.values or min(host.unusual, host.offs[host.odd][-1]) < DEVIATIONS:
        return ""
    value, metric = host.values[host.odd], SHOWN[host.odd]
    return f"{TITLES[host.odd]} {times(value, board.medians[host.odd], metric.judge) or amount(value, metric.unit)}"


def _spark(board: Board, host: HostView, column: str, width: int) -> str:
    """The last beats as bars, on one scale for all hosts; gaps are blank."""
    top = SHOWN[column].ceiling or board.top(column)
    return "".join(
        " " if math.isnan(one) else BARS[min(7, int(8 * one / top)) if top > 0 and one > 0 else 0]
        for one in list(host.history.get(column, ()))[-width:]
    )
