"""Findings that a person has looked at and decided to live with, for a while.

[[silence]]
rule = "mtu-mismatch"
hosts = "node17"                    # optional: findings about these hosts and no others
reason = "waits for a new switch, ticket 4711"
until = 2026-12-31                  # the last day
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollbook.checks.toml import read_toml
from rollbook.errors import UsageError
from rollbook.hosts import expand
from rollbook.records.findings import Finding, Silenced

__all__ = ["Silence", "apply", "expired", "read_silences"]


class Silence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One decision; without a reason and an end it is none."""

    rule: str
    reason: str
    until: dt.date
    hosts: str | None = None

    def covers(self, rule: str, finding: Finding) -> bool:
        """Whether it is about this finding, and about all hosts that the finding names."""
        if rule != self.rule:
            return False
        return self.hosts is None or bool(finding.hosts and set(finding.hosts) <= set(expand(self.hosts)))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    silence: list[Silence]


def read_silences(path: Path, known: Sequence[str]) -> list[Silence]:
    """The silences of a file; raises `UsageError` for one without reason or end, or of an unknown rule."""
    found = read_toml(path, _File).silence
    for one in found:
        if one.rule not in known:
            raise UsageError(f"{path}: no rule is called {one.rule!r}")
        if not one.reason.strip():
            raise UsageError(f"{path}: the silence of {one.rule} gives no reason")
    return found


def apply(silences: Sequence[Silence], rule: str, finding: Finding, today: dt.date) -> None:
    """Mark a finding that one of the silences covers and that has not run out."""
    for one in silences:
        if one.until >= today and one.covers(rule, finding):
            finding.silenced = Silenced(one.reason, one.until)
            return


def expired(silences: Sequence[Silence], today: dt.date) -> list[str]:
    """A line for each silence that has run out."""
    return [f"the silence of {one.rule} ended on {one.until}: {one.reason}" for one in silences if one.until < today]
