"""Which collector made something outside of this machine, and whether it is gone without removing it."""

from __future__ import annotations

import os
from pathlib import Path

from rollbook.agent.wire import slurp

__all__ = ["BOOT_ID", "is_gone", "this_collector"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def this_collector() -> str:
    """This process: where its id has a meaning, process id and start time."""
    return f"{_process_scope()}/{os.getpid()}/{_start_time(os.getpid())}"


def is_gone(collector: str) -> bool:
    """Whether a collector of this machine has ended. Of one elsewhere, or of an unknown form: False."""
    place, _, rest = collector.partition("/")
    pid, _, start = rest.partition("/")
    if place != _process_scope() or not pid.isdecimal() or not start.isdecimal():
        return False
    found = _start_time(int(pid))
    return found != start if found else not _exists(int(pid))


def _process_scope() -> str:
    """Where a process id has a meaning: this boot, and the namespace of process ids; each container has its own."""
    return f"{slurp(BOOT_ID)}.{Path('/proc/self/ns/pid').stat().st_ino}"


def _exists(pid: int) -> bool:
    """Whether there is such a process, even one that is not shown to us (`hidepid` of proc(5))."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _start_time(pid: int) -> str:
    """The start time of a process in clock ticks; empty if there is none."""
    fields = slurp(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    return fields[19] if len(fields) > 19 else ""
