"""What the page says of a record: everything that can be known of it, complete or not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rollbook.checks.text import change_text, difference_text, value_lines
from rollbook.hosts import fold
from rollbook.metrics.outliers import FEWEST_ROWS
from rollbook.records.document import read
from rollbook.records.findings import Findings
from rollbook.records.record import Phase, Record
from rollbook.report.charts import Drawn, draw
from rollbook.report.facts import changed, compared
from rollbook.report.hosts import cost, hosts_shown, marks
from rollbook.report.model import MS, CommandShown, FindingShown, Mark, PageData
from rollbook.report.phases import phases
from rollbook.report.verdict import verdict
from rollbook.sql.grids import Tables

__all__ = ["build"]

WHEN = ("start_ns", "end_ns")
"""Evidence that says when something was, on the collector's clock."""


def build(run: Record, tables: Tables | None) -> PageData:
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
    if checked:
        notes += value_lines(checked)
    if unlisted:
        notes.append(f"{unlisted} more facts changed between start and end; rollbook diff lists them all.")
    return PageData(
        title=f"{run.metadata.get('benchmark_type', 'run')} {run.metadata.get('run_datetime', '')}".strip(),
        created=time.time() * 1000,
        start=run.hosts.started_ns / MS,
        end=run.hosts.ended_ns / MS,
        interval=run.hosts.interval_seconds,
        verdict=verdict(
            command,
            hosts,
            found,
            drawn.outliers,
            checked.verdict_text if checked else "",
            judged=not (checked and checked.not_judged),
        ),
        command=command,
        coverage=dict(Counter(host.status for host in hosts).most_common()),
        hosts=hosts,
        findings=found,
        checks=checked.outcomes if checked else None,
        counts={"fail": len(checked.failures), "warn": len(checked.warnings)} if checked else {},
        outliers=drawn.outliers,
        no_outliers=_no_outliers(run, drawn),
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


def _drawn(run: Record, tables: Tables | None, place: Mapping[str, int]) -> Drawn:
    if tables is None:
        return Drawn([], [], [], ["The record has no series: there is nothing to draw."])
    return draw(tables, run.hosts, place)


def _no_outliers(run: Record, drawn: Drawn) -> str:
    """What can be said where no host stands out; of a few hosts, nothing."""
    if not drawn.charts:
        return "No series was taken, so no host can stand out."
    if sum(host.samples > 0 for host in run.hosts.series) < FEWEST_ROWS:
        return f"Too few hosts to tell who stands out among them: {FEWEST_ROWS} are needed."
    return "No host stands out from its peers."


def _checked(run: Record) -> Findings | None:
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


def _command(run: Record) -> tuple[CommandShown | None, list[Mark]]:
    """The command, and the marks of it and of the phases that it set.

    It ran from our first phase `command` to our last, `after`; phases of its own may have the same names.
    """
    text, code, phases = run.metadata.get("executed_command"), run.metadata.get("exit_code"), run.hosts.phases
    begun = next((phase for phase in phases if phase.name == "command"), None)
    if not text or begun is None:
        return CommandShown(str(text), code) if text else None, _phase_marks(phases)
    after = next((phase for phase in reversed(phases) if phase.name == "after"), None) if code is not None else None
    start, end = begun.start_ns / MS, (after.start_ns if after else phases[-1].end_ns) / MS
    inside = _phase_marks(phase for phase in phases if phase is not begun and phase is not after)
    return CommandShown(str(text), code, start, end), [Mark("command", start, end, "command"), *inside]


def _phase_marks(phases: Iterable[Phase]) -> list[Mark]:
    return [Mark("phase", phase.start_ns / MS, phase.end_ns / MS, phase.name) for phase in phases]
