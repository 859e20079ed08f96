"""Statistics of every metric in every phase of the run, from the record's metadata."""

from __future__ import annotations

from rollbook.metrics import catalogue
from rollbook.records.phase_statistics import statistics_by_phase
from rollbook.records.record import Record
from rollbook.report.model import MS, PhaseShown, PhaseValues

__all__ = ["phases"]


def phases(record: Record) -> list[PhaseShown]:
    """The phases with samples, each with the metrics of the catalogue."""
    by_phase, shown = statistics_by_phase(record.metadata.get("phase_statistics")), []
    for number, phase in enumerate(record.hosts.phases):
        rows = by_phase.get(number, {})
        values = [
            PhaseValues(
                metric.title, metric.unit, row.mean, row.p50, row.p95, row.max, row.hosts_p50, row.slowest_host or ""
            )
            for name, metric in catalogue.load().items()
            if (row := rows.get(name)) is not None
        ]
        if rows:
            shown.append(PhaseShown(phase.name, phase.start_ns / MS, phase.end_ns / MS, values))
    return shown
