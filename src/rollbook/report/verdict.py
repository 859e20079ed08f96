"""The verdict on a run in one line: bad if something failed, a warning if something is missing or unusual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rollbook.hosts import fold
from rollbook.records.findings import Findings
from rollbook.records.hosts import GAVE_DATA
from rollbook.report.model import CommandShown, FindingShown, HostShown, Level, Verdict

__all__ = ["verdict"]

LONGEST_REASON = 90  # characters
MOST_NAMES = 8
TITLES: dict[Level, str] = {"bad": "Problems", "warn": "Worth a look", "good": "All well"}


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

    bad = []
    if command and command.code:
        bad.append(f"the command failed with exit code {command.code}")
    if hosts and len(silent) == len(hosts):
        bad.append(f"no host gave data{_why(silent)}")
    if failed:
        bad.append(f"{_count(len(failed), 'check failed', 'checks failed')}: {_described(failed[0])}")
    unclear = ["the exit code of the command is unknown"] if command and command.code is None else []
    if silent and len(silent) < len(hosts):
        unclear.append(f"{_count(len(silent), 'host', 'hosts')} gave nothing: {_some(silent)}{_why(silent)}")
    if partial:
        unclear.append(f"{_count(len(partial), 'host is', 'hosts are')} partial: {_some(partial)}{_why(partial)}")
    if warnings := [finding for finding in counted if finding not in failed]:
        unclear.append(f"{_count(len(warnings), 'warning', 'warnings')}: {_described(warnings[0])}")

    if checked and checked.not_judged:
        unclear.append(checked.verdict_text)
    first, *rest = [*bad, *unclear] or [f"{_count(len(hosts), 'host', 'hosts')} complete"]
    if checked is None:
        rest.append("not checked")
    elif checked.verdict:
        rest.append(checked.verdict_text)
    level: Level = "bad" if bad else "warn" if unclear else "good"
    return Verdict(level, f"{TITLES[level]}: {first}", rest)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _described(finding: FindingShown) -> str:
    """The message with the name of its rule, which says what the message is about."""
    return f"{finding.message} ({finding.id})"


def _why(hosts: Sequence[HostShown]) -> str:
    """The reason that most of these hosts have, shortened to fit a line."""
    reasons = Counter(host.reason for host in hosts if host.reason)
    if not reasons:
        return ""
    reason, _ = reasons.most_common(1)[0]
    short = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
    return f" ({short}{'; and others' if len(reasons) > 1 else ''})"


def _some(hosts: Sequence[HostShown]) -> str:
    names = [host.name for host in hosts]
    return fold(names) if len(names) <= MOST_NAMES else f"{fold(names[:MOST_NAMES])}, …"
