"""Findings to ignore until a given date, from a TOML file.

[[silence]]
rule = "mtu-mismatch"
hosts = "node17"                    # optional: only findings whose hosts are all in this nodeset
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
    """One silenced rule, with a reason and a last day."""

    rule: str
    reason: str
    until: dt.date
    hosts: str | None = None

    def covers(self, rule: str, finding: Finding) -> bool:
        """Whether it applies to this finding and to all its hosts."""
        if rule != self.rule:
            return False
        return self.hosts is None or bool(finding.hosts and set(finding.hosts) <= set(expand(self.hosts)))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    silence: list[Silence]


def read_silences(path: Path, rules: Sequence[str]) -> list[Silence]:
    """The silences in a file; raises `UsageError` for an unknown rule or a missing reason or date."""
    found = read_toml(path, _File).silence
    for one in found:
        if one.rule not in rules:
            raise UsageError(f"{path}: no rule {one.rule!r}")
        if not one.reason.strip():
            raise UsageError(f"{path}: the silence for {one.rule} has no reason")
    return found


def apply(silences: Sequence[Silence], rule: str, finding: Finding, today: dt.date) -> None:
    """Mark a finding that is covered by a silence which has not expired."""
    for one in silences:
        if one.until >= today and one.covers(rule, finding):
            finding.silenced = Silenced(one.reason, one.until)
            return


def expired(silences: Sequence[Silence], today: dt.date) -> list[str]:
    """One line per expired silence."""
    return [f"silence for {one.rule} expired on {one.until}: {one.reason}" for one in silences if one.until < today]
