"""Clients do not all drive the same number of accelerators.

Why: With uneven slots per host some clients carry more load than the rules allow for.
Example: 8 on node[01-15], 4 on node16
Fix: Give every host the same number of slots.
Reference: MLPerf Storage rules 3.3.6
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_clients import clients
from rollbook.checks.mlperf_values import positive_integer
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-accelerators", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The slots of the hosts where they were given; otherwise whether the processes divide evenly."""
    require_type(run, "training")
    found = clients(run)
    by_slots: dict[int, list[str]] = {}
    for name, slots in found.slots.items():
        if slots is not None:
            by_slots.setdefault(slots, []).append(name)
    text = ", ".join(f"{slots} on {fold(names)}" for slots, names in sorted(by_slots.items(), reverse=True))
    if by_slots:
        yield Compared("slots of each client", "equal", declared=text)
    if len(by_slots) > 1:
        yield finding_for(Validation.INVALID, f"uneven accelerators: {text}", "hosts", "equal slots", text)
    silent = [name for name, slots in found.slots.items() if slots is None]
    if by_slots and silent:
        raise CannotTell(f"no slots were given for {fold(silent)}")
    if not by_slots:
        processes = positive_integer(run.metadata.get("num_processes"), "num_processes")
        yield Compared("processes", f"a multiple of {found.count} clients ({found.origin})", declared=processes)
        if processes % found.count:
            text = f"{processes} processes do not divide evenly over {found.count} hosts"
            yield finding_for(Validation.INVALID, text, "num_processes", found.count, processes)
