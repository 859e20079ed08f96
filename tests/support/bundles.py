"""Issue reports as a few lines of data, the format of the cases of their rules.

    [[case]]
    about = "an NFS server that came back"
    outcome = "warn"
    nodes = ["n1"]
    says = "recovered after 42 s"
    [case.items.n1.kernel-log]
    "journalctl -k" = '''…'''

By node and item, the text of each source. `status` sets the status of items, `reasons` their reasons, `exit` the exit
status of sources, and `truncated` which sources of truncated items lack what (default: all lack their beginning).
`ended` is when a node was read.
`cluster` has what was read once, and `cluster_status` the status of its items by source. `lines` are the numbers of the
evidence lines of the first finding.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from rollbook.bundle.summary import BundleSummary, File, ItemResult, NodeResult, Window
from rollbook.records.document import encode
from rollbook.records.record import RecordHosts
from tests.support.records import Sets, host_results

MADE = dt.datetime(2026, 11, 16, 6, 0, tzinfo=dt.UTC)


class BundleCase(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One report, and the expected result of a rule."""

    about: str
    outcome: str
    nodes: list[str] = []
    says: str = ""
    note: str = ""
    severity: str = ""
    count: int | None = None
    lines: list[int] | None = None
    items: dict[str, dict[str, dict[str, str]]] = {}
    status: dict[str, dict[str, str]] = {}
    reasons: dict[str, str] = {}
    truncated: dict[str, str] = {}
    exit: dict[str, int] = {}
    ended: dict[str, dt.datetime] = {}
    cluster: dict[str, str] = {}
    cluster_status: dict[str, str] = {}
    window: dict[str, dt.datetime] = {}
    start: Sets = {}


class RuleCases(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The cases of one rule. `item` and `tag` say where lines of `hits` and `misses` are."""

    hits: list[str] = []
    misses: list[str] = []
    case: list[BundleCase] = []


def write_bundle(directory: Path, case: BundleCase) -> Path:
    """Write the report of a case."""
    names = list(dict.fromkeys([*case.items, *case.status]))
    results = [
        NodeResult(node=name, status="complete", ended=case.ended.get(name), items=_items(directory, case, name))
        for name in names
    ]
    cluster = [_cluster_item(directory, case, at, source) for at, source in enumerate(case.cluster)]
    summary = BundleSummary(
        report_id="test",
        timestamp=MADE,
        total_nodes=len(names),
        successful=len(names),
        failed=0,
        results=results,
        cluster=cluster,
        window=Window(case.window.get("since"), case.window.get("until")),
    )
    (directory / "summary.json").write_bytes(encode(summary))
    if case.start:
        hosts = RecordHosts(started_ns=0, ended_ns=0, start=host_results(case.start))
        (directory / "hosts.json").write_bytes(encode(hosts))
    return directory


def _cluster_item(directory: Path, case: BundleCase, at: int, source: str) -> ItemResult:
    item = f"{'kubernetes' if source.startswith('kubectl') else 'slurm'}-{at}"
    file = _file(directory, f"cluster/{item}/{at}", source, case.cluster[source], case.exit.get(source, 0))
    status: Any = case.cluster_status.get(source, "complete")
    return ItemResult(id=item, status=status, reason="" if status == "complete" else "no answer", files=[file])


def _items(directory: Path, case: BundleCase, node: str) -> list[ItemResult]:
    found = []
    for item, sources in case.items.get(node, {}).items():
        files = [
            _file(directory, f"nodes/{node}/{item}/{at}", source, text, case.exit.get(source, 0))
            for at, (source, text) in enumerate(sources.items())
        ]
        status: Any = case.status.get(node, {}).get(item, "complete")
        cut = "first 9 MB of 10 MB" if status == "truncated" else ""
        files = [
            msgspec.structs.replace(file, truncated=case.truncated.get(file.source, "" if case.truncated else cut))
            for file in files
        ]
        found.append(ItemResult(id=item, status=status, reason=case.reasons.get(item, ""), files=files))
    others = {
        item: status for item, status in case.status.get(node, {}).items() if item not in case.items.get(node, {})
    }
    return [*found, *(msgspec.convert({"id": item, "status": status}, ItemResult) for item, status in others.items())]


def _file(directory: Path, path: str, source: str, text: str, exit_status: int) -> File:
    data = text.encode()
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    return File(path=path, source=source, size=len(data), sha256=digest, exit_status=exit_status)


def kernel_log(*messages: str, node: str = "n1") -> str:
    """Messages as journald prints them, one a second."""
    return "".join(f"2026-11-16T05:00:{at:02}.000000+0000 {node} kernel: {one}\n" for at, one in enumerate(messages))


def read_cases(path: Path) -> RuleCases:
    """The cases of a file."""
    return msgspec.toml.decode(path.read_bytes(), type=RuleCases)


def as_json(value: Any) -> str:
    """A value as text of a JSON file."""
    return json.dumps(value, indent=1)
