"""The page of an issue report: nodes × items × findings, with the evidence; `web/src/bundle_model.ts` has the types.

Times are milliseconds since 1970. Nodes and items are given as their index.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rollbook.bundle.evidence import BundleData
from rollbook.bundle.logs import WORST
from rollbook.bundle.summary import ItemResult
from rollbook.checks.text import detail_lines
from rollbook.clean import count_text
from rollbook.files import write_file
from rollbook.hosts import fold, natural
from rollbook.records.findings import EvidenceLine, Finding, Findings, Severity
from rollbook.report.facts import compare_facts
from rollbook.report.model import FactShown, Level, Verdict
from rollbook.report.page import embed
from rollbook.version import __version__

__all__ = ["BundlePage", "build", "write_page"]

MAX_FILES = 40  # of an item that the page links; its directory has all
MAX_NODES_NAMED = 5


class FileShown(msgspec.Struct, frozen=True):
    """A file of an item: its path in the report, what was read, its size, what is missing of it."""

    path: str
    source: str
    size: int
    truncated: str


class ItemShown(msgspec.Struct, frozen=True):
    """An item on a node; `more` files are not listed."""

    item: int
    status: str
    reason: str
    files: list[FileShown]
    more: int


class NodeShown(msgspec.Struct, frozen=True):
    """A requested node and its items."""

    name: str
    status: str
    reason: str
    seconds: float
    items: list[ItemShown]


class FindingOnPage(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its evidence."""

    id: str
    severity: Severity
    message: str
    where: str
    nodes: list[int]
    device: str
    count: int
    first: float | None
    last: float | None
    lines: list[EvidenceLine]
    details: list[str]
    advice: str
    silenced: str


class BundlePage(msgspec.Struct, kw_only=True):
    """Everything on the page. `unclear` are the rules that could not tell, with the reason."""

    schema: str = "rollbook.bundle-page/1"
    rollbook: str = __version__
    title: str
    created: float
    made: float
    since: float | None
    until: float | None
    verdict: Verdict
    items: list[str]
    nodes: list[NodeShown]
    cluster: list[ItemShown]
    findings: list[FindingOnPage]
    counts: dict[str, int]
    outcomes: dict[str, int]
    unclear: list[tuple[str, str]]
    differing: list[FactShown]
    equal: int
    compared: str


def write_page(run: BundleData, findings: Findings, path: Path) -> None:
    """Write the page atomically."""
    write_file(path, embed("bundle", build(run, findings)).encode())


def build(run: BundleData, findings: Findings) -> BundlePage:
    """The document of the page."""
    summary = run.bundle.summary
    ids = list(dict.fromkeys(item.id for node in summary.results for item in node.items))
    ids += [item.id for item in summary.cluster if item.id not in ids]
    items = {name: at for at, name in enumerate(ids)}
    nodes = sorted(
        (
            NodeShown(node.node, node.status, node.reason, node.elapsed, list(_items(node.items, items)))
            for node in summary.results
        ),
        key=lambda node: natural(node.name),
    )
    place = {node.name: at for at, node in enumerate(nodes)}
    differing, equal, groups = compare_facts(run.start)
    return BundlePage(
        title=" ".join(filter(None, ("Issue report", summary.cluster_name, summary.report_id))),
        created=time.time() * 1000,
        made=_ms(summary.timestamp) or 0.0,
        since=_ms(summary.window.since),
        until=_ms(summary.window.until),
        verdict=_verdict(nodes, findings),
        items=ids,
        nodes=nodes,
        cluster=list(_items(summary.cluster, items)),
        findings=sorted(_findings(findings, place), key=lambda one: (bool(one.silenced), -WORST[one.severity])),
        counts={str(severity): count for severity, count in findings.counts.items()},
        outcomes=findings.outcomes,
        unclear=[(rule.id, rule.note) for rule in findings.rules if rule.is_incomplete],
        differing=differing,
        equal=len(equal),
        compared=groups,
    )


def _items(results: Sequence[ItemResult], places: Mapping[str, int]) -> Iterator[ItemShown]:
    for item in results:
        files = [
            FileShown(file.path, file.source, file.size, file.truncated)
            for file in item.files
            # The page links only what is inside the report; the summary may name anything.
            if file.path.startswith(("nodes/", "cluster/")) and ".." not in file.path.split("/")
        ]
        more = max(0, len(files) - MAX_FILES)
        yield ItemShown(places[item.id], item.status, item.reason, files[:MAX_FILES], more)


def _findings(findings: Findings, place: Mapping[str, int]) -> Iterator[FindingOnPage]:
    for rule in findings.rules:
        for finding in rule.findings:
            yield FindingOnPage(
                id=rule.id,
                severity=finding.severity or "fail",
                message=finding.message,
                where=fold(finding.hosts),
                nodes=[place[name] for name in finding.hosts if name in place],
                device=finding.device,
                count=finding.count,
                first=_ms(finding.first),
                last=_ms(finding.last),
                lines=finding.lines,
                details=detail_lines(finding),
                advice=finding.advice,
                silenced=f"{finding.silenced.reason}, until {finding.silenced.until}" if finding.silenced else "",
            )


def _verdict(nodes: Sequence[NodeShown], findings: Findings) -> Verdict:
    """What was found in words: the worst first, then what is missing."""
    reasons = []
    failures, warnings = findings.failures, findings.warnings
    for noun, found in (("problem", failures), ("warning", warnings)):
        if found:
            reasons.append(f"{count_text(len(found), noun)} on {_affected(found, len(nodes))}: {found[0].message}")
    missing = [node for node in nodes if node.status not in ("complete", "partial")]
    empty = [node for node in missing if not any(item.files for item in node.items)]
    for what, some in (("nothing from", empty), ("not all from", [node for node in missing if node not in empty])):
        if some:
            names = [node.name for node in some]
            named = fold(names) if len(names) <= MAX_NODES_NAMED else f"{fold(names[:MAX_NODES_NAMED])}, …"
            reasons.append(f"{what} {count_text(len(some), 'node')}: {named}")
    if cut := sum(item.status not in ("complete", "absent") for node in nodes for item in node.items):
        reasons.append(f"{count_text(cut, 'item')} truncated or not read")
    level: Level = "bad" if failures else "warn" if warnings or missing else "good"
    first, *rest = reasons or [f"No rule found a problem on {count_text(len(nodes), 'node')}"]
    return Verdict(level, first[:1].upper() + first[1:], rest)


def _affected(findings: Sequence[Finding], total: int) -> str:
    nodes = {host for finding in findings for host in finding.hosts}
    return f"{len(nodes)} of {count_text(total, 'node')}" if nodes else "the cluster"


def _ms(at: dt.datetime | None) -> float | None:
    return at.timestamp() * 1000 if at else None
