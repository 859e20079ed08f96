"""The verdict on a run in one line: bad if something failed, a warning if something is missing or unusual."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rollbook.clean import count_text
from rollbook.hosts import fold
from rollbook.records.causes import group_by_cause
from rollbook.records.findings import Findings
from rollbook.records.hosts import GAVE_DATA
from rollbook.report.model import CommandShown, FindingShown, HostShown, Level, Verdict

__all__ = ["verdict"]

MISSING = "host-missing"
MAX_REASON = 90  # characters
MAX_NAMES = 8
TITLES: dict[Level, str] = {"bad": "Problems", "warn": "Worth a look", "good": "No problems", "open": "Not checked"}


def verdict(
    command: CommandShown | None,
    hosts: Sequence[HostShown],
    findings: Sequence[FindingShown],
    checked: Findings | None,
) -> Verdict:
    """From the command's exit status, the hosts' statuses, the findings that are not silenced, and MLPerf's verdict."""
    no_data = [host for host in hosts if host.status not in GAVE_DATA]
    partial = [host for host in hosts if host.status == "partial"]
    counted = [finding for finding in findings if not finding.silenced]
    missing = any(finding.id == MISSING and finding.severity == "fail" for finding in counted)
    # A host without data is described once, as a host, and not again as a failed check.
    counted = [finding for finding in counted if not (no_data and finding.id == MISSING)]
    failed = [finding for finding in counted if finding.severity == "fail"]

    bad = [f"the command failed with exit status {command.code}"] if command and command.code else []
    unclear = ["the exit status of the command is unknown"] if command and command.code is None else []
    if no_data:
        # A finding of severity fail says that it is bad, unless it is silenced.
        (bad if missing or len(no_data) == len(hosts) else unclear).append(_without_data(no_data, hosts))
    if failed:
        bad.append(_first_of(failed, "failed check"))
    if partial:
        unclear.append(_partial(partial, hosts))
    if warnings := [finding for finding in counted if finding.severity == "warn"]:
        unclear.append(_first_of(warnings, "warning"))
    if checked and checked.not_judged:
        unclear.append(checked.verdict_text)
    return _combined(bad, unclear, hosts, checked)


def _combined(
    bad: Sequence[str], unclear: Sequence[str], hosts: Sequence[HostShown], checked: Findings | None
) -> Verdict:
    """The first problem as headline, the others as reasons."""
    level: Level = "bad" if bad else "warn" if unclear else "good" if checked and hosts else "open"
    first, *rest = [*bad, *unclear] or [f"{count_text(len(hosts), 'host')} complete"]
    if checked is None and (bad or unclear):
        rest.append("not checked")
    elif checked and checked.verdict:
        rest.append(checked.verdict_text)
    if level == "good" and checked and (unknown := checked.outcomes.get("could-not-tell")):
        rest.append(f"{count_text(unknown, 'check')} could not tell")
    headline = f"{TITLES[level]}: {first}" if hosts or bad or unclear else "No hosts were recorded"
    return Verdict(level, headline, rest)


def _without_data(no_data: Sequence[HostShown], hosts: Sequence[HostShown]) -> str:
    if len(hosts) == 1:
        return f"{hosts[0].name} returned no data: {_cause(no_data)}"
    if len(no_data) == len(hosts):
        return f"no host returned data: {_cause(no_data)}"
    return f"{_of(no_data, hosts)} failed: {_cause(no_data)} on {_some(no_data)}"


def _partial(partial: Sequence[HostShown], hosts: Sequence[HostShown]) -> str:
    if len(hosts) == 1:
        return f"{hosts[0].name} is partial: {_cause(partial)}"
    return f"{_of(partial, hosts)} partial: {_cause(partial)} on {_some(partial)}"


def _of(some: Sequence[HostShown], hosts: Sequence[HostShown]) -> str:
    return f"{len(some)} of {count_text(len(hosts), 'host')}"


def _first_of(findings: Sequence[FindingShown], noun: str) -> str:
    """The first finding with its rule, which says what the message is about, and how many more there are."""
    first, *others = findings
    more = f", and {count_text(len(others), f'more {noun}')}" if others else ""
    return f"{_short(first.message)} ({first.id}){more}"


def _short(text: str) -> str:
    """The text without what a program printed, which follows in brackets, shortened to the clauses that fit a line."""
    plain = re.sub(r"\s+\[[^\]]*\]", "", text) or text
    if len(plain) <= MAX_REASON:
        return plain
    clauses = max(plain.rfind(", ", 0, MAX_REASON), plain.rfind("; ", 0, MAX_REASON))
    return plain[:clauses] if clauses > 0 else f"{plain[:MAX_REASON]}…"


def _cause(hosts: Sequence[HostShown]) -> str:
    """What most of these hosts have in common: `connection refused`, without advice."""
    causes = group_by_cause((host.name, host.reason or host.status) for host in hosts)
    reason, _ = max(causes, key=lambda cause: len(cause[1]))
    others = f" and {count_text(len(causes) - 1, 'other cause')}" if len(causes) > 1 else ""
    return f"{_short(reason.partition(';')[0])}{others}"


def _some(hosts: Sequence[HostShown]) -> str:
    names = [host.name for host in hosts]
    return fold(names) if len(names) <= MAX_NAMES else f"{fold(names[:MAX_NAMES])}, …"
