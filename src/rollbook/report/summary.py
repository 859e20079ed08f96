"""The summary of a run: one document for the end of `run` and `record`, for `--json` and for the page.

It is derived from a finished record alone: metadata with the statistics per phase, hosts and findings.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollbook.clean import clean
from rollbook.errors import RecordError
from rollbook.hosts import fold
from rollbook.metrics import catalogue
from rollbook.metrics.metric import Metric
from rollbook.records.causes import group_by_status
from rollbook.records.document import current_version
from rollbook.records.findings import Findings, read_findings
from rollbook.records.hosts import Coverage
from rollbook.records.phase_statistics import PhaseStatistics, StatisticsByPhase, statistics_by_phase
from rollbook.records.pushed import Pushed
from rollbook.records.reading import open_regular
from rollbook.records.record import Phase, Record, RecordHosts
from rollbook.records.results import Result, results_of

__all__ = ["OUTLIER", "MetricSummary", "Summary", "summarise"]

LONG_ENOUGH = 30.0
"""Seconds of recording; in shorter ones the start of the agent dominates, so there is no share of the CPUs."""
LAST_LINES = 5
TAIL = 8192  # bytes of a log that are searched for its last lines
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
OUTLIER = "host-outlier"
HOST_RULES = ("host-missing", "host-lost", "host-partial", "series-incomplete", "series-loss")
"""Rules whose findings are the hosts that `lost` lists."""
AGREES = 0.1  # difference between the benchmark's bytes and those of the hosts
ENOUGH_BYTES = 64 << 20  # with fewer, the background load of the hosts matters
LONG_PHASE = 0.75  # share of the run; the slowest host of such a phase is the slowest of the run
DIFFERS = 0.05  # of the median of hosts
FLOWS = {"read": ("disk_read", "nfs_read"), "write": ("disk_write", "nfs_write")}
LUSTRE_FLOWS = {"read": "lustre_read", "write": "lustre_write"}  # counted there, even if the page cache answers
OWN_PHASES = ("command", "after")


class CommandEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the command ended. `signal` names the signal that killed it; `stderr` has its last lines if it failed.

    At a terminal both outputs are one stream, in their order: then `stderr` is empty and `output` has its last lines.
    """

    text: str
    exit_code: int | None
    seconds: float
    signal: str = ""
    stderr: list[str] = []
    output: list[str] = []

    @property
    def failed(self) -> bool:
        """Whether it did not end with exit status 0."""
        return self.exit_code != 0


class Seen(msgspec.Struct, frozen=True):
    """The bytes that the benchmark reports and those that the hosts counted at disks and network file systems."""

    direction: str
    reported_bytes: float
    counted_bytes: float
    agrees: bool
    text: str


class MetricSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One metric: mean and peak of a host; for several hosts the sum of flows, and the slowest host.

    `slowest_ratio` is the mean of the slowest host as a multiple of that of the median host, in the longest phase.
    """

    name: str
    title: str
    unit: str
    mean: float
    peak: float
    hosts: int = 1
    total: float | None = None
    slowest: str = ""
    slowest_ratio: float | None = None


class PhaseSummary(msgspec.Struct, frozen=True):
    """A phase with the metrics that moved in the run."""

    name: str
    seconds: float
    metrics: list[MetricSummary]


class FindingLine(msgspec.Struct, frozen=True):
    """One finding: its severity, rule and message, and the folded hosts."""

    severity: str
    rule: str
    message: str
    hosts: str


class Lost(msgspec.Struct, frozen=True):
    """Hosts that are not complete for the same cause, folded."""

    status: str
    reason: str
    hosts: str
    count: int


class Overhead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Rollbook used on the hosts: CPU seconds per host, bytes sent by all; `most_share` only for long runs."""

    hosts: int
    cpu_seconds: float
    most_cpu_seconds: float
    sent_bytes: int
    most_share: float | None = None


class Summary(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.summary/1"):
    """The run at a glance. `counts` has the findings by severity; null for a record that was not checked.

    `metrics` are those that moved, over the whole run; `phases` the same for each phase. `seen` compares the results
    with the bytes that the hosts counted.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
    record: str
    type: str
    command: CommandEnd | None = None
    seconds: float
    results: list[Result] = []
    seen: list[Seen] = []
    metrics: list[MetricSummary] = []
    phases: list[PhaseSummary] = []
    outliers: list[str] = []
    counts: dict[str, int] | None = None
    findings: list[FindingLine] = []
    verdict: str = ""
    coverage: Coverage
    lost: list[Lost] = []
    interval_seconds: float | None = None
    samples: int = 0
    overhead: Overhead | None = None
    push: Pushed | None = None
    notes: list[str] = []


def summarise(record: Record) -> Summary:
    """Summarise a record, complete or not; what it does not have is left out."""
    metadata, hosts = record.metadata, record.hosts
    checked = read_findings(record.path)
    rows = statistics_by_phase(metadata.get("phase_statistics"))
    results = [] if metadata.get("benchmark_type") == "generic" else results_of(metadata)
    seconds = float(metadata.get("runtime") or (hosts.ended_ns - hosts.started_ns) / 1e9)
    whole = hosts.command_phases
    moved = list(_moved(whole, rows))
    return Summary(
        record=str(record.path),
        type=str(metadata.get("benchmark_type", "")),
        command=_command(record, seconds),
        seconds=seconds,
        results=results,
        seen=list(_seen(results, whole, rows)),
        metrics=moved,
        phases=list(_phases(hosts, rows, moved)),
        outliers=list(_outliers(checked)),
        counts={name: checked.counts.get(name, 0) for name in ("fail", "warn")} if checked else None,
        findings=list(_findings(checked)),
        verdict=checked.verdict_text if checked else "",
        coverage=record.coverage,
        lost=list(_lost(hosts)),
        interval_seconds=hosts.interval_seconds,
        samples=sum(host.samples for host in hosts.series),
        overhead=_overhead(hosts),
        push=_push(metadata),
        notes=[str(note) for note in metadata.get("notes") or []],
    )


def _command(record: Record, seconds: float) -> CommandEnd | None:
    text, code = str(record.metadata.get("executed_command") or ""), record.metadata.get("exit_code")
    if not text:
        return None
    killed = ""
    if isinstance(code, int) and code > 128:
        with contextlib.suppress(ValueError):
            killed = signal.Signals(code - 128).name
    stderr = _last_lines(record, "stderr") if code else []
    return CommandEnd(text, code, seconds, killed, stderr, _last_lines(record, "stdout") if code and not stderr else [])


def _last_lines(record: Record, stream: str) -> list[str]:
    """The last lines that the command wrote to a stream, without colours."""
    logs = record.metadata.get("command_output_files") or []
    name = str(logs[0].get(stream, "")) if logs and isinstance(logs[0], dict) else ""
    try:
        with open_regular(record.path / Path(name).name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            text = file.read(TAIL).decode("utf-8", "replace")
    except (OSError, ValueError, RecordError):  # ValueError: a name that no file can have
        return []
    lines = [clean(line.rstrip()) for line in COLOUR.sub("", text).replace("\r", "\n").splitlines()]
    return [line for line in lines if line][-LAST_LINES:]


def _combined(metric: Metric, phases: Mapping[int, Phase], rows: StatisticsByPhase) -> MetricSummary | None:
    """A metric over several phases, each weighted by its length."""
    parts = [
        (row, mean, peak, max(1, phase.end_ns - phase.start_ns))
        for number, phase in phases.items()
        if (row := rows.get(number, {}).get(metric.name))
        and (mean := row.mean) is not None
        and (peak := row.max) is not None
    ]
    if not parts:
        return None
    length = sum(weight for *_, weight in parts)
    mean = sum(mean * weight for _, mean, _, weight in parts) / length
    hosts = max(row.hosts or 1 for row, *_ in parts)
    row, _, _, longest = max(parts, key=lambda part: part[-1])
    slowest, ratio = _slowest(metric, row, longest, length) if hosts > 1 else ("", None)
    return MetricSummary(
        metric.name,
        metric.title,
        metric.unit,
        mean,
        max(peak for _, _, peak, _ in parts),
        hosts,
        mean * hosts if hosts > 1 and metric.unit in ("B/s", "1/s") else None,
        slowest,
        ratio,
    )


def _slowest(metric: Metric, row: PhaseStatistics, length: int, whole: int) -> tuple[str, float | None]:
    """The slowest host and its ratio, if one phase is most of the time and the host differs by what matters."""
    extreme, usual = row.hosts_max if metric.bad == "high" else row.hosts_min, row.hosts_p50
    if length < LONG_PHASE * whole or extreme is None or not usual or not row.slowest_host:
        return "", None
    far = abs(extreme - usual) >= max(metric.negligible, DIFFERS * abs(usual))
    return (row.slowest_host, extreme / usual) if far else ("", None)


def _moved(phases: Mapping[int, Phase], rows: StatisticsByPhase) -> Iterator[MetricSummary]:
    """The metrics of the catalogue that are part of a summary and reached what matters."""
    metrics = catalogue.load()

    def moved(metric: Metric) -> MetricSummary | None:
        found = _combined(metric, phases, rows)
        return found if found is not None and found.peak >= metric.negligible else None

    for metric in metrics.values():
        # The latency of a handful of requests says nothing.
        weight = metrics.get(metric.total)
        if metric.summary and (weight is None or moved(weight)) and (found := moved(metric)):
            yield found


def _phases(hosts: RecordHosts, rows: StatisticsByPhase, moved: Iterable[MetricSummary]) -> Iterator[PhaseSummary]:
    """The phases that the user, the command or the benchmark marked."""
    metrics = [catalogue.load()[one.name] for one in moved]
    marked = [one for one in enumerate(hosts.phases) if one[1].name not in OWN_PHASES]
    for number, phase in marked:
        found = [one for metric in metrics if (one := _combined(metric, {number: phase}, rows))]
        yield PhaseSummary(phase.name, (phase.end_ns - phase.start_ns) / 1e9, found)


def _seen(results: Sequence[Result], phases: Mapping[int, Phase], rows: StatisticsByPhase) -> Iterator[Seen]:
    """Compare the bytes of the benchmark with those of the hosts, in each direction.

    With Lustre there is nothing to compare: it counts what programs read, not what was transferred.
    """
    for direction, names in FLOWS.items():
        reported = sum(one.value or 0.0 for one in results if one.metric == f"{direction}_bytes")
        flows = [one for name in names if (one := _combined(catalogue.load()[name], phases, rows))]
        if reported < ENOUGH_BYTES or not flows:
            continue
        called = _combined(catalogue.load()[LUSTRE_FLOWS[direction]], phases, rows)
        if called and called.mean > 0:
            continue
        seconds = sum(phase.end_ns - phase.start_ns for phase in phases.values()) / 1e9
        counted = sum(one.mean * one.hosts for one in flows) * seconds
        difference = counted / reported - 1
        agrees = abs(difference) <= AGREES
        if agrees:
            text = f"agrees with the result ({100 * difference:+.1f} %)"
        elif difference < 0:
            share = 100 * counted / reported
            text = f"{share:.0f} % of the result; the rest stayed in the page cache or went elsewhere"
        else:
            text = f"{100 * difference:.0f} % more than the result, so other programs used the disks too"
        yield Seen(direction, reported, counted, agrees, text)


def _outliers(checked: Findings | None) -> Iterator[str]:
    for rule in checked.rules if checked else ():
        if rule.id == OUTLIER:
            yield from (one.message for one in rule.findings if one.silenced is None)


def _findings(checked: Findings | None) -> Iterator[FindingLine]:
    """All findings that count, failures first, without outliers and missing hosts, which have their own place."""
    found = [
        FindingLine(one.severity or "fail", rule.id, one.message, fold(one.hosts))
        for rule in (checked.rules if checked else ())
        for one in rule.findings
        if one.silenced is None and rule.id != OUTLIER and rule.id not in HOST_RULES
    ]
    yield from sorted(found, key=lambda one: one.severity != "fail")


def _lost(hosts: RecordHosts) -> Iterator[Lost]:
    for status, reason, names in group_by_status(host for host in hosts.outcome if host.status != "complete"):
        yield Lost(status, reason, fold(names), len(names))


def _push(metadata: Mapping[str, Any]) -> Pushed | None:
    try:
        return msgspec.convert(metadata.get("push"), Pushed | None)
    except msgspec.ValidationError:  # a record may come from anyone
        return None


def _overhead(hosts: RecordHosts) -> Overhead | None:
    costs = [host.cost for host in hosts.series if host.cost is not None and host.cost.cpu_seconds is not None]
    used = [cost.cpu_seconds for cost in costs if cost.cpu_seconds is not None]
    if not used:
        return None
    shares = [host.cpu_share for host in hosts.series if host.cpu_share is not None]
    long = (hosts.ended_ns - hosts.started_ns) / 1e9 >= LONG_ENOUGH
    return Overhead(
        len(used),
        statistics.median(used),
        max(used),
        sum(cost.sent_bytes or 0 for cost in costs),
        max(shares) if shares and long else None,
    )
