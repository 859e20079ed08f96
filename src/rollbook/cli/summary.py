"""The summary of a run as lines for a terminal: what failed first, then results, load, hosts, findings and places."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rollbook.clean import clean, shorten
from rollbook.cli.output import coverage_line, text_width, wrapped
from rollbook.metrics.formatting import amount, duration, number, times
from rollbook.records.results import Result

if TYPE_CHECKING:
    from rich.console import Console

    from rollbook.report.summary import MetricSummary, Summary

__all__ = ["show_failure", "show_summary"]

LABEL_WIDTH = 10  # columns
MAX_JOBS, MAX_LINES, MAX_PHASES, MAX_VALUES, MAX_NAME = 8, 3, 8, 3, 24
HEADING = ("", "mean", "peak", "all hosts", "slowest")
COLOURS = {"fail": "red", "warn": "yellow"}
UNIT_ENDS = re.compile(r"_(?:bytes_per_second|samples_per_second|[MG]B_per_second|percentage|seconds|ns|us|ms|GB)$")


def show_summary(found: Summary, console: Console) -> None:
    """Print the summary; it fits 60 columns, and what it leaves out is on the page and in `rollbook check`."""
    width = text_width(sys.stderr)
    tables = (_load(found, width), _phases(found, width))
    rest = (_outliers, _hosts, _findings, _overhead, _push, _notes, _places)
    for lines in (_command(found), _results(found), *tables, *(part(found) for part in rest)):
        for line, colour in lines:
            console.print(wrapped(clean(line), sys.stderr, LABEL_WIDTH + 2), style=colour or None, soft_wrap=True)


def show_failure(found: Summary, console: Console) -> None:
    """Print one line if the command failed: how it ended, and where the record is."""
    if found.command is not None and found.command.failed:
        line, colour = next(_command(found))
        console.print(clean(f"{line}; record {_near(found.record)}"), style=colour, soft_wrap=True)


Lines = Iterator[tuple[str, str]]
"""Lines with their colours, empty for none."""


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}"


def _command(found: Summary) -> Lines:
    command = found.command
    if command is None:
        yield _row("recorded", duration(found.seconds)), ""
    elif command.exit_code is None:
        yield _row("command", f"exit status unknown, {duration(found.seconds)}"), "red"
    elif command.failed:
        how = f"killed by {command.signal}, " if command.signal else ""
        yield _row("FAILED", f"{how}exit status {command.exit_code} after {duration(found.seconds)}"), "red"
        for index, line in enumerate(command.stderr):
            yield _row("" if index else "stderr", line), ""
    else:
        yield _row("command", f"exit status 0 after {duration(found.seconds)}"), ""


def _results(found: Summary) -> Lines:
    jobs: dict[str, list[Result]] = {}
    for one in found.results:
        if one.is_main:
            jobs.setdefault(" ".join(filter(None, (one.job, one.host))), []).append(one)
    for index, (job, results) in enumerate(list(jobs.items())[:MAX_JOBS]):
        text = ", ".join(map(_result, results[: 2 * MAX_LINES]))
        yield _row("" if index else "result", f"{job}: {text}" if job else text), "bold"
    if len(jobs) > MAX_JOBS:
        yield (
            _row("", f"{len(jobs) - MAX_JOBS} more: rollbook query {shlex.quote(_near(found.record))} 'FROM results'"),
            "",
        )
    for flow in found.seen:
        counted = amount(flow.counted_bytes, "B")
        verb = "read" if flow.direction == "read" else "wrote"
        yield _row("", f"hosts {verb} {counted}: {flow.text}"), "" if flow.agrees else "yellow"


def _result(result: Result) -> str:
    """`write bandwidth 4.4 GiB/s`, `write clat p99 23 us`."""
    name = UNIT_ENDS.sub("", result.metric).replace("_", " ")
    if result.value is None:
        return f"{name} {result.text}"
    return f"{name} {amount(result.value, result.unit)}"


def _load(found: Summary, width: int) -> Lines:
    if found.metrics:
        label = "per host" if any(one.hosts > 1 for one in found.metrics) else "load"
        yield from _table(label, [HEADING, *map(_cells, found.metrics)], width)


def _table(label: str, rows: Sequence[Sequence[str]], width: int) -> Lines:
    """A heading and rows, without columns that are empty, and without the last ones if they do not fit."""
    used = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    widths = [max(len(row[at]) for row in rows) for at in used]
    while len(used) > 2 and LABEL_WIDTH + sum(widths) + 2 * len(widths) - 2 > width:
        del used[-1], widths[-1]
    for index, row in enumerate(rows):
        line = "  ".join(f"{row[at]:<{size}}" for at, size in zip(used, widths, strict=True))
        yield _row("" if index else label, line.rstrip()), "" if index else "dim"


def _cells(one: MetricSummary) -> list[str]:
    total = amount(one.total, one.unit) if one.hosts > 1 and one.total is not None else ""
    slowest = ""
    if one.hosts > 1 and one.slowest_ratio is not None:
        slowest = f"{one.slowest} {times(one.slowest_ratio)} median"
    return [one.title, amount(one.mean, one.unit), amount(one.peak, one.unit), total, slowest]


def _phases(found: Summary, width: int) -> Lines:
    if not found.phases:
        return
    most = sorted(found.metrics, key=lambda one: one.unit != "B/s")[:MAX_VALUES]
    rows = [["", "time", *(one.title for one in most)]]
    for phase in found.phases[:MAX_PHASES]:
        values = {one.name: amount(one.mean, one.unit) for one in phase.metrics}
        rows.append(
            [shorten(phase.name, MAX_NAME), duration(phase.seconds), *(values.get(one.name, "") for one in most)]
        )
    yield from _table("phases", rows, width)
    if len(found.phases) > MAX_PHASES:
        yield _row("", f"{len(found.phases) - MAX_PHASES} more phases are on the page"), ""


def _outliers(found: Summary) -> Lines:
    for index, line in enumerate(found.outliers[:MAX_LINES]):
        yield _row("" if index else "outliers", line), "yellow"
    if len(found.outliers) > MAX_LINES:
        yield _row("", f"{len(found.outliers) - MAX_LINES} more"), ""


def _hosts(found: Summary) -> Lines:
    line = coverage_line(found.coverage) if found.coverage.requested else "none were recorded"
    yield _row("hosts", line), "" if found.coverage.complete else "yellow"
    for one in found.lost:
        yield _row("", f"{one.status}  {one.hosts}: {one.reason}"), "yellow" if one.status == "partial" else "red"


def _findings(found: Summary) -> Lines:
    if found.counts is None:
        return
    counted = [f"{count} {severity}" for severity, count in found.counts.items() if count]
    see = f"; see rollbook check {shlex.quote(_near(found.record))}" if counted else ""
    # Missing hosts and outliers have their own lines.
    above = sum(found.counts.values()) - sum(one.severity in found.counts for one in found.findings)
    listed = f" ({above} listed above)" if above > 0 else ""
    yield _row("checks", f"{', '.join(counted) or 'no findings'}{listed}{see}"), ""
    for one in found.findings[:MAX_LINES]:
        yield _row("", f"{one.severity}  {one.rule}: {one.message}"), COLOURS.get(one.severity, "")
    if len(found.findings) > MAX_LINES:
        yield _row("", f"{len(found.findings) - MAX_LINES} more"), ""
    if found.verdict:
        yield _row("verdict", found.verdict), ""


def _overhead(found: Summary) -> Lines:
    cost = found.overhead
    if cost is None:
        return
    spent = f"{number(cost.cpu_seconds)} CPU s"
    if cost.hosts > 1:
        spent += f" per host, at most {number(cost.most_cpu_seconds)}"
    if cost.most_share is not None:
        spent += f" ({number(100 * cost.most_share)} % of {'a host' if cost.hosts > 1 else 'the host'}'s CPUs)"
    yield _row("overhead", f"{spent}, {amount(cost.sent_bytes, 'B')} sent{_samples(found)}"), ""


def _samples(found: Summary) -> str:
    if not found.interval_seconds:
        return ""
    if found.samples > 1:
        return f"; {found.samples} samples, {found.interval_seconds:g} s apart"
    return "; 1 sample" if found.samples else "; no samples"


def _push(found: Summary) -> Lines:
    """What was sent; a note says what was lost."""
    if found.push is not None and found.push.sent is not None:
        yield _row("push", f"{found.push.sent} values sent to {found.push.url}"), ""


def _notes(found: Summary) -> Lines:
    for note in found.notes:
        yield _row("note", note), ""


def _places(found: Summary) -> Lines:
    page = Path(found.record) / "report.html"
    yield _row("record", _near(found.record)), ""
    if page.exists():
        yield _row("page", _near(str(page))), ""


def _near(path: str) -> str:
    """The path as it can be typed here: relative if it is below the working directory."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):  # it is elsewhere, or the working directory was removed
        return path
