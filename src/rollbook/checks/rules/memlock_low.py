"""Jobs may lock too little memory for RDMA.

Why: RDMA registers its buffers as locked memory: below 16 GiB large transfers fail, or fall back to TCP.
Example: memlock 8192 KiB (node17)
Fix: memlock unlimited in /etc/security/limits.d, and LimitMEMLOCK=infinity for sshd's or slurmd's service.
Reference: getrlimit(2), limits.conf(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.infiniband import Port
from rollbook.sources.limits import Limit

ID, SEVERITY, NEEDS = "memlock-low", "fail", (Port, Limit)
ENOUGH = 16 << 30


def check(run: Subject) -> Iterator[Finding]:
    """Hosts with an RDMA port in use and a limit below 16 GiB; no limit is null.

    An Ethernet card that could do RDMA is no proof that anybody uses it so.
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
            message=f"memlock {soft // 1024} KiB ({fold(names)})",
            hosts=names,
            severity="warn" if ethernet else None,
            evidence={"soft": soft},
        )
