"""The statistics of metrics in phases, as a record stores them."""

from __future__ import annotations

import msgspec

from rollbook.records.hosts import Int64

__all__ = ["PhaseStatistics"]


class PhaseStatistics(msgspec.Struct):
    """One metric in one phase, over time and over hosts: a row of `phase_statistics` in the metadata."""

    phase: str
    metric: str
    number: Int64 = -1
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
