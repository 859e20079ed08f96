"""The run in one line: bad where something failed, a warning where something is missing or odd, else good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rollbook.hosts import fold
from rollbook.metrics.outliers import FEWEST_ROWS
from rollbook.records.hosts import GAVE_DATA
from rollbook.report.model import CommandShown, FindingShown, HostShown, Level, OutlierShown, Verdict

__all__ = ["verdict"]

LONGEST_REASON = 90  # characters


def verdict(  # noqa: C901 - one line per kind of trouble
    command: CommandShown | None,
    hosts: Sequence[HostShown],
    findings: Sequence[FindingShown],
    outliers: Sequence[OutlierShown],
    benchmark: str,
    *,
    judged: bool = True,
) -> Verdict:
    """From the command's exit code, the hosts' statuses, the findings that count, and who stands out.

    `benchmark` is MLPerf Storage's verdict in one line; one that could not be `judged` is a warning.
    """
    counted = [finding for finding in findings if not finding.silenced]
    failed = [finding for finding in counted if finding.severity == "fail"]
    silent = [host for host in hosts if host.status not in GAVE_DATA]
    lost = [host.name for host in silent]
    cut = [host for host in hosts if host.status == "partial"]
    partial = [host.name for host in cut]
    odd = dict.fromkeys(hosts[outlier.host].name for outlier in outliers)

    bad = []
    if command and command.code:
        bad.append(f"the command failed with exit code {command.code}")
    if hosts and len(lost) == len(hosts):
        bad.append(f"no host gave data{_why(silent)}")
    if failed:
        bad.append(f"{_count(len(failed), 'check failed', 'checks failed')}: {_told(failed[0])}")
    odd_words = ["how the command ended is not known"] if command and command.code is None else []
    if lost and len(lost) < len(hosts):
        odd_words.append(f"{_count(len(lost), 'host', 'hosts')} gave nothing: {_some(lost)}{_why(silent)}")
    if partial:
        odd_words.append(f"{_count(len(partial), 'host is', 'hosts are')} partial: {_some(partial)}{_why(cut)}")
    if odd:
        odd_words.append(f"{_count(len(odd), 'host stands', 'hosts stand')} out: {_some(list(odd))}")
    if warnings := [finding for finding in counted if finding not in failed]:
        odd_words.append(f"{_count(len(warnings), 'warning', 'warnings')}: {_told(warnings[0])}")

    if not judged:
        odd_words.append(benchmark)
    reasons = [*bad, *odd_words]
    if outliers:
        reasons.append(f"most of all {outliers[0].text}")
    if benchmark and judged:
        reasons.append(benchmark)
    level: Level = "bad" if bad else "warn" if odd_words else "good"
    title = {"bad": "Not well", "warn": "Worth a look", "good": "All well"}[level]
    alike = ", nothing stands out" if len(hosts) >= FEWEST_ROWS else ""  # of fewer nobody can tell
    first = f"{_count(len(hosts), 'host', 'hosts')} complete{alike}"
    return Verdict(level, f"{title}: {reasons[0] if bad or odd_words else first}", reasons[bool(bad or odd_words) :])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _told(finding: FindingShown) -> str:
    """A message alone may not say what it is about; the name of its rule does."""
    return f"{finding.message} ({finding.id})"


def _why(hosts: Sequence[HostShown]) -> str:
    """The reason that most of these hosts have, cut to what fits a line."""
    reasons = Counter(host.reason for host in hosts if host.reason)
    if not reasons:
        return ""
    reason, _ = reasons.most_common(1)[0]
    short = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
    return f" ({short}{'; and others' if len(reasons) > 1 else ''})"


def _some(names: Sequence[str]) -> str:
    return fold(names) if len(names) <= 8 else f"{fold(names[:8])}, …"
