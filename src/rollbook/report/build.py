"""The document of the page: everything that a record holds, complete or not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rollbook.checks.text import detail_lines, value_lines
from rollbook.hosts import fold
from rollbook.metrics.grid import Grid
from rollbook.metrics.metric import Metric
from rollbook.records.findings import Finding, Findings, read_findings
from rollbook.records.record import Phase, Record
from rollbook.report.chart_order import highlights
from rollbook.report.charts import chart_grids, draw
from rollbook.report.facts import compare_facts, group_changes
from rollbook.report.hosts import cost, hosts_shown, marks
from rollbook.report.model import MS, Chart, CommandShown, FindingShown, IssueReport, Mark, PageData
from rollbook.report.phases import phases
from rollbook.report.summary import OUTLIER, summarise
from rollbook.report.verdict import verdict
from rollbook.sql.grids import Tables

__all__ = ["build", "first_charts"]

WHEN = ("start_ns", "end_ns")
"""Evidence of the time of a finding, on the collector's clock."""
BUNDLE = "bundle"
"""The directory of an issue report inside a record."""
HIDDEN = (*WHEN, "metrics", "also")
"""Evidence that the page shows in another form."""


def build(record: Record, tables: Tables | None) -> PageData:
    """Build the document of the page; without `tables` it has no charts."""
    hosts = hosts_shown(record.hosts)
    place = {host.name: at for at, host in enumerate(hosts)}
    checked = read_findings(record.path)
    found = _findings(checked, place) if checked else []
    report = _issue_report(record, place)
    charts, notes = _charts(record, tables, place, found)
    command, times = _command(record)
    differing, equal, groups = compare_facts(record.hosts.start)
    changes, unlisted = group_changes(record.hosts.start, record.hosts.end)
    notes.append("Rates are counter differences divided by time on the host's own clock; all hosts share one timeline.")
    if checked:
        notes += value_lines(checked.rules)
    if unlisted:
        notes.append(f"{unlisted} more facts changed between start and end; rollbook diff lists them all.")
    return PageData(
        title=f"{record.metadata.get('benchmark_type', 'run')} {record.metadata.get('run_datetime', '')}".strip(),
        created=time.time() * 1000,
        start=record.hosts.started_ns / MS,
        end=record.hosts.ended_ns / MS,
        interval=record.hosts.interval_seconds,
        verdict=verdict(command, hosts, found, checked),
        summary=summarise(record),
        has_end=bool(record.hosts.end),
        command=command,
        coverage=dict(Counter(host.status for host in hosts).most_common()),
        hosts=hosts,
        findings=found,
        checks=checked.outcomes if checked else None,
        counts={"fail": len(checked.failures), "warn": len(checked.warnings)} if checked else {},
        no_findings=_no_findings(checked),
        cost=cost(hosts),
        marks=[*times, *marks(record.hosts, hosts), *_finding_marks([*found, *(report.findings if report else [])])],
        charts=charts,
        phases=phases(record),
        differing=differing,
        equal=equal,
        changes=changes,
        compared=groups,
        notes=notes,
        issue_report=report,
    )


def first_charts(record: Record, tables: Tables) -> list[tuple[Metric, Grid]]:
    """The metrics whose charts come first on the page, with their values."""
    grids, checked = chart_grids(tables, record.hosts), read_findings(record.path)
    if grids is None:
        return []
    by_name = {metric.name: (metric, grid) for metric, grid in grids.by_host.items()}
    outliers = _outlier_metrics(_findings(checked, {}) if checked else [])
    return [by_name[name] for name in highlights(list(by_name.values()), outliers)]


def _charts(
    record: Record, tables: Tables | None, place: Mapping[str, int], found: Sequence[FindingShown]
) -> tuple[list[Chart], list[str]]:
    """The charts, those of outliers first, and notes about them."""
    if tables is None:
        return [], ["The record has no series, so there are no charts."]
    names = list(place)
    hosts = {names[at] for finding in _outliers(found) for at in finding.hosts}
    return draw(tables, record.hosts, place, metrics=_outlier_metrics(found), outlier_hosts=hosts)


def _outliers(found: Sequence[FindingShown]) -> list[FindingShown]:
    return [finding for finding in found if finding.metrics and not finding.silenced]


def _outlier_metrics(found: Sequence[FindingShown]) -> list[str]:
    """The metrics in which hosts are outliers: the strongest of each finding, then the others."""
    outliers = _outliers(found)
    strongest = [finding.metrics[0] for finding in outliers]
    return list(dict.fromkeys([*strongest, *(name for finding in outliers for name in finding.metrics)]))


def _no_findings(checked: Findings | None) -> str:
    """The text in place of findings; it says if outliers could not be searched for."""
    if checked is None:
        return "This record has not been checked; run rollbook check."
    outliers = next((rule for rule in checked.rules if rule.id == OUTLIER), None)
    if outliers is None or outliers.note:
        return f"No findings; outliers: {outliers.note if outliers else 'not searched for'}."
    return "No findings, and no host differs from its peers."


def _issue_report(record: Record, place: Mapping[str, int]) -> IssueReport | None:
    """The issue report that was collected because the run failed, with its findings that have a time in the run."""
    checked = read_findings(record.path / BUNDLE)
    if checked is None:
        return None
    found = [one for one in _findings(checked, place) if one.start is not None and one.severity != "note"]
    return IssueReport(f"{BUNDLE}/index.html", found)


def _findings(checked: Findings, place: Mapping[str, int]) -> list[FindingShown]:
    """All findings, the worst first and the silenced last."""

    def time(evidence: Mapping[str, Any], name: str) -> float | None:
        return evidence[name] / MS if isinstance(evidence.get(name), int) else None

    shown = [
        FindingShown(
            id=rule.id,
            severity=finding.severity or "fail",
            message=finding.message,
            where=fold(finding.hosts),
            hosts=[place[name] for name in finding.hosts if name in place],
            details=[
                *detail_lines(finding),
                *(_texts(finding, "also") if rule.id == OUTLIER else ()),
            ],
            evidence={name: value for name, value in finding.evidence.items() if name not in HIDDEN},
            advice=finding.advice,
            silenced=f"{finding.silenced.reason}, until {finding.silenced.until}" if finding.silenced else "",
            start=time(finding.evidence, WHEN[0]),
            end=time(finding.evidence, WHEN[1]),
            metrics=_texts(finding, "metrics") if rule.id == OUTLIER else [],
        )
        for rule in checked.rules
        for finding in rule.findings
    ]
    return sorted(shown, key=lambda one: (bool(one.silenced), one.severity != "fail"))


def _texts(finding: Finding, name: str) -> list[str]:
    """A list in the evidence of a finding, which anyone may have written."""
    found = finding.evidence.get(name)
    return list(map(str, found)) if isinstance(found, list) else []


def _finding_marks(found: Sequence[FindingShown]) -> Iterator[Mark]:
    """Findings with a time."""
    for finding in found:
        if finding.start is not None and finding.end is not None:
            only = finding.hosts[0] if len(finding.hosts) == 1 else None
            yield Mark("outlier" if finding.metrics else "finding", finding.start, finding.end, finding.message, only)


def _command(record: Record) -> tuple[CommandShown | None, list[Mark]]:
    """The command, and the marks of it and of its phases.

    It ran from the first phase called `command` to the last called `after`; it may use the same names itself.
    """
    text, code, phases = record.metadata.get("executed_command"), record.metadata.get("exit_code"), record.hosts.phases
    begun = next((phase for phase in phases if phase.name == "command"), None)
    if not text or begun is None:
        return CommandShown(str(text), code) if text else None, _phase_marks(phases)
    after = next((phase for phase in reversed(phases) if phase.name == "after"), None) if code is not None else None
    start, end = begun.start_ns / MS, (after.start_ns if after else phases[-1].end_ns) / MS
    inside = _phase_marks(phase for phase in phases if phase is not begun and phase is not after)
    return CommandShown(str(text), code, start, end), [Mark("command", start, end, "command"), *inside]


def _phase_marks(phases: Iterable[Phase]) -> list[Mark]:
    return [Mark("phase", phase.start_ns / MS, phase.end_ns / MS, phase.name) for phase in phases]
