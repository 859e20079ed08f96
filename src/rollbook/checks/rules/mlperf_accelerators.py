"""Clients have different numbers of accelerators.

Why: With uneven slots per host some clients carry more load than the rules allow.
Example: uneven accelerators: 8 on node[01-15], 4 on node16
Fix: Give every host the same number of slots.
Reference: MLPerf Storage rules 3.3.6
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding_for, positive_integer
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-accelerators", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding]:
    """Compare the slots of the hosts; without slots, check whether processes divide evenly."""
    if not run.start:
        raise CannotTell("the run has no hosts")
    by_slots: dict[int, list[str]] = {}
    for host in run.start:
        if host.slots is not None:
            by_slots.setdefault(host.slots, []).append(host.name)
    if len(by_slots) > 1:
        text = ", ".join(f"{slots} on {fold(names)}" for slots, names in sorted(by_slots.items(), reverse=True))
        yield finding_for(Issue(Validation.INVALID, f"uneven accelerators: {text}", "hosts", "equal slots", text))
    without_slots = [host.name for host in run.start if host.slots is None]
    if by_slots and without_slots:
        raise CannotTell(f"no slots given for {fold(without_slots)}")
    if not by_slots:
        processes = positive_integer(run.metadata.get("num_processes"), "num_processes")
        if processes % len(run.start):
            text = f"{processes} processes do not divide evenly over {len(run.start)} hosts"
            yield finding_for(Issue(Validation.INVALID, text, "num_processes", len(run.start), processes))
