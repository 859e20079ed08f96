"""Memory: errors, fragmentation, pressure, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollbook.bundle.evidence import BundleData, Text, node_finding
from rollbook.clean import count_text
from rollbook.records.findings import Finding

__all__ = ["errors_counted", "fragmented", "killed_in_cgroups", "pressure"]

LIMITS = {"memory": 10.0, "io": 80.0}
"""Percent of 10 seconds in which all tasks waited. I/O pressure is normal while a storage benchmark runs."""
MANY_CORRECTED = 100
COMPACTIONS = 10_000


def killed_in_cgroups(run: BundleData) -> Iterator[Finding]:
    """Control groups in which the kernel has killed processes since they exist."""
    for text in run.texts("cgroups"):
        group = _group(text.source)
        for number, line in text.lines():
            if line.startswith("== "):
                group = _group(line[3:].strip())
            found = re.fullmatch(r"oom_kill (\d+)", line.strip())
            if found and int(found[1]) and group not in ("", "/"):  # the root counts those of all groups
                message = f"the kernel killed processes in {group}: {found[1]}"
                yield node_finding(text.node, message, device=group, lines=text.quote(number), count=int(found[1]))


def _group(path: str) -> str:
    found = re.search(r"/sys/fs/cgroup(/.*)?/memory\.events", path)
    return (found[1] or "/") if found else ""


def errors_counted(run: BundleData) -> Iterator[Finding]:
    """Uncorrected errors; corrected ones if there are many, and more than on the peers."""
    corrected: dict[str, dict[str, tuple[int, Text]]] = {}
    for text in run.texts("memory-errors", "/sys/devices/system/edac/mc/mc*_count"):
        found = re.search(r"/mc/(mc\d+)/(ue|ce)_count$", text.source)
        if not found or not text.text.strip().isdigit():
            continue
        count = int(text.text)
        if found[2] == "ue" and count:
            message = f"{found[1]}: {count_text(count, 'uncorrected error')} since boot"
            yield node_finding(text.node, message, device=found[1], severity="fail", lines=text.quote(1), count=count)
        elif found[2] == "ce":
            corrected.setdefault(found[1], {})[text.node] = (count, text)
    for controller, nodes in corrected.items():
        counts = {node: float(count) for node, (count, _) in nodes.items()}
        for node, (count, text) in nodes.items():
            median = run.peer_median(node, counts)
            if count >= MANY_CORRECTED and count > 5 * (median or 0.0):
                beside = "" if median is None else f", median of its peers {median:g}"
                message = f"{controller}: {count} corrected errors since boot{beside}"
                yield node_finding(node, message, device=controller, lines=text.quote(1), count=count)


def fragmented(run: BundleData) -> Iterator[Finding]:
    """Nodes on which more than a tenth of many compactions failed."""
    for text in run.texts("memory", "/proc/vmstat"):
        lines = {words[0]: (number, int(words[1])) for number, line in text.lines() if (words := _pair(line))}
        failed, worked = lines.get("compact_fail", (0, 0)), lines.get("compact_success", (0, 0))
        if worked[1] > COMPACTIONS and failed[1] > 0.1 * worked[1]:
            message = f"{failed[1]} compactions of memory failed and {worked[1]} succeeded since boot"
            yield node_finding(text.node, message, lines=text.quote(failed[0], worked[0]))


def _pair(line: str) -> list[str] | None:
    words = line.split()
    return words if len(words) == 2 and words[1].isdigit() else None


def pressure(run: BundleData) -> Iterator[Finding]:
    """Nodes on which all tasks waited for memory or I/O for a large part of the last ten seconds."""
    for text in run.texts("load", "/proc/pressure/*"):
        resource = text.source.rpartition("/")[2]
        for number, line in text.lines():
            found = re.match(r"full avg10=(\d+\.\d+)", line)
            if found and float(found[1]) >= LIMITS.get(resource, 1000.0):
                message = f"{resource}: all tasks waited {float(found[1]):g} % of the last 10 s"
                yield node_finding(text.node, message, device=resource, lines=text.quote(number))
