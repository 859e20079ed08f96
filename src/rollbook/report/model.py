"""The JSON document of the page; `web/src/model.ts` declares the same types in TypeScript.

Times are milliseconds since 1970 on the collector's clock. Hosts are given as their index in `hosts`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rollbook.report.pack import Packed
from rollbook.report.summary import Summary
from rollbook.version import __version__

__all__ = [
    "MS",
    "ChangeShown",
    "Chart",
    "CommandShown",
    "CostShown",
    "Devices",
    "FactShown",
    "FindingShown",
    "HostShown",
    "IssueReport",
    "Level",
    "Mark",
    "PageData",
    "PhaseShown",
    "PhaseValues",
    "Verdict",
]

MS = 1e6
"""Nanoseconds in a millisecond."""
Level = Literal["good", "warn", "bad", "open"]


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on the run in one line, and the reasons."""

    level: Level
    headline: str
    reasons: list[str]


class CommandShown(msgspec.Struct, frozen=True):
    """The command of the run: as typed, its exit status, when it ran."""

    text: str
    code: int | None = None
    start: float | None = None
    end: float | None = None


class GapShown(msgspec.Struct, frozen=True):
    """A time without samples."""

    start: float
    end: float
    why: str


class SourceGapShown(msgspec.Struct, frozen=True):
    """A time without samples of one source of a host."""

    source: str
    start: float
    end: float
    why: str


class HostShown(msgspec.Struct, frozen=True, kw_only=True):
    """One requested host; None is unknown."""

    name: str
    status: str
    reason: str = ""
    method: str = ""
    samples: int | None = None
    late: int | None = None
    missed: int | None = None
    boots: int = 0
    gaps: list[GapShown] = []
    source_gaps: list[SourceGapShown] = []
    losses: list[str] = []
    clock_offset_ms: float | None = None
    clock_bound_ms: float | None = None
    cpu_share: float | None = None
    memory_bytes: int | None = None
    sent_bytes: int | None = None
    about: list[tuple[str, str]] = []


class FindingShown(msgspec.Struct, frozen=True):
    """One finding of a rule. Hosts that are not of this run are left out of `hosts`, not of `where`.

    `start` and `end` are None for a finding about the whole run. `metrics` are those in which an outlier differs, the
    strongest first.
    """

    id: str
    severity: str
    message: str
    where: str
    hosts: list[int]
    details: list[str]
    evidence: dict[str, Any]
    advice: str
    silenced: str
    start: float | None = None
    end: float | None = None
    metrics: list[str] = []


class Mark(msgspec.Struct, frozen=True):
    """A mark on the timeline; `host` is None for the whole run."""

    kind: Literal["command", "phase", "gap", "reconnect", "reboot", "outlier", "finding"]
    start: float
    end: float
    text: str
    host: int | None = None


class PhaseValues(msgspec.Struct, frozen=True):
    """One metric in one phase: over all samples of all hosts, the median of the hosts' means, the slowest host."""

    metric: str
    unit: str
    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None
    median_host: float | None
    slowest: str


class PhaseShown(msgspec.Struct, frozen=True):
    """A phase of the run and its metrics."""

    name: str
    start: float
    end: float
    values: list[PhaseValues]


class Devices(msgspec.Struct, frozen=True):
    """The devices of a chart: the host and the name of each row, and the cells on an axis of their own."""

    hosts: list[int]
    names: list[str]
    start: float
    bucket: float
    packed: Packed


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One metric: hosts over time, and their devices if it has any."""

    id: str
    title: str
    unit: str
    description: str
    runs_out: bool
    ceiling: float | None
    highlight: int | None
    hosts: list[int]
    start: float
    bucket: float
    beats: int
    packed: Packed
    devices: Devices | None


class FactShown(msgspec.Struct, frozen=True):
    """A fact and its values: pairs of text and folded host names, the most common first."""

    source: str
    row: str
    field: str
    values: list[tuple[str, str]]


class ChangeShown(msgspec.Struct, frozen=True):
    """A fact that changed between start and end, and on which hosts."""

    source: str
    row: str
    field: str
    before: str
    after: str
    where: str


class CostShown(msgspec.Struct, frozen=True):
    """The overhead of Rollbook on the hosts that reported it: the medians."""

    hosts: int
    memory_bytes: float | None
    sent_bytes: float | None


class IssueReport(msgspec.Struct, frozen=True):
    """The issue report inside the record: the address of its page, and what was found in logs during the run."""

    page: str
    findings: list[FindingShown]


class PageData(msgspec.Struct, kw_only=True):
    """Everything on the page; `no_findings` is the text in place of the findings if there are none.

    `has_end` says whether facts were read at the end too. `summary` is the document that `rollbook run --json` prints.
    """

    schema: str = "rollbook.page/1"
    rollbook: str = __version__
    title: str
    created: float
    start: float
    end: float
    interval: float | None
    verdict: Verdict
    summary: Summary
    has_end: bool
    command: CommandShown | None
    coverage: dict[str, int]
    hosts: list[HostShown]
    findings: list[FindingShown]
    checks: dict[str, int] | None
    counts: dict[str, int]
    no_findings: str
    cost: CostShown | None
    marks: list[Mark]
    charts: list[Chart]
    phases: list[PhaseShown]
    differing: list[FactShown]
    equal: list[FactShown]
    changes: list[ChangeShown]
    compared: str
    notes: list[str]
    issue_report: IssueReport | None = None
