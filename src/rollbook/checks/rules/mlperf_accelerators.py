"""Clients do not drive the same number of accelerators each.

Why: With uneven slots per host some clients carry more load than the rules allow for.
Example: 8 on node[01-15], 4 on node16
Fix: Give every host the same number of slots.
Reference: MLPerf Storage rules 3.3.6
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding, whole
from rollbook.checks.subject import Benchmark, Subject
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-accelerators", "fail", (Benchmark,)


def check(run: Subject) -> Iterator[Finding]:
    """The slots of the hosts where they were given; else whether the processes divide evenly."""
    if not run.start:
        raise CannotTell("no host was asked for")
    by_slots: dict[int, list[str]] = {}
    for host in run.start:
        if host.slots is not None:
            by_slots.setdefault(host.slots, []).append(host.name)
    if len(by_slots) > 1:
        text = ", ".join(f"{slots} on {fold(names)}" for slots, names in sorted(by_slots.items(), reverse=True))
        yield finding(Issue(Validation.INVALID, f"uneven accelerators: {text}", "hosts", "equal slots", text))
    silent = [host.name for host in run.start if host.slots is None]
    if by_slots and silent:
        raise CannotTell(f"no slots were given for {fold(silent)}")
    if not by_slots:
        processes = whole(run.metadata.get("num_processes"), "num_processes")
        if processes % len(run.start):
            text = f"{processes} processes do not divide evenly over {len(run.start)} hosts"
            yield finding(Issue(Validation.INVALID, text, "num_processes", len(run.start), processes))
