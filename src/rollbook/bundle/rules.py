"""The rules of issue reports, in the form of the rule engine: log rules become findings here, with their times."""

from __future__ import annotations

import collections
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping

from rollbook.bundle.evidence import BundleData
from rollbook.bundle.logs import LOGS, Tally
from rollbook.bundle.rows import Row, rows
from rollbook.checks.rule import Manual, Rule
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.hosts import fold
from rollbook.records.findings import Finding, Severity

__all__ = ["rules"]

MAX_FINDINGS = 200  # of one rule


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules that read an issue report."""
    return tuple(
        Rule(
            name,
            row.severity,
            (),
            functools.partial(_check, name, row),
            Manual(row.what, row.why, row.example, row.fix, row.reference),
        )
        for name, row in rows().items()
    )


def _check(name: str, row: Row, run: RunData) -> Iterator[Finding]:
    """The findings of one rule. Raises `CannotTell` if a node lacks what it needs."""
    if not isinstance(run, BundleData):
        raise NotApplicable("not an issue report")
    run.partial.clear()
    is_present, reasons = run.unread(row.logs, row.items)
    found = [*_from_logs(name, row, run), *_from_values(name, row, run)]
    yield from found[:MAX_FINDINGS]
    if len(found) > MAX_FINDINGS:
        yield Finding(message=f"{len(found) - MAX_FINDINGS} more findings of this rule", severity=row.severity)
    items = {*row.items, *(item for log in row.logs for item in LOGS[log])}
    unreadable = run.unreadable_in(items, row.function.partition(".")[0])
    if reasons or unreadable:
        unread = [f"{why} on {fold(nodes)}" for why, nodes in reasons.items()]
        raise CannotTell("; ".join([*unread, *unreadable]))
    if not found and not is_present and (row.logs or row.items):
        raise NotApplicable(f"collected from no node: {', '.join((*row.logs, *row.items))}")


def _from_values(name: str, row: Row, run: BundleData) -> Iterator[Finding]:
    if not row.function:
        return
    module, _, function = row.function.partition(".")
    compare: Callable[..., Iterator[Finding]] = getattr(
        importlib.import_module(f"rollbook.bundle.values.{module}"), function
    )
    arguments = (run, name) if "rule" in inspect.signature(compare).parameters else (run,)
    for finding in compare(*arguments):
        yield _timed(run, finding)


def _from_logs(name: str, row: Row, run: BundleData) -> Iterator[Finding]:
    if not row.logs:
        return
    totals = {
        node: float(sum(one.count for one in found.values())) for node, found in run.logs.inside.get(name, {}).items()
    }
    searched = {node for log in row.logs for node, known, _ in run.logs.starts if known == log}
    counts = {node: totals.get(node, 0.0) for node in searched}
    for node, devices in run.logs.inside.get(name, {}).items():
        for tally in devices.values():
            yield _timed(run, _finding(row, run, node, tally, counts))
    for node, devices in run.logs.outside.get(name, {}).items():
        for tally in devices.values():
            if tally.device not in run.logs.inside.get(name, {}).get(node, {}):
                finding = _finding(row, run, node, tally, {})
                finding.message = f"outside the time window: {finding.message}"
                if not row.lasts or (tally.last and _is_after(run, tally)):
                    finding.severity = "note"
                yield _timed(run, finding)


def _is_after(run: BundleData, tally: Tally) -> bool:
    until = run.bundle.summary.window.until
    return until is not None and tally.first is not None and tally.first > until


def _finding(row: Row, run: BundleData, node: str, tally: Tally, counts: Mapping[str, float]) -> Finding:
    severity: Severity = tally.severity or row.severity
    more = []
    if row.least > 1 and not tally.severity and tally.most_within < row.least:
        severity = row.below
    if row.recovery:
        if tally.is_open:
            more.append("and has not recovered")
        else:
            severity = row.recovered
            longest = tally.longest.total_seconds()
            more.append(
                f"and recovered{f' after {longest:g} s' if tally.count == 1 else f', longest outage {longest:g} s'}"
            )
    if row.peers and (median := run.peer_median(node, counts)) is not None:
        count = counts.get(node, 0.0)
        if count >= row.peers.least and count > row.peers.times * median:
            severity = row.peers.severity
        more.append(f"median of its peers {median:g}")
    # Groups of other patterns are empty.
    values = collections.defaultdict(str, {**tally.values, "device": tally.device})
    text = " ".join(row.message.format_map(values).split())
    times = f" ({tally.count} times)" if tally.count > 1 else ""
    return Finding(
        message=f"{', '.join([text + times, *more])} ({node})",
        hosts=[node],
        severity=severity,
        device=tally.device,
        count=tally.count,
        first=tally.first,
        last=tally.last,
        lines=list(tally.lines),
    )


def _timed(run: BundleData, finding: Finding) -> Finding:
    """With its time range on the collector's clock, which marks it on the time line of a page."""
    if finding.first and finding.last:
        node = finding.hosts[0] if finding.hosts else ""
        start, end = (run.collector_time(node, at) for at in (finding.first, finding.last))
        finding.evidence = {**finding.evidence, "start_ns": start, "end_ns": end}
    return finding
