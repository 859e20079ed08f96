"""A child of the agent hung in the kernel and had to be left behind.

Why: Something on the host does not answer: mostly a mount whose server is gone, or a device. Programs of the run that
touch it will hang too.
Example: 1 child stuck in the kernel (node17)
Fix: Processes in state D show where (ps -eo pid,stat,wchan,args); umount -l a dead mount.
Reference: proc_pid_stat(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.model import Finding
from rollbook.checks.subject import Subject

ID, SEVERITY, NEEDS = "observer-stuck", "fail", ()


def check(run: Subject) -> Iterator[Finding]:
    """Hosts whose agent counted abandoned children, at the start or at the end."""
    stuck: dict[str, int] = {}
    for host in (*run.start, *run.end):
        if host.cost and host.cost.stuck_children:
            stuck[host.name] = max(stuck.get(host.name, 0), host.cost.stuck_children)
    for name, count in stuck.items():
        children = "child" if count == 1 else "children"
        yield Finding(message=f"{count} {children} stuck in the kernel ({name})", hosts=[name])
