"""Results of checks: findings, the outcome of each rule, and the document that holds them all."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from rollbook.records.document import written_by

__all__ = [
    "Change",
    "Difference",
    "Finding",
    "Findings",
    "HostGroup",
    "Outcome",
    "RuleResult",
    "Severity",
    "Silenced",
    "Value",
]

Severity = Literal["warn", "fail"]
Outcome = Literal["pass", "warn", "fail", "not-applicable", "could-not-tell"]
RANK: dict[str, int] = {"not-applicable": 0, "pass": 1, "could-not-tell": 2, "warn": 3, "fail": 4}


class Value(msgspec.Struct, frozen=True):
    """A value and the hosts that have it; null if the hosts have none."""

    value: Any
    hosts: list[str]


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field that differs between hosts, majority value first. `row` names the device, if any."""

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
    """One field that changed; null if it had no value. `mode` is how the field is compared."""

    field: str
    before: Any
    after: Any
    row: str = ""
    unit: str = ""
    mode: str = "same"


class Silenced(msgspec.Struct, frozen=True):
    """Why a finding does not count, and until when."""

    reason: str
    until: dt.date


class Finding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that a rule found. `hosts` are the affected hosts; `evidence` holds the numbers behind it.

    A rule leaves `severity` and `advice` empty to use its own defaults.
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


class RuleResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The outcome of one rule; `note` is why it does not apply or could not tell, or which input was incomplete."""

    id: str
    outcome: Outcome
    note: str = ""
    findings: list[Finding] = []

    @property
    def is_incomplete(self) -> bool:
        """Whether part of the rule's input was missing, whatever it found in the rest."""
        return bool(self.note) and self.outcome != "not-applicable"


class HostGroup(msgspec.Struct, frozen=True):
    """A group of similar hosts: its name, what they have in common, its members."""

    name: str
    profile: str
    hosts: list[str]


class Findings(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.findings/1"):
    """The outcome of every rule over one record.

    `counts` has the findings by severity and `outcomes` the rules by outcome; a rule can have several findings, and
    silenced findings do not count. `verdict` is that of MLPerf Storage, for its benchmarks.
    """

    rollbook: str = msgspec.field(default_factory=written_by)
    created: str
    counts: dict[Severity, int] = {}
    outcomes: dict[str, int]
    groups: list[HostGroup]
    rules: list[RuleResult]
    verdict: str | None = None
    notes: list[str] = []

    @classmethod
    def of(cls, created: str, groups: list[HostGroup], rules: list[RuleResult]) -> Findings:
        """From results, worst first."""
        ordered = sorted(rules, key=lambda result: -RANK[result.outcome])
        found = cls(created=created, outcomes=dict(Counter(r.outcome for r in ordered)), groups=groups, rules=ordered)
        found.counts = {"fail": len(found.failures), "warn": len(found.warnings)}
        return found

    @property
    def failures(self) -> list[Finding]:
        """The findings of severity fail that are not silenced."""
        return self._counted("fail")

    @property
    def warnings(self) -> list[Finding]:
        """The findings of severity warn that are not silenced."""
        return self._counted("warn")

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
