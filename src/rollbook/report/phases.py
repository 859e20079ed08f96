"""Statistics of every metric in every phase of the run, from the record's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollbook.metrics import catalogue
from rollbook.records.record import Record
from rollbook.report.model import MS, PhaseShown, PhaseValues

__all__ = ["phases"]


def phases(run: Record) -> list[PhaseShown]:
    """The phases with samples, each with the metrics of the catalogue."""
    by_phase: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in run.metadata.get("phase_statistics") or []:
        by_phase.setdefault(row.get("number", -1), {})[row["metric"]] = row
    shown = []
    for number, phase in enumerate(run.hosts.phases):
        rows = by_phase.get(number, {})
        known = [metric for name, metric in catalogue.load().items() if name in rows]
        values = [_values(metric.title, metric.unit, rows[metric.name]) for metric in known]
        if rows:
            shown.append(PhaseShown(phase.name, phase.start_ns / MS, phase.end_ns / MS, values))
    return shown


def _values(title: str, unit: str, row: Mapping[str, Any]) -> PhaseValues:
    return PhaseValues(
        title,
        unit,
        row.get("mean"),
        row.get("p50"),
        row.get("p95"),
        row.get("max"),
        row.get("hosts_p50"),
        row.get("slowest_host") or "",
    )
