"""Reasons why Slurm does not use nodes, and boots."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

from rollbook.bundle.evidence import BundleData, Text, node_finding
from rollbook.bundle.log_times import line_time
from rollbook.bundle.rows import reasons as table
from rollbook.errors import RollbookError
from rollbook.hosts import expand
from rollbook.records.findings import Finding

__all__ = ["reasons", "rebooted"]

BOOT = re.compile(r"reboot +system boot +\S+ +(\w{3} \w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4})")


def reasons(run: BundleData, rule: str) -> Iterator[Finding]:
    """Nodes with a reason that the table of reasons assigns to the rule."""
    found = list(run.cluster_texts("*sinfo*", "*scontrol*show*node*"))
    if not found:
        run.require_cluster("slurm")
    seen: set[tuple[str, str]] = set()
    for text in found:
        for number, node, reason in _reasons(text):
            one = next((one for one in table() if re.search(one.pattern, reason)), None)
            if one and one.rule == rule and (node, reason) not in seen:
                seen.add((node, reason))
                yield node_finding(node, f"Slurm: {reason} ({one.meaning})", lines=text.quote(number))


def _reasons(text: Text) -> Iterator[tuple[int, str, str]]:
    """Line number, node and reason, from `sinfo -R` or `scontrol show node`, on one line or on several."""
    node, in_table = "", False
    for number, line in text.lines():
        if line.startswith("REASON "):
            in_table = True
            continue
        if name := re.search(r"\bNodeName=(\S+)", line):
            node = name[1]
        if (given := re.search(r"\bReason=(.+?)(?: \[\S+@[^\]]*\])?(?: \w+=|$)", line)) and node:
            yield number, node, given[1].strip()
        elif in_table and (row := re.match(r"(\S.*?) {1,}(\S+) +(\d{4}-\S+|Unknown) +(\S+)$", line.strip())):
            for one in _expand(row[4]):
                yield number, one, row[1].strip()


def _expand(nodes: str) -> list[str]:
    try:
        return expand(nodes)
    except RollbookError:
        return [nodes]


def rebooted(run: BundleData, rule: str) -> Iterator[Finding]:
    """Boots inside the time window, and nodes that Slurm found rebooted."""
    since, until = run.bundle.summary.window.since, run.bundle.summary.window.until
    for text in run.texts("boots", "last *"):
        for number, line in text.lines():
            found = BOOT.match(line)
            if not found or since is None:
                continue
            at = line_time(f"[{found[1]}]", run.bundle.read_at[text.node], zone=run.zones.get(text.node, dt.UTC))
            if at and since <= at and (until is None or at <= until):
                yield node_finding(text.node, "the node booted during the time window", lines=text.quote(number), at=at)
    if any(True for _ in run.cluster_texts("*sinfo*", "*scontrol*show*node*")):
        yield from reasons(run, rule)
