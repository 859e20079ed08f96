"""The numbers of one run that can be compared: results, lengths of phases, metrics of hosts."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence

import msgspec

from rollbook.comparison.results import Key, compared_results
from rollbook.comparison.statistics import Better
from rollbook.errors import RecordError
from rollbook.metrics import catalogue
from rollbook.metrics.metric import Metric
from rollbook.records.phase_statistics import PhaseStatistics, StatisticsByPhase, statistics_by_phase
from rollbook.records.record import Record
from rollbook.sql.grids import open_tables

__all__ = ["RunValues", "phase_names", "run_values"]


@dataclasses.dataclass
class RunValues:
    """The numbers of one run by key, and the host with the worst value of each metric in the longest phase."""

    numbers: dict[Key, float]
    worst: dict[Key, str]


def run_values(record: Record, phase: str) -> RunValues:
    """All numbers of a run; metrics are those of the phases with this name or, without a name, of the whole command."""
    found = RunValues({}, {})
    for result, value in compared_results(record.metadata):
        if math.isfinite(value):
            found.numbers[result] = value
    for name, seconds in _lengths(record).items():
        found.numbers[Key("phase", name, f"phase {name}", "s", "low")] = seconds
    for key, value, host in _metrics(record, phase):
        if math.isfinite(value):
            found.numbers[key] = value
            if host:
                found.worst[key] = host
    return found


def phase_names(record: Record) -> list[str]:
    """The names of the phases of a run, in their order; a run without phases is one phase called `run`."""
    return list(dict.fromkeys(phase.name for phase in record.hosts.phases)) or ["run"]


def _better(metric: Metric) -> Better:
    """The direction of a metric that is better for a benchmark; empty where that depends on the workload.

    Less CPU time for the same work is not worse, although a host that does less than its peers is.
    """
    if not metric.bad or (metric.unit == "%" and metric.bad == "low"):
        return ""
    return "high" if metric.bad == "low" else "low"


def _lengths(record: Record) -> dict[str, float]:
    """The length of each phase that was marked or that the benchmark reports."""
    found: dict[str, float] = {}
    for phase in record.hosts.phases:
        if phase.name not in ("command", "after"):
            found[phase.name] = found.get(phase.name, 0.0) + (phase.end_ns - phase.start_ns) / 1e9
    return found


def _metrics(record: Record, phase: str) -> Iterator[tuple[Key, float, str]]:
    """Mean over time and hosts of each metric in the phases, and with several hosts the value of the worst one."""
    named = {number: one for number, one in enumerate(record.hosts.phases) if one.name == phase}
    phases = named or record.hosts.command_phases
    there = [rows for number, rows in _statistics(record).items() if number in phases]
    for name, metric in catalogue.load().items():
        found = [rows[name] for rows in there if name in rows and rows[name].mean is not None]
        if not (metric.chart and metric.compared and found):
            continue
        better = _better(metric)
        lengths = [max(1, phases[row.number].end_ns - phases[row.number].start_ns) for row in found]
        yield Key("metric", name, metric.title, metric.unit, better), _mean(found, lengths, "mean"), ""
        if metric.bad and max(row.hosts or 0 for row in found) > 1:
            side = "hosts_min" if metric.bad == "low" else "hosts_max"
            worst = found[lengths.index(max(lengths))].slowest_host or ""
            title = f"{metric.title}, {'lowest' if metric.bad == 'low' else 'highest'} host"
            yield Key("host", name, title, metric.unit, better), _mean(found, lengths, side), worst


def _mean(rows: Sequence[PhaseStatistics], lengths: Sequence[int], name: str) -> float:
    """The mean over phases weighted by their lengths, as in the summary; not a number if a row has no value."""
    values = [math.nan if (value := getattr(row, name)) is None else value for row in rows]
    return statistics.fmean(values, lengths)


def _statistics(record: Record) -> StatisticsByPhase:
    """The statistics per phase that the record stores; a record without phases has none and they are computed.

    Raises `RecordError` if they are not what Rollbook stores, or if a table is damaged.
    """
    rows = record.metadata.get("phase_statistics")
    if not rows:
        with open_tables(record) as tables:
            rows = tables.phase_statistics() if tables else []
    try:
        return statistics_by_phase(rows)
    except msgspec.ValidationError as error:
        raise RecordError(f"{record.path}: phase_statistics: {error}") from error
