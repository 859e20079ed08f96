"""Jobs may lock too little memory for RDMA.

Why: RDMA registers its buffers as locked memory: below 16 GiB large transfers fail, or fall back to TCP.
Example: memlock 8192 KiB (node17)
Fix: memlock unlimited in /etc/security/limits.d, and LimitMEMLOCK=infinity for sshd's or slurmd's service.
Reference: getrlimit(2), limits.conf(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.model import Finding
from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.sources.infiniband import Port
from rollbook.sources.limits import Limit

ID, SEVERITY, NEEDS = "memlock-low", "fail", (Port, Limit)
ENOUGH = 16 << 30


def check(run: Subject) -> Iterator[Finding]:
    """Hosts with an RDMA port and a limit below 16 GiB; no limit is null."""
    with_rdma = {host.name for host, _ in run.each(Port)}
    found: dict[int, list[str]] = {}
    for host, limit in run.each(Limit):
        if limit.resource == "memlock" and host.name in with_rdma and limit.soft is not None and limit.soft < ENOUGH:
            found.setdefault(limit.soft, []).append(host.name)
    for soft, names in found.items():
        yield Finding(message=f"memlock {soft // 1024} KiB ({fold(names)})", hosts=names, evidence={"soft": soft})
