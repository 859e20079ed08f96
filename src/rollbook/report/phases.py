"""What every metric was in every phase of the run, as the record's metadata have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollbook.records.run import Run
from rollbook.report.metrics import METRICS
from rollbook.report.model import MS, PhaseShown, PhaseValues

__all__ = ["phases"]


def phases(run: Run) -> list[PhaseShown]:
    """The phases in which something was sampled, each with the metrics that the page knows."""
    shown, waiting = [], list(run.hosts.phases)
    for name, rows in _by_phase(run.metadata.get("phase_statistics") or []):
        while waiting and waiting[0].name != name:
            del waiting[0]
        if not waiting:
            break
        phase = waiting.pop(0)
        known = [metric for metric in METRICS if metric.column in rows]
        values = [_values(metric.title, metric.unit, rows[metric.column]) for metric in known]
        shown.append(PhaseShown(name, phase.start_ns / MS, phase.end_ns / MS, values))
    return shown


def _by_phase(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, Mapping[str, Any]]]]:
    """Rows by metric, of one phase after the other; a name that comes again is another phase."""
    found: list[tuple[str, dict[str, Mapping[str, Any]]]] = []
    for row in rows:
        if not found or found[-1][0] != row["phase"] or row["metric"] in found[-1][1]:
            found.append((row["phase"], {}))
        found[-1][1][row["metric"]] = row
    return found


def _values(title: str, unit: str, row: Mapping[str, Any]) -> PhaseValues:
    return PhaseValues(
        title, unit, row["mean"], row["p50"], row["p95"], row["max"], row["hosts_p50"], row["slowest_host"] or ""
    )
