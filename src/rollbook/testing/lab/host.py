"""A host of the lab."""

from __future__ import annotations

import contextlib
import os
import signal

from rollbook.testing.lab.logins import Logins
from rollbook.testing.lab.machine import Machine

__all__ = ["LabHost"]


class LabHost(Logins, Machine):
    """One host: `name`, `address`, `pid`, and methods that run programs, replace hardware and cause faults."""

    def __repr__(self) -> str:
        return f"<LabHost {self.name} {self.address}>"

    @property
    def changed(self) -> bool:
        """Whether something was done to the host, or runs on it, that a fresh one would not have."""
        return self._touched or bool(self.processes())

    def start(self) -> None:
        """Boot the host and start its sshd."""
        if self._place.kind == "namespaces":
            self._boot()
        self.start_sshd()
        self._touched = False

    def reset(self) -> None:
        """Restore the state in which the lab was built; a host with namespaces is rebooted."""
        if self._init:
            self._halt()
        else:
            self.kill_sshd()
            for pid, _ in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._as_new()
        self.start()
