"""A child process of the agent hung in the kernel.

Why: A device or a mount whose server is gone does not respond. Programs that access it will hang too.
Example: 1 child process stuck in the kernel (node17)
Fix: Find processes in state D (ps -eo pid,stat,wchan,args); unmount a dead mount with umount -l.
Reference: proc_pid_stat(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import HostData, RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "observer-stuck", "fail", (HostData,)


def check(run: RunData) -> Iterator[Finding]:
    """Hosts whose agent had to abandon child processes, at the start or at the end."""
    stuck: dict[str, int] = {}
    for host in (*run.start, *run.end):
        if host.cost:  # the shell stand-in has no child processes to abandon
            stuck[host.name] = max(stuck.get(host.name, 0), host.cost.stuck_children or 0)
    for name, count in stuck.items():
        if count:
            processes = "process" if count == 1 else "processes"
            yield Finding(message=f"{count} child {processes} stuck in the kernel ({name})", hosts=[name])
    unknown = [host.name for host in run.hosts_with_data if host.name not in stuck]
    if unknown:
        raise CannotTell(f"no final report from the agent on {fold(unknown)}")
