"""What the page says of a record: everything that can be known of it, complete or not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollbook.checks.model import Findings
from rollbook.checks.shown import change_text, difference_text
from rollbook.hosts import fold
from rollbook.records.document import read
from rollbook.records.run import Run
from rollbook.report.charts import Drawn, draw
from rollbook.report.facts import changed, compared
from rollbook.report.hosts import cost, hosts_shown, marks
from rollbook.report.model import CommandShown, FindingShown, Mark, PageData
from rollbook.report.phases import phases
from rollbook.report.tables import Tables
from rollbook.report.verdict import verdict

__all__ = ["build"]

MS = 1e6
WHEN = ("start_ns", "end_ns")
"""Evidence that says when something was, on the collector's clock."""


def build(run: Run, tables: Tables | None) -> PageData:
    """The document of the page, drawn from the tables of the series where there are any."""
    hosts = hosts_shown(run.hosts)
    place = {host.name: at for at, host in enumerate(hosts)}
    drawn = _drawn(run, tables, place)
    checked = _checked(run)
    found = _findings(checked, place) if checked else []
    command, times = _command(run)
    differing, equal, in_words = compared(run.hosts.start)
    changes, unlisted = changed(run.hosts.start, run.hosts.end)
    notes = [
        *drawn.notes,
        "Rates are differences of counters over the host's own clock; all hosts share one time line.",
    ]
    if unlisted:
        notes.append(f"{unlisted} more facts changed between start and end; rollbook diff lists them all.")
    return PageData(
        title=f"{run.metadata.get('benchmark_type', 'run')} {run.metadata.get('run_datetime', '')}".strip(),
        created=time.time() * 1000,
        start=run.hosts.started_ns / MS,
        end=run.hosts.ended_ns / MS,
        interval=run.hosts.interval_seconds,
        verdict=verdict(command, hosts, found, drawn.outliers, checked.verdict if checked else None),
        command=command,
        coverage=dict(Counter(host.status for host in hosts).most_common()),
        hosts=hosts,
        findings=found,
        checks=checked.outcomes if checked else None,
        outliers=drawn.outliers,
        cost=cost(hosts),
        marks=[*times, *marks(run.hosts, hosts), *_finding_marks(found), *drawn.marks],
        charts=drawn.charts,
        phases=phases(run),
        differing=differing,
        equal=equal,
        changes=changes,
        compared=in_words,
        notes=notes,
    )


def _drawn(run: Run, tables: Tables | None, place: Mapping[str, int]) -> Drawn:
    if tables is None:
        return Drawn([], [], [], ["The record has no series: there is nothing to draw."])
    return draw(tables, run.hosts, place)


def _checked(run: Run) -> Findings | None:
    path = run.path / "findings.json"
    return read(path, Findings) if path.exists() else None


def _findings(checked: Findings, place: Mapping[str, int]) -> list[FindingShown]:
    """All findings, the worst first and the silenced last. Evidence of a time is what the time line shows."""

    def time(evidence: Mapping[str, Any], name: str) -> float | None:
        return evidence[name] / MS if isinstance(evidence.get(name), int) else None

    shown = [
        FindingShown(
            id=rule.id,
            severity=finding.severity or "fail",
            message=finding.message,
            where=fold(finding.hosts),
            hosts=[place[name] for name in finding.hosts if name in place],
            details=[*map(difference_text, finding.differences), *map(change_text, finding.changes)],
            evidence={name: value for name, value in finding.evidence.items() if name not in WHEN},
            advice=finding.advice,
            silenced=f"{finding.silenced.reason}, until {finding.silenced.until}" if finding.silenced else "",
            start=time(finding.evidence, WHEN[0]),
            end=time(finding.evidence, WHEN[1]),
        )
        for rule in checked.rules
        for finding in rule.findings
    ]
    return sorted(shown, key=lambda one: (bool(one.silenced), one.severity != "fail"))


def _finding_marks(found: Sequence[FindingShown]) -> Iterator[Mark]:
    """Findings that say when."""
    for finding in found:
        if finding.start is not None and finding.end is not None:
            only = finding.hosts[0] if len(finding.hosts) == 1 else None
            yield Mark("finding", finding.start, finding.end, finding.message, only)


def _command(run: Run) -> tuple[CommandShown | None, list[Mark]]:
    """The command and its mark: from the phase `command` to the phase `after`, with the phases it set between."""
    text = run.metadata.get("executed_command")
    if not text:
        return None, []
    start = next((phase.start_ns for phase in run.hosts.phases if phase.name == "command"), None)
    after = next((phase.start_ns for phase in run.hosts.phases if phase.name == "after"), None)
    end = after or (run.hosts.phases[-1].end_ns if run.hosts.phases else None)
    code = run.metadata.get("exit_code")
    shown = CommandShown(str(text), code, start / MS if start else None, end / MS if start and end else None)
    if shown.start is None or shown.end is None:
        return shown, []
    return shown, [Mark("command", shown.start, shown.end, "command")]
