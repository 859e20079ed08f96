"""Every error Rollbook raises, in one tree.

    RollbookError                 exit code 2 unless a class overrides it
    ├── UsageError                bad arguments or configuration
    │   ├── AwsError              an AWS call failed: credentials, region, permissions, a name
    │   │   ├── AwsDenied         the caller has no permission for the call
    │   │   └── AwsUnstable       the service failed; worth a retry
    │   ├── CannotRun             the command of `run` cannot be started; exit code 126 or 127, as in shells
    │   └── HostListError         a host list cannot be parsed; points at the character
    ├── TransportError            a host could not be used; carries the resulting status
    │   ├── Unreachable           the name does not resolve, no route
    │   ├── Refused               the host refused: port closed, key rejected, host key changed
    │   │   └── Busy              sshd has too many logins in progress; worth a retry
    │   ├── TimedOut              no answer in time
    │   └── AgentFailed           reached, but the agent did not start, died or sent invalid data
    ├── NoHostReached             no host returned data, and at least one is required
    ├── ProtocolError             invalid frame content
    ├── ParseError                the text of a source has an unknown format
    ├── RecordError               a record on disk cannot be read or written
    ├── NotApplicable             a rule does not apply to this record
    └── CannotTell                the input of a rule is missing

Failures of single hosts are not raised to the user: the collector turns a `TransportError` into the status and reason
of that host, and continues with the others. `rollbook.testing` adds `LabCannot`, a `RollbookError`;
`rollbook.mlpstorage` also has exceptions with the names that the MLPerf Storage tool uses.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "EXIT_CODES",
    "AgentFailed",
    "AwsDenied",
    "AwsError",
    "AwsUnstable",
    "Busy",
    "CannotRun",
    "CannotTell",
    "ExitCode",
    "HostListError",
    "HostStatus",
    "NoHostReached",
    "NotApplicable",
    "ParseError",
    "ProtocolError",
    "RecordError",
    "Refused",
    "RollbookError",
    "TimedOut",
    "TransportError",
    "Unreachable",
    "UsageError",
]


class ExitCode:
    """The exit codes of the command line; `EXIT_CODES` says what each means."""

    SUCCESS = 0
    FINDINGS = 1
    ERROR = 2
    INCOMPLETE = 3
    NO_HOST = 4
    INTERNAL_ERROR = 70
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130


EXIT_CODES = {
    ExitCode.SUCCESS: "success",
    ExitCode.FINDINGS: "findings, differences (`diff`, `describe`), problems (`verify`), a result beyond the limit of "
    "`compare`, or a command run by `exec` that failed on a host",
    ExitCode.ERROR: "usage or configuration error, or a file or record that cannot be read or written",
    ExitCode.INCOMPLETE: "some hosts failed, some records could not be read, or a run or comparison could not be "
    "judged",
    ExitCode.NO_HOST: "no host reached",
    ExitCode.INTERNAL_ERROR: "internal error",
    ExitCode.NOT_EXECUTABLE: "the command of `run` cannot be executed",
    ExitCode.NOT_FOUND: "the command of `run` was not found",
    ExitCode.INTERRUPTED: "interrupted",
}
"""The exit codes of the command line. `run` returns the exit status of the wrapped command instead."""

HostStatus = Literal["complete", "partial", "unreachable", "refused", "timed-out", "failed"]
"""The status of a requested host."""


class RollbookError(Exception):
    """Root of all errors; `exit_code` is the exit code of the command line."""

    exit_code = ExitCode.ERROR


class UsageError(RollbookError):
    """Bad arguments or configuration."""


class AwsError(UsageError):
    """An AWS call failed in a way that concerns the whole command: credentials, region, permissions, a name."""


class AwsDenied(AwsError):
    """The caller has no permission for the call."""


class AwsUnstable(AwsError):
    """The service failed; worth a retry."""


class CannotRun(UsageError):
    """The command of `run` was not found. If it was found but cannot be executed, the exit code is 126."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, message: str, *, found: bool) -> None:
        super().__init__(message)
        self.exit_code = ExitCode.NOT_EXECUTABLE if found else ExitCode.NOT_FOUND


class HostListError(UsageError):
    """A host list cannot be parsed. The message shows the text with a caret under the character at `position`."""

    def __init__(self, text: str, position: int, why: str) -> None:
        self.text, self.position, self.why = text, position, why
        super().__init__(self._pointed())

    def _pointed(self) -> str:
        # One column per character: control characters must not move the caret.
        start = max(0, self.position - 60)
        shown = "".join(c if c.isprintable() else "?" for c in self.text[start : start + 100])
        line = ("…" if start else "") + shown + ("…" if len(self.text) > start + 100 else "")
        caret = " " * (self.position - start + (1 if start else 0)) + "^"
        return f"{self.why}\n  {line}\n  {caret}"


class TransportError(RollbookError):
    """A host could not be used. `status` is the resulting host status, the message is its reason."""

    exit_code = ExitCode.INCOMPLETE
    status: HostStatus = "failed"


class Unreachable(TransportError):
    """The name does not resolve, or there is no route to the host."""

    status: HostStatus = "unreachable"


class Refused(TransportError):
    """The host refused the connection or the login."""

    status: HostStatus = "refused"


class Busy(Refused):
    """The host's sshd refused because too many logins were in progress (`MaxStartups`); worth a retry."""


class TimedOut(TransportError):
    """The host did not answer in time."""

    status: HostStatus = "timed-out"


class AgentFailed(TransportError):
    """The host was reached, but the agent did not start, died, or sent invalid data."""


class NoHostReached(RollbookError):
    """No requested host returned data, and at least one is required."""

    exit_code = ExitCode.NO_HOST


class ProtocolError(RollbookError):
    """Invalid frame content from a host."""


class ParseError(RollbookError):
    """The text of a source has an unknown format. The raw text stays in the record."""


class RecordError(RollbookError):
    """A record on disk cannot be read or written."""


class NotApplicable(RollbookError):
    """Raised by a rule that does not apply to this record; the message has the reason."""


class CannotTell(RollbookError):
    """Raised by a rule whose input is missing or unreadable: it neither passes nor fails."""
