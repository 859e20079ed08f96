"""What checks say: findings, the outcome of each rule, and the document that holds them all."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from rollbook.records.document import written_by

__all__ = [
    "Change",
    "Compared",
    "Difference",
    "Finding",
    "Findings",
    "GroupShown",
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
    """A value, and the hosts that have it; null where the host has none."""

    value: Any
    hosts: list[str]


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field that hosts disagree on: the value most have first. `row` names the device where there is one."""

    field: str
    values: list[Value]
    row: str = ""
    unit: str = ""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field that was one thing and then another; null where there was none. `mode` is how it compares."""

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
    """One thing that a rule found. `hosts` are those to look at; `evidence` are the numbers it rests on.

    A rule leaves `severity` and `advice` empty where its own hold.
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


class Compared(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that a rule compared: what is required, and what was measured and declared; None where unknown."""

    what: str
    required: Any
    measured: Any = None
    declared: Any = None


class RuleResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of one rule; `note` says why it does not apply or could not tell, or what its findings leave open.

    `values` are the values it compared, also where it passed; few rules list them.
    """

    id: str
    outcome: Outcome
    note: str = ""
    findings: list[Finding] = []
    values: list[Compared] = []

    @property
    def left_open(self) -> bool:
        """Whether there is something that the rule could not see, whatever it found besides."""
        return bool(self.note) and self.outcome != "not-applicable"


class GroupShown(msgspec.Struct, frozen=True):
    """A group of like hosts: its name, what they have in common, its members."""

    name: str
    profile: str
    hosts: list[str]


class Findings(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.findings/1"):
    """Every rule's outcome over one record.

    For a benchmark of MLPerf Storage, `verdict` is CLOSED, OPEN or INVALID by the rules of `round`; null means not
    judged, and `not_judged` lists the missing inputs.
    """

    rollbook: str = msgspec.field(default_factory=written_by)
    created: str
    outcomes: dict[str, int]
    groups: list[GroupShown]
    rules: list[RuleResult]
    verdict: str | None = None
    round: str = ""
    not_judged: list[str] = []
    notes: list[str] = []

    @classmethod
    def of(cls, created: str, groups: list[GroupShown], rules: list[RuleResult]) -> Findings:
        """From results, worst first."""
        ordered = sorted(rules, key=lambda result: -RANK[result.outcome])
        return cls(created=created, outcomes=dict(Counter(r.outcome for r in ordered)), groups=groups, rules=ordered)

    @property
    def verdict_text(self) -> str:
        """The verdict on a benchmark of MLPerf Storage in one line; empty for any other record."""
        if self.verdict:
            return f"MLPerf Storage: {self.verdict} (rules of {self.round})"
        return f"MLPerf Storage: not judged; missing: {'; '.join(self.not_judged)}" if self.not_judged else ""

    def at_least(self, severity: Severity) -> list[Finding]:
        """The findings that count, of that severity or worse."""
        wanted = RANK[severity]
        found = (finding for result in self.rules for finding in result.findings if finding.silenced is None)
        return [finding for finding in found if RANK[finding.severity or "fail"] >= wanted]


def worst(findings: Sequence[Finding]) -> Outcome:
    """The outcome of a rule with these findings, silenced ones not counted."""
    counted = {finding.severity for finding in findings if finding.silenced is None}
    return "fail" if "fail" in counted else "warn" if "warn" in counted else "pass"
