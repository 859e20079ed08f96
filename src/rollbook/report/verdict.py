"""The verdict on a run in one line: bad if something failed, a warning if something is missing or unusual."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rollbook.hosts import fold
from rollbook.records.causes import group_by_cause
from rollbook.records.findings import Findings
from rollbook.records.hosts import GAVE_DATA
from rollbook.report.model import CommandShown, FindingShown, HostShown, Level, Verdict

__all__ = ["verdict"]

MISSING = "host-missing"
LONGEST_REASON = 90  # characters
MOST_NAMES = 8
TITLES: dict[Level, str] = {"bad": "Problems", "warn": "Worth a look", "good": "All well", "open": "Not checked"}


def verdict(
    command: CommandShown | None,
    hosts: Sequence[HostShown],
    findings: Sequence[FindingShown],
    checked: Findings | None,
) -> Verdict:
    """From the command's exit code, the hosts' statuses, the findings that are not silenced, and MLPerf's verdict."""
    counted = [finding for finding in findings if not finding.silenced]
    failed = [finding for finding in counted if finding.severity == "fail"]
    silent = [host for host in hosts if host.status not in GAVE_DATA]
    partial = [host for host in hosts if host.status == "partial"]

    missing = any(finding.id == MISSING for finding in failed)
    bad = []
    if command and command.code:
        bad.append(f"the command failed with exit code {command.code}")
    if hosts and len(silent) == len(hosts):
        bad.append(f"no host gave data{_why(silent)}")
    # A host without data is described once, as a host, and not again as a failed check.
    failed = [finding for finding in failed if not (silent and finding.id == MISSING)]
    if failed:
        bad.append(_first_of(failed, "failed check", "failed checks"))
    unclear = ["the exit code of the command is unknown"] if command and command.code is None else []
    if silent and len(silent) < len(hosts):
        # A finding of severity fail says that it is bad, unless it is silenced.
        (bad if missing else unclear).append(f"{_of(silent, hosts)} failed: {_cause(silent)} on {_some(silent)}")
    if partial:
        unclear.append(f"{_of(partial, hosts)} partial: {_cause(partial)} on {_some(partial)}")
    if warnings := [finding for finding in counted if finding not in failed]:
        unclear.append(_first_of(warnings, "warning", "warnings"))

    if checked and checked.not_judged:
        unclear.append(checked.verdict_text)
    first, *rest = [*bad, *unclear] or [f"{_count(len(hosts), 'host', 'hosts')} complete"]
    if checked is None and (bad or unclear):
        rest.append("not checked")
    elif checked and checked.verdict:
        rest.append(checked.verdict_text)
    level: Level = "bad" if bad else "warn" if unclear else "good" if checked else "open"
    return Verdict(level, f"{TITLES[level]}: {first}", rest)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _of(some: Sequence[HostShown], hosts: Sequence[HostShown]) -> str:
    return f"{len(some)} of {_count(len(hosts), 'host', 'hosts')}"


def _first_of(findings: Sequence[FindingShown], one: str, many: str) -> str:
    """The first finding with its rule, which says what the message is about, and how many more there are."""
    first, *others = findings
    more = f", and {_count(len(others), f'more {one}', f'more {many}')}" if others else ""
    return f"{_short(first.message)} ({first.id}){more}"


def _short(text: str) -> str:
    """The text without what a program printed, which follows in brackets, shortened to the clauses that fit a line."""
    plain = re.sub(r"\s*\[[^\]]*\]", "", text) or text
    if len(plain) <= LONGEST_REASON:
        return plain
    clauses = max(plain.rfind(", ", 0, LONGEST_REASON), plain.rfind("; ", 0, LONGEST_REASON))
    return plain[:clauses] if clauses > 0 else f"{plain[:LONGEST_REASON]}…"


def _cause(hosts: Sequence[HostShown]) -> str:
    """What most of these hosts have in common: `connection refused`, without advice."""
    causes = group_by_cause((host.name, host.reason or host.status) for host in hosts)
    reason, _ = max(causes, key=lambda cause: len(cause[1]))
    others = f" and {_count(len(causes) - 1, 'other cause', 'other causes')}" if len(causes) > 1 else ""
    return f"{_short(reason.partition(';')[0])}{others}"


def _why(hosts: Sequence[HostShown]) -> str:
    """The reason that most of these hosts have."""
    return f": {_cause(hosts)}" if any(host.reason for host in hosts) else ""


def _some(hosts: Sequence[HostShown]) -> str:
    names = [host.name for host in hosts]
    return fold(names) if len(names) <= MOST_NAMES else f"{fold(names[:MOST_NAMES])}, …"
