"""A child of the agent hung in the kernel and had to be left behind.

Why: Something on the host does not answer: mostly a mount whose server is gone, or a device. Programs of the run that
touch it will hang too.
Example: 1 child stuck in the kernel (node17)
Fix: Processes in state D show where (ps -eo pid,stat,wchan,args); umount -l a dead mount.
Reference: proc_pid_stat(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject, Told
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "observer-stuck", "fail", (Told,)


def check(run: Subject) -> Iterator[Finding]:
    """Hosts whose agent counted abandoned children, at the start or at the end."""
    stuck: dict[str, int] = {}
    for host in (*run.start, *run.end):
        if host.cost:  # the shell stand-in cannot leave a child behind, and counts none
            stuck[host.name] = max(stuck.get(host.name, 0), host.cost.stuck_children or 0)
    for name, count in stuck.items():
        if count:
            children = "child" if count == 1 else "children"
            yield Finding(message=f"{count} {children} stuck in the kernel ({name})", hosts=[name])
    silent = [host.name for host in run.telling if host.name not in stuck]
    if silent:
        raise CannotTell(f"the agent said no goodbye on {fold(silent)}")
