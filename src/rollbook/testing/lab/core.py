"""What lab hosts of every kind can do: run programs, list their processes, start and stop their sshd."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rollbook.testing.lab import processes
from rollbook.testing.lab.init import INSIDE
from rollbook.testing.lab.keys import server_config
from rollbook.testing.lab.processes import Process
from rollbook.testing.lab.resources import LabCannot, find
from rollbook.testing.lab.supervisor_client import SupervisorClient

__all__ = ["Core", "Kind", "Place"]

Kind = Literal["namespaces", "loopback"]
_SECONDS_TO_LISTEN = 60.0
_SECONDS_TO_END = 10.0
"""For a killed program; one that waits in the kernel for a dead mount never ends."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a host in its lab; `hosts` is the text of its /etc/hosts."""

    kind: Kind
    index: int
    address: str
    port: int
    max_startups: str
    authorized_key: str
    hosts: str


class Core:
    """A host: its place, its files, its processes and its sshd."""

    def __init__(self, supervisor: SupervisorClient, name: str, place: Place) -> None:
        self.name = name
        self.address = place.address
        self.directory = supervisor.directory / "hosts" / name
        self._supervisor = supervisor
        self._place = place
        self._init = 0
        self._hanging: dict[str, int] = {}  # servers of file systems that never answer, by path
        self._touched = False

    def _as_new(self) -> None:
        """Put the host's files back to their first state; each layer adds its own."""
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """The init of its namespaces, seen from outside; on loopback its sshd."""
        return self._init or self._listener()

    @property
    def log(self) -> str:
        """The log of its sshd."""
        return (self.directory / "sshd.log").read_text(errors="replace")

    def run(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,  # noqa: A002 - as subprocess.run calls it
        timeout: float = 30.0,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the host, not through ssh. A program that exceeds `timeout` is killed."""
        self._touched = True
        child = subprocess.Popen(
            self.entered(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        with child:
            try:
                out, err = child.communicate(input, timeout)
            except BaseException:
                _end(child)
                raise
        done = subprocess.CompletedProcess(argv, child.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def entered(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs a program on the host, in its namespaces if it has any."""
        if not self._init:
            return list(argv)
        return ["nsenter", "--target", str(self._init), "--mount", "--uts", "--net", "--pid", "--", *argv]

    def processes(self) -> list[tuple[int, str]]:
        """The processes of the host, as (process id seen from outside, command line).

        Its init, its listening sshd and the lab's own servers are left out; the sshd of a session is not.
        """
        members = self._members()
        own = {self._init, self._listener(members), *self._hanging.values()}
        return [(one.pid, one.cmdline) for one in members if one.pid not in own]

    def start_sshd(self) -> None:
        """Start sshd, and wait until it listens."""
        inside = INSIDE if self._init else str(self.directory)
        # Any address: its own network namespace decides which there are.
        address = "0.0.0.0" if self._init else self.address  # noqa: S104
        variables = {"HOME": f"{inside}/home", "ROLLBOOK_LAB_HOST": self._mark}
        text = server_config(inside, address, self._place.port, self._place.max_startups, variables)
        (self.directory / "sshd_config").write_text(text)
        self._pid_file.unlink(missing_ok=True)
        if os.getuid() == 0 and not self._init:
            # The root directory of sshd's unprivileged part, which is otherwise created at boot.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = find("sshd")  # the full path, which it requires to restart itself
        assert sshd is not None
        argv = [sshd, "-f", f"{inside}/sshd_config", "-E", f"{inside}/sshd.log"]
        self._supervisor.ask("run", argv=self.entered(argv))
        # It writes its process id once it listens.
        end = time.monotonic() + _SECONDS_TO_LISTEN
        while not self._pid_file.exists() or not self._pid_file.read_text():
            if time.monotonic() > end:
                raise OSError(f"sshd of {self.name} does not listen: {self.log}")
            time.sleep(0.002)

    @property
    def _pid_file(self) -> Path:
        return self.directory / "sshd.pid"

    def _listener(self, members: Sequence[Process] | None = None) -> int:
        """The process id, seen from outside, of the sshd that listens; 0 if there is none."""
        try:
            inside = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return 0
        if not self._init:
            found = processes.process(inside)
            return inside if found and found.is_alive else 0
        members = self._members() if members is None else members
        return next((one.pid for one in members if one.pid_inside == inside), 0)

    def _members(self) -> list[Process]:
        """Every living process of the host."""
        if self._init:
            return list(processes.living_in(self._init))
        everyone = {one.pid: one for one in processes.living()}
        listener = self._listener()

        def belongs(one: Process) -> bool:
            while one.pid != listener and one.parent in everyone:
                one = everyone[one.parent]
            return one.pid == listener

        mark = f"ROLLBOOK_LAB_HOST={self._mark}"
        return [one for one in everyone.values() if belongs(one) or one.has_environment(mark)]

    def _signal_sshd(self, number: signal.Signals) -> list[int]:
        """Signal the listener and every session's processes, called sshd, sshd-session (9.8), sshd-auth (10.0)."""
        self._touched = True
        found = [one.pid for one in self._members() if one.name.startswith("sshd")]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return found

    def _until_gone(self, pids: Sequence[int]) -> None:
        while any((one := processes.process(pid)) and one.is_alive for pid in pids):
            time.sleep(0.002)

    @property
    def _mark(self) -> str:
        """The environment of every process that its sshd starts."""
        return f"{self.directory.parent.parent.name}/{self.name}"

    def _need_namespaces(self, what: str) -> None:
        self._touched = True
        if not self._init:
            raise LabCannot(f"{what} needs a host of its own namespaces: root with CAP_SYS_ADMIN")


def _end(entered: subprocess.Popen[str]) -> None:
    """Kill a program and the nsenter that started it, if there is one.

    nsenter waits for its program and ends with it. If both were killed at once, the program could still be ending.
    """
    inside = [one.pid for one in processes.living() if one.parent == entered.pid]
    for pid in inside or [entered.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        entered.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        entered.kill()
