"""The statistics of metrics in phases, as a record stores them."""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.records.hosts import Int64

__all__ = ["PhaseStatistics", "StatisticsByPhase", "statistics_by_phase"]


class PhaseStatistics(msgspec.Struct, kw_only=True):
    """One metric in one phase, over time and over hosts: a row of `phase_statistics` in the metadata."""

    number: Int64 = -1
    phase: str
    metric: str
    samples: Int64 | None = None
    hosts: Int64 | None = None
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None
    hosts_p50: float | None = None
    hosts_p95: float | None = None
    hosts_min: float | None = None
    hosts_max: float | None = None
    slowest_host: str | None = None


StatisticsByPhase = dict[int, dict[str, PhaseStatistics]]
"""By the number of the phase and the name of the metric."""


def statistics_by_phase(stored: Any) -> StatisticsByPhase:
    """The rows of `phase_statistics` in metadata; raises `msgspec.ValidationError` if Rollbook did not write them."""
    found: StatisticsByPhase = {}
    for row in msgspec.convert(stored or [], list[PhaseStatistics]):
        found.setdefault(row.number, {})[row.metric] = row
    return found
