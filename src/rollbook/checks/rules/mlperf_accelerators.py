"""Clients do not all drive the same number of accelerators.

Why: With uneven processes per host some clients carry more load than the rules allow for.
Example: 8 on node[01-15], 4 on node16
Fix: Use a number of processes that is a multiple of the number of hosts, and give every host slots for its share.
Reference: MLPerf Storage rules 3.3.6
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollbook.checks.mlperf_clients import clients
from rollbook.checks.mlperf_values import positive_integer
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-accelerators", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The processes of each host where slots were given; otherwise whether the processes divide evenly."""
    require_type(run, "training")
    found = clients(run)
    processes = positive_integer(run.metadata.get("num_processes"), "num_processes")
    slots = {name: count for name, count in found.slots.items() if count is not None}
    if not slots:
        yield Compared("processes", f"a multiple of {found.count} clients ({found.origin})", declared=processes)
        if processes % found.count:
            text = f"{processes} processes do not divide evenly over {found.count} hosts"
            yield finding_for(Validation.INVALID, text, "num_processes", found.count, processes)
        return
    if len(slots) < found.count:
        raise CannotTell(f"no slots were given for {fold(found.slots.keys() - slots)}")
    if sum(slots.values()) < processes:
        raise CannotTell(f"the hosts have {sum(slots.values())} slots for {processes} processes")
    hosts: dict[int, list[str]] = {}
    for name, count in _placed(processes, slots).items():
        hosts.setdefault(count, []).append(name)
    text = ", ".join(f"{count} on {fold(names)}" for count, names in sorted(hosts.items(), reverse=True))
    yield Compared("processes of each client", "equal", declared=text)
    if len(hosts) > 1:
        yield finding_for(Validation.INVALID, f"uneven accelerators: {text}", "hosts", "equal processes", text)


def _placed(processes: int, slots: Mapping[str, int]) -> dict[str, int]:
    """The processes of each host as `mpirun --map-by node` places them: one per host in turn, up to its slots."""
    counts = dict.fromkeys(slots, 0)
    while processes:
        free = [name for name in slots if counts[name] < slots[name]]
        turns = min(processes // len(free), *(slots[name] - counts[name] for name in free))
        taking = free if turns else free[:processes]
        for name in taking:
            counts[name] += turns or 1
        processes -= (turns or 1) * len(taking)
    return counts
