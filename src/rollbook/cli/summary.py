"""The summary of a run as lines for a terminal: what failed first, then results, load, hosts, findings and places."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rollbook.clean import clean
from rollbook.cli.output import coverage_line
from rollbook.metrics.formatting import amount
from rollbook.records.results import Result

if TYPE_CHECKING:
    from rich.console import Console

    from rollbook.report.summary import MetricSummary, Summary

__all__ = ["duration", "result_text", "show_summary"]

LABEL = 10  # columns
NARROW = 100  # columns, at most, that text is wrapped at
MOST_JOBS, MOST_LINES, MOST_PHASES, MOST_VALUES = 8, 3, 8, 3
HEADING = ("", "mean", "peak", "all hosts", "slowest")
ALWAYS = 3  # columns that a single host has, too
COLOURS = {"fail": "red", "warn": "yellow"}
UNIT_ENDS = re.compile(r"_(?:bytes_per_second|samples_per_second|[MG]B_per_second|percentage|seconds|ns|us|ms|GB)$")


def duration(seconds: float) -> str:
    """`0.8 s`, `12.4 s`, `3 min 05 s`, `2 h 04 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def show_summary(found: Summary, console: Console) -> None:
    """Print the summary; it fits 60 columns, and what it leaves out is on the page and in `rollbook check`."""
    for part in (_command, _results, _load, _phases, _outliers, _hosts, _findings, _overhead, _push, _notes, _places):
        for line, colour in part(found):
            _print(console, line, colour)


Lines = Iterator[tuple[str, str]]
"""Lines with their colours, empty for none."""


def _print(console: Console, line: str, colour: str) -> None:
    """Print a line; on a terminal it is wrapped under its own text."""
    text = clean(line)
    if sys.stderr.isatty() and len(text) > min(console.width, NARROW):
        indent = " " * max(LABEL, len(text) - len(text.lstrip()))
        # Paths must stay whole, so that they can be copied.
        text = textwrap.fill(
            text,
            min(console.width, NARROW),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
    console.print(text, style=colour or None, soft_wrap=True)


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def _command(found: Summary) -> Lines:
    command = found.command
    if command is None:
        yield _row("recorded", duration(found.seconds)), ""
    elif command.exit_code is None:
        yield _row("command", f"exit status unknown, {duration(found.seconds)}"), "red"
    elif command.failed:
        how = f"killed by {command.signal}, " if command.signal else ""
        yield _row("FAILED", f"{how}exit status {command.exit_code} after {duration(found.seconds)}"), "red"
        for number, line in enumerate(command.stderr):
            yield _row("" if number else "stderr", line), ""
    else:
        yield _row("command", f"exit status 0 after {duration(found.seconds)}"), ""


def _results(found: Summary) -> Lines:
    jobs: dict[str, list[Result]] = {}
    for one in found.results:
        if one.is_main:
            jobs.setdefault(" ".join(filter(None, (one.job, one.host))), []).append(one)
    for number, (job, results) in enumerate(list(jobs.items())[:MOST_JOBS]):
        text = ", ".join(map(result_text, results[: 2 * MOST_LINES]))
        yield _row("" if number else "result", f"{job}: {text}" if job else text), "bold"
    if len(jobs) > MOST_JOBS:
        yield _row("", f"{len(jobs) - MOST_JOBS} more: rollbook query {shlex.quote(found.record)} 'FROM results'"), ""
    for flow in found.seen:
        counted = amount(flow.counted_bytes, "B")
        verb = "read" if flow.direction == "read" else "wrote"
        yield _row("", f"hosts {verb} {counted}: {flow.text}"), "" if flow.agrees else "yellow"


def result_text(result: Result) -> str:
    """`write bandwidth 4.4 GiB/s`, `write clat p99 23 us`."""
    name = UNIT_ENDS.sub("", result.metric).replace("_", " ")
    if result.value is None:
        return f"{name} {result.text}"
    return f"{name} {amount(result.value, result.unit)}"


def _load(found: Summary) -> Lines:
    if not found.metrics:
        return
    many = any(one.hosts > 1 for one in found.metrics)
    rows = [_cells(one) for one in found.metrics]
    # A column without values is left out.
    used = [at for at in range(len(HEADING)) if at < ALWAYS or any(row[at] for row in rows)]
    rows = [[row[at] for at in used] for row in (HEADING, *rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(used))]
    for number, row in enumerate(rows):
        first, *cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        line = "  ".join([first, *cells]).rstrip()
        yield _row("per host" if many and not number else "" if number else "load", line), "" if number else "dim"


def _cells(one: MetricSummary) -> list[str]:
    total = amount(one.total, one.unit) if one.hosts > 1 and one.total is not None else ""
    slowest = ""
    if one.hosts > 1 and one.slowest_mean is not None:
        slowest = f"{one.slowest} {amount(one.slowest_mean, one.unit)}"
    return [one.title, amount(one.mean, one.unit), amount(one.peak, one.unit), total, slowest]


def _phases(found: Summary) -> Lines:
    for number, phase in enumerate(found.phases[:MOST_PHASES]):
        most = sorted(phase.metrics, key=lambda one: one.unit != "B/s")[:MOST_VALUES]
        text = ", ".join(f"{one.title} {amount(one.mean, one.unit)}" for one in most)
        yield _row("" if number else "phases", f"{phase.name} {duration(phase.seconds)}  {text}".rstrip()), ""
    if len(found.phases) > MOST_PHASES:
        yield _row("", f"{len(found.phases) - MOST_PHASES} more phases are on the page"), ""


def _outliers(found: Summary) -> Lines:
    yield from _some("outliers", found.outliers, "yellow")


def _some(label: str, lines: Sequence[str], colour: str) -> Lines:
    for number, line in enumerate(lines[:MOST_LINES]):
        yield _row("" if number else label, line), colour
    if len(lines) > MOST_LINES:
        yield _row("", f"{len(lines) - MOST_LINES} more"), ""


def _hosts(found: Summary) -> Lines:
    yield _row("hosts", coverage_line(found.coverage)), "" if found.coverage.complete else "yellow"
    for one in found.lost:
        yield _row("", f"{one.status}  {one.hosts}: {one.reason}"), "yellow" if one.status == "partial" else "red"


def _findings(found: Summary) -> Lines:
    if found.counts is None:
        return
    counted = [f"{count} {severity}" for severity, count in found.counts.items() if count]
    see = f"; see rollbook check {shlex.quote(found.record)}" if counted else ""
    yield _row("checks", f"{', '.join(counted) or 'no findings'}{see}"), ""
    for one in found.findings[:MOST_LINES]:
        yield _row("", f"{one.severity}  {one.rule}: {one.message}"), COLOURS.get(one.severity, "")
    if len(found.findings) > MOST_LINES:
        yield _row("", f"{len(found.findings) - MOST_LINES} more"), ""
    if found.verdict:
        yield _row("verdict", found.verdict), ""


def _overhead(found: Summary) -> Lines:
    cost = found.overhead
    if cost is None:
        return
    spent = f"{cost.cpu_seconds:.2f} CPU s"
    if cost.hosts > 1:
        spent += f" per host, at most {cost.most_cpu_seconds:.2f}"
    if cost.most_share is not None:
        spent += f" ({100 * cost.most_share:.2f} % of {'a host' if cost.hosts > 1 else 'the host'}'s CPUs)"
    every = f"; {found.samples} samples, {found.interval_seconds:g} s apart" if found.interval_seconds else ""
    yield _row("overhead", f"{spent}, {amount(cost.sent_bytes, 'B')} sent{every}"), ""


def _push(found: Summary) -> Lines:
    """What was sent; a note says what was lost."""
    if found.push is not None and found.push.sent is not None:
        yield _row("push", f"{found.push.sent} values sent to {found.push.url}"), ""


def _notes(found: Summary) -> Lines:
    for note in found.notes:
        yield _row("note", note), ""


def _places(found: Summary) -> Lines:
    page = Path(found.record) / "report.html"
    yield _row("record", found.record), ""
    if page.exists():
        yield _row("page", str(page)), ""
