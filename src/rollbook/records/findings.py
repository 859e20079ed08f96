"""Findings, the outcome of each rule, and the document with all of them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rollbook.records.document import current_version, read

__all__ = [
    "Change",
    "Compared",
    "Difference",
    "EvidenceLine",
    "Finding",
    "Findings",
    "GroupSummary",
    "Outcome",
    "RuleList",
    "RuleManual",
    "RuleResult",
    "Severity",
    "Silenced",
    "Value",
    "read_findings",
    "worst",
]

Severity = Literal["note", "warn", "fail"]
"""`note` is worth knowing but not a problem of its own: it does not count, and its rule passes."""
Outcome = Literal["pass", "warn", "fail", "not-applicable", "could-not-tell"]
RANK: dict[str, int] = {"not-applicable": 0, "pass": 1, "could-not-tell": 2, "warn": 3, "fail": 4}


class Value(msgspec.Struct, frozen=True):
    """A value and the hosts that have it; null means that it is absent."""

    value: Any
    hosts: list[str]


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field in which hosts differ, the most common value first. `row` is the device in a table."""

    field: str
    values: list[Value]
    row: str = ""
    unit: str = ""

    @property
    def most_common(self) -> Value | None:
        """The value that more hosts have than any other; None for a tie."""
        first, *rest = self.values
        return first if rest and len(first.hosts) > len(rest[0].hosts) else None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field whose value changed; null means absent. `mode` is how the field compares."""

    field: str
    before: Any
    after: Any
    row: str = ""
    unit: str = ""
    mode: str = "same"


class Silenced(msgspec.Struct, frozen=True):
    """Why a finding does not count, and the last day."""

    reason: str
    until: dt.date


class EvidenceLine(msgspec.Struct, frozen=True):
    """A line of a file in an issue report: the path relative to the report, the line number from 1, the text."""

    path: str
    line: int
    text: str


class Finding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One finding of a rule: the hosts concerned, and the numbers as evidence.

    If a rule leaves `severity` or `advice` empty, those of the rule apply. Findings in an issue report also have the
    device, the number of events with the time of the first and the last one, and up to five lines.
    """

    message: str
    hosts: list[str] = []
    severity: Severity | None = None
    group: str = ""
    differences: list[Difference] = []
    changes: list[Change] = []
    evidence: dict[str, Any] = {}
    advice: str = ""
    silenced: Silenced | None = None
    device: str = ""
    count: int = 0
    first: dt.datetime | None = None
    last: dt.datetime | None = None
    lines: list[EvidenceLine] = []


class Compared(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that a rule compared: what is required, and what was measured and declared; None where unknown."""

    what: str
    required: Any
    measured: Any = None
    declared: Any = None


class RuleResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The outcome of one rule. `note` is why it does not apply or which input was missing.

    `values` are the values it compared, even if it passed; few rules list them.
    """

    id: str
    outcome: Outcome
    note: str = ""
    findings: list[Finding] = []
    values: list[Compared] = []

    @property
    def is_incomplete(self) -> bool:
        """Whether part of the input was missing, with or without findings."""
        return bool(self.note) and self.outcome != "not-applicable"


class RuleManual(msgspec.Struct, frozen=True):
    """A rule's id, its severity and its manual."""

    id: str
    severity: Severity
    manual: str


class RuleList(msgspec.Struct, tag_field="schema", tag="rollbook.rules/1"):
    """The document of `rollbook check --list --json`."""

    rules: list[RuleManual]


class GroupSummary(msgspec.Struct, frozen=True):
    """A group of hosts that are compared: its name, machine and processor, its hosts."""

    name: str
    profile: str
    hosts: list[str]


class Findings(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.findings/1"):
    """The outcome of every rule over one record.

    `counts` has the findings by severity and `outcomes` the rules by outcome; a rule can have several findings, and
    silenced findings do not count. For a benchmark of MLPerf Storage, `verdict` is CLOSED, OPEN or INVALID by the rules
    of `round`; null means not judged, and `not_judged` lists the missing inputs.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
    created: str
    counts: dict[Severity, int] = {}
    outcomes: dict[str, int]
    groups: list[GroupSummary]
    rules: list[RuleResult]
    verdict: str | None = None
    round: str = ""
    not_judged: list[str] = []
    notes: list[str] = []

    @classmethod
    def of(cls, created: str, groups: list[GroupSummary], rules: list[RuleResult]) -> Findings:
        """From results, worst first."""
        ordered = sorted(rules, key=lambda result: -RANK[result.outcome])
        found = cls(created=created, outcomes=dict(Counter(r.outcome for r in ordered)), groups=groups, rules=ordered)
        found.count_severities()
        return found

    def count_severities(self) -> None:
        """Set `counts`; notes are listed only if there are any."""
        self.counts = {"fail": len(self.failures), "warn": len(self.warnings)}
        if notes := len(self._counted("note")):
            self.counts["note"] = notes

    @property
    def failures(self) -> list[Finding]:
        """The findings of severity fail that are not silenced."""
        return self._counted("fail")

    @property
    def warnings(self) -> list[Finding]:
        """The findings of severity warn that are not silenced."""
        return self._counted("warn")

    @property
    def verdict_text(self) -> str:
        """The verdict on a benchmark of MLPerf Storage in one line; empty for any other record."""
        if self.verdict:
            return f"MLPerf Storage: {self.verdict} (rules of {self.round})"
        return f"MLPerf Storage: not judged; missing: {'; '.join(self.not_judged)}" if self.not_judged else ""

    def at_least(self, severity: Severity) -> list[Finding]:
        """The findings of that severity or worse that are not silenced."""
        return self.failures if severity == "fail" else [*self.failures, *self.warnings]

    def _counted(self, severity: Severity) -> list[Finding]:
        found = (finding for result in self.rules for finding in result.findings)
        return [one for one in found if one.silenced is None and (one.severity or "fail") == severity]


def worst(findings: Sequence[Finding]) -> Outcome:
    """The outcome of a rule with these findings, without silenced ones."""
    counted = {finding.severity for finding in findings if finding.silenced is None}
    return "fail" if "fail" in counted else "warn" if "warn" in counted else "pass"


def read_findings(directory: Path) -> Findings | None:
    """The findings of a record or an issue report; None if it was not checked. Raises `RecordError` if unreadable."""
    path = directory / "findings.json"
    return read(path, Findings) if path.exists() else None
