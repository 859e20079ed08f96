"""Who runs on this machine, as /proc tells (proc_pid_stat(5), proc_pid_status(5))."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Process", "everyone", "living", "process", "started"]


@dataclasses.dataclass(frozen=True)
class Process:
    """One process. `name` is the kernel's short name, `state` its letter: D waits in the kernel, Z is dead."""

    pid: int
    name: str
    state: str
    parent: int

    @property
    def cmdline(self) -> str:
        """The command line, or the name in brackets where there is none; empty once the process is gone."""
        try:
            text = Path(f"/proc/{self.pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return ""
        return text.replace("\0", " ").strip() or f"[{self.name}]"

    @property
    def pid_namespace(self) -> str:
        """The identity of its PID namespace, empty where that cannot be read."""
        try:
            return Path(f"/proc/{self.pid}/ns/pid").readlink().name
        except OSError:
            return ""

    @property
    def pid_inside(self) -> int:
        """Its process id in its innermost PID namespace, as far as that can be read."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text(errors="replace").splitlines():
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
        return self.pid

    def has_environment(self, variable: str) -> bool:
        """Whether it was started with this `NAME=value`."""
        try:
            return variable.encode() in Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def process(pid: int) -> Process | None:
    """The process with this id, dead or alive, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold blanks and parentheses itself.
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *_ = rest.split()
    return Process(pid, name, state, int(parent))


def everyone() -> Iterator[Process]:
    """All processes this one can see, zombies included."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := process(int(entry.name))):
            yield found


def living() -> Iterator[Process]:
    """All processes that are not dead."""
    return (found for found in everyone() if found.state not in "ZX")


def started(pid: int) -> str:
    """When the process started, in ticks since boot: with the id it names one process for good. Empty if gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
