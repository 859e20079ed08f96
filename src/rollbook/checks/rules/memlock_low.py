"""The locked memory limit is too low for RDMA.

Why: RDMA buffers are locked memory; below 16 GiB large transfers fail or fall back to TCP.
Example: limits memlock: soft 8192 KiB (node17)
Fix: Set memlock to unlimited in /etc/security/limits.d, and LimitMEMLOCK=infinity for the sshd or slurmd service.
Reference: getrlimit(2), limits.conf(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.infiniband import Port
from rollbook.sources.limits import Limit

ID, SEVERITY, NEEDS = "memlock-low", "fail", (Port, Limit)
ENOUGH = 16 << 30


def check(run: RunData) -> Iterator[Finding]:
    """Hosts with an active RDMA port and a limit below 16 GiB; null means unlimited.

    Only a warning for Ethernet: cards that support RDMA are often used without it.
    """
    layers: dict[str, set[str | None]] = {}
    for host, port in run.each(Port):
        if port.state == "ACTIVE":
            layers.setdefault(host.name, set()).add(port.link_layer)
    found: dict[tuple[int, bool], list[str]] = {}
    for host, limit in run.each(Limit):
        used = layers.get(host.name)
        if limit.resource == "memlock" and used and limit.soft is not None and limit.soft < ENOUGH:
            found.setdefault((limit.soft, used == {"Ethernet"}), []).append(host.name)
    for (soft, ethernet), names in found.items():
        yield Finding(
            message=f"limits memlock: soft {soft // 1024} KiB ({fold(names)})",
            hosts=names,
            severity="warn" if ethernet else None,
            evidence={"soft": soft},
        )
