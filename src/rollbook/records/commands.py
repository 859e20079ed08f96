"""The document of `rollbook exec`: a command, and how it ended on every requested host."""

from __future__ import annotations

import msgspec

from rollbook.errors import ExitCode, HostStatus
from rollbook.records.document import current_version
from rollbook.records.hosts import GAVE_DATA, Coverage

__all__ = ["CommandResult", "Execution"]


class CommandResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    r"""One requested host: whether the command ran to its end there (`complete`), and what came of it.

    `exit_status` is negative if a signal ended the command, and None if it did not end. `dropped_bytes` counts output
    beyond the limit. Bytes that are not UTF-8 are written as `\xNN`. `started` means that the host was reached and the
    command sent, or may have been: without a connection back, a launched agent has it in its arguments.
    """

    name: str
    status: HostStatus
    reason: str = ""
    method: str = ""
    agent: str = ""
    user: str | None = None
    hostname: str | None = None
    started: bool = False
    exit_status: int | None = None
    stdout: str = ""
    stderr: str = ""
    dropped_bytes: int = 0
    lost_frames: int = 0
    seconds: float = 0.0
    attempts: list[str] = []

    @property
    def gave_data(self) -> bool:
        """Whether the command may have run."""
        return self.started

    @property
    def succeeded(self) -> bool:
        """Whether the command ran to its end with exit status 0."""
        return self.status in GAVE_DATA and self.exit_status == 0


class Execution(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.exec/1"):
    """A command on all requested hosts: a list of arguments, or a string for `sh -c`."""

    rollbook: str = msgspec.field(default_factory=current_version)
    created: str
    command: str | list[str]
    coverage: Coverage
    hosts: list[CommandResult]

    @property
    def exit_code(self) -> int:
        """0 the command succeeded on all hosts, 1 it failed on some, 3 it did not end on some, 4 no host reached."""
        if not any(host.started for host in self.hosts):
            return ExitCode.NO_HOST
        if not self.coverage.complete:
            return ExitCode.INCOMPLETE
        return ExitCode.SUCCESS if all(host.succeeded for host in self.hosts) else ExitCode.FINDINGS
