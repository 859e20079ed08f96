"""Processes of this machine, as /proc lists them (proc_pid_stat(5), proc_pid_status(5))."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Process", "everyone", "living", "living_in", "process", "reap", "started"]


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
    def is_alive(self) -> bool:
        """Whether it had not ended when it was read."""
        return self.state not in "ZX"

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
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold blanks and parentheses itself.
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *_ = rest.split()
    return Process(pid, name, state, int(parent))


def everyone() -> Iterator[Process]:
    """All processes this one can see, zombies included."""
    return (found for pid in _pids() if (found := process(pid)))


def living() -> Iterator[Process]:
    """All processes that are not dead."""
    return (found for found in everyone() if found.is_alive)


def living_in(init: int) -> Iterator[Process]:
    """All processes that are not dead in the PID namespace of a process, nested namespaces excluded."""
    identity = _namespace_of(init)
    for pid in _pids():  # the link is read first: few processes are in the namespace, and tests wait for them to end
        if identity and _namespace_of(pid) == identity and (found := process(pid)) and found.is_alive:
            yield found


def reap() -> bool:
    """Collect the children of this process that have ended; whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - paths take longer


def _namespace_of(pid: int) -> str:
    """The identity of a PID namespace, empty where it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - paths take longer
    except OSError:
        return ""


def started(pid: int) -> str:
    """When the process started, in ticks since boot: with the id, that identifies it. Empty if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
