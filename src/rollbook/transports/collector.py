"""Which collector made something outside of this machine, and whether it is gone without removing it."""

from __future__ import annotations

import os

from rollbook.agent.wire import slurp

__all__ = ["BOOT_ID", "is_gone", "this_collector"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def this_collector() -> str:
    """This process: boot id of the machine, process id and start time."""
    return f"{slurp(BOOT_ID)}/{os.getpid()}/{_start_time(os.getpid())}"


def is_gone(collector: str) -> bool:
    """Whether a collector of this machine has ended. Of one on another machine, or of an unknown form: False."""
    boot, _, rest = collector.partition("/")
    pid, _, start = rest.partition("/")
    if boot != slurp(BOOT_ID) or not pid.isdecimal() or not start.isdecimal():
        return False
    return _start_time(int(pid)) != start


def _start_time(pid: int) -> str:
    """The start time of a process in clock ticks; empty if there is none."""
    fields = slurp(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    return fields[19] if len(fields) > 19 else ""
