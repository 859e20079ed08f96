"""Every error Rollbook raises, in one tree.

    RollbookError                 exit code 2 unless a class says otherwise
    ├── UsageError                what the user typed cannot be used
    │   └── HostListError         a host list cannot be read; points at the character
    ├── TransportError            a host could not be used; carries the status it earns
    │   ├── Unreachable           the name does not resolve, no route
    │   ├── Refused               the host answered and said no: port closed, key rejected, host key changed
    │   │   └── Busy              sshd has too many logins in progress; worth a retry
    │   ├── TimedOut              no answer in time
    │   └── AgentFailed           reached, but the agent did not start, died or spoke nonsense
    ├── NoHostReached             none of the hosts gave anything, and nothing shall be done without them
    ├── ProtocolError             bytes that are no valid frame content
    ├── ParseError                a source's text is not what its parser knows
    ├── RecordError               a record on disk cannot be read or written
    ├── NotApplicable             a rule does not concern this record
    └── CannotTell                a rule's input is missing

Failures of single hosts are not raised to the user: the collector turns a `TransportError` into that host's
status and reason, and the others go on.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "EXIT_CODES",
    "AgentFailed",
    "Busy",
    "CannotTell",
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


EXIT_CODES = {
    0: "all well",
    1: "findings",
    2: "usage or configuration",
    3: "some hosts failed",
    4: "no host reached",
    70: "a mistake in Rollbook itself",
    130: "interrupted",
}
"""What the command line returns. `run` returns the wrapped command's own code instead."""

HostStatus = Literal["complete", "partial", "unreachable", "refused", "timed-out", "failed"]
"""What became of a host that was asked for."""


class RollbookError(Exception):
    """Root of all errors; `exit_code` is what the command line returns for it."""

    exit_code = 2


class UsageError(RollbookError):
    """What the user typed cannot be used."""


class HostListError(UsageError):
    """A host list cannot be read. The message shows the text with a caret under the character at `position`."""

    def __init__(self, text: str, position: int, why: str) -> None:
        self.text, self.position, self.why = text, position, why
        super().__init__(self._pointed())

    def _pointed(self) -> str:
        # One column per character, whatever it is: control characters must not move the caret or the terminal.
        start = max(0, self.position - 60)
        shown = "".join(c if c.isprintable() else "?" for c in self.text[start : start + 100])
        line = ("…" if start else "") + shown + ("…" if len(self.text) > start + 100 else "")
        caret = " " * (self.position - start + (1 if start else 0)) + "^"
        return f"{self.why}\n  {line}\n  {caret}"


class TransportError(RollbookError):
    """A host could not be used. `status` is the host status it earns, the message is the reason a person reads."""

    exit_code = 3
    status: HostStatus = "failed"


class Unreachable(TransportError):
    """The name does not resolve, or there is no way to the host."""

    status: HostStatus = "unreachable"


class Refused(TransportError):
    """The host answered and said no."""

    status: HostStatus = "refused"


class Busy(Refused):
    """The host's sshd turned us away because too many logins were under way (`MaxStartups`); worth another try."""


class TimedOut(TransportError):
    """The host did not answer in time."""

    status: HostStatus = "timed-out"


class AgentFailed(TransportError):
    """The host was reached, but the agent did not start, died, or spoke nonsense."""


class NoHostReached(RollbookError):
    """None of the hosts asked for gave anything, and nothing shall be done without them."""

    exit_code = 4


class ProtocolError(RollbookError):
    """Bytes from a host that are no valid frame content."""


class ParseError(RollbookError):
    """A source's text is not what its parser knows. The raw text stays in the record."""


class RecordError(RollbookError):
    """A record on disk cannot be read or written."""


class NotApplicable(RollbookError):
    """Raised by a rule that has nothing to say about this run; the text says why."""


class CannotTell(RollbookError):
    """Raised by a rule whose input is missing or unreadable: it neither passed nor failed."""
