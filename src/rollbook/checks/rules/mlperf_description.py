"""The system description does not match the run.

Why: Reviewers compare them: the number of clients must be equal, and the memory of each client within 10 % of the
described value.
Example: 15 clients described, 16 in the run
Fix: Correct the description; `rollbook describe` writes the measured clients.
Reference: MLPerf Storage rules 2.1.9
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.checks.mlperf import GIB, Issue, Validation, finding_for, positive_integer
from rollbook.checks.run_data import Description, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Finding
from rollbook.sources.meminfo import MemInfo

ID, SEVERITY, NEEDS = "mlperf-description", "fail", (Description, MemInfo)
TOLERANCE = 0.1


def check(run: RunData) -> Iterator[Finding]:
    """Compare number and memory of clients, and whether the system supports several hosts."""
    system = (run.description or {}).get("system_under_test")
    if not isinstance(system, Mapping) or not isinstance(system.get("clients"), list):
        raise CannotTell("the description has no system_under_test.clients")
    clients = system["clients"]
    hosts = len(run.start)
    described = sum(positive_integer(_at(client, "quantity"), "clients[].quantity") for client in clients)
    if described != hosts:
        text = f"{described} clients described, {hosts} in the run"
        yield finding_for(Issue(Validation.INVALID, text, "clients.quantity", hosts, described))
    if len(clients) == 1:
        yield from _memory(run, _at(clients[0], "chassis", "memory_capacity"))
    if _at(system, "solution", "capabilities", "multi_host") is False and hosts > 1:
        text = f"system described for a single host, {hosts} used"
        yield finding_for(Issue(Validation.INVALID, text, "capabilities.multi_host", True, False))


def _memory(run: RunData, capacity: Any) -> Iterator[Finding]:
    if not isinstance(capacity, int | float) or capacity <= 0:
        raise CannotTell("the description has no clients[0].chassis.memory_capacity")
    for host, memory in run.each(MemInfo):
        measured = memory.total_kib * 1024 / GIB
        if abs(measured - capacity) > TOLERANCE * capacity:
            text = f"{capacity} GiB described, {measured:.1f} GiB measured ({host.name})"
            issue = Issue(Validation.INVALID, text, "chassis.memory_capacity", capacity, round(measured, 1))
            yield finding_for(issue, [host.name])


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
