"""The description of the system does not match the run.

Why: Reviewers compare it with the summary: the number of clients must be the same, and each client's memory within
10 % of the described value.
Example: 15 clients described, 16 in the run
Fix: Correct the description; `rollbook describe` writes the clients as they were measured.
Reference: MLPerf Storage rules 2.1.9
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.checks.mlperf_clients import clients, require_all_memory
from rollbook.checks.mlperf_values import GIB, cluster_of, is_size, positive_integer
from rollbook.checks.mlperf_verdict import Validation, finding_for
from rollbook.checks.run_data import Description, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding
from rollbook.sources.meminfo import MemInfo

ID, SEVERITY, NEEDS = "mlperf-description", "fail", (Description,)
TOLERANCE = 0.1


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Number and memory of the clients, and several hosts only if the system allows several."""
    system = (run.description or {}).get("system_under_test")
    if not isinstance(system, Mapping) or not isinstance(system.get("clients"), list):
        raise CannotTell("the description has no system_under_test.clients")
    rows = system["clients"]
    hosts = clients(run).count
    described = sum(positive_integer(_at(row, "quantity"), "clients[].quantity") for row in rows)
    yield Compared("clients", described, hosts)
    if described != hosts:
        text = f"{described} clients described, {hosts} in the run"
        yield finding_for(Validation.INVALID, text, "clients.quantity", hosts, described)
    if _at(system, "solution", "capabilities", "multi_host") is False and hosts > 1:
        text = f"system described for a single host, {hosts} used"
        yield finding_for(Validation.INVALID, text, "capabilities.multi_host", True, False)
    # Last, because it may end with CannotTell.
    if len(rows) == 1:
        yield from _memory(run, _at(rows[0], "chassis", "memory_capacity"))
    else:
        raise CannotTell("memory is compared only with a description of one kind of client")


def _memory(run: RunData, capacity: Any) -> Iterator[Finding]:
    if not isinstance(capacity, int | float) or capacity <= 0:
        raise CannotTell("the description has no clients[0].chassis.memory_capacity")
    sizes = {host.name: memory.total_kib * 1024 / GIB for host, memory in run.each(MemInfo)} or _collected(run)
    if not sizes:
        raise CannotTell("the memory of the clients was not measured")
    for name, measured in sizes.items():
        if abs(measured - capacity) > TOLERANCE * capacity:
            text = f"{capacity} GiB described, {measured:.1f} GiB measured ({name})"
            found = round(measured, 1)
            yield finding_for(Validation.INVALID, text, "chassis.memory_capacity", capacity, found, hosts=[name])
    require_all_memory(run)


def _collected(run: RunData) -> dict[str, float]:
    """The memory of each host in the cluster information of a result, in GiB."""
    hosts = cluster_of(run.metadata).get("hosts")
    sizes = {str(_at(host, "hostname")): _at(host, "memory", "total") for host in hosts if host} if hosts else {}
    return {name: size / GIB for name, size in sizes.items() if is_size(size) and size}


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
