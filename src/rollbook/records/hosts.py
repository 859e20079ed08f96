"""The result of each requested host: status, reason, transport, clock, facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from rollbook.errors import ExitCode, HostStatus
from rollbook.sources import catalogue

__all__ = [
    "GAVE_DATA",
    "Clock",
    "Cost",
    "Coverage",
    "HasStatus",
    "HostResult",
    "HostStatus",
    "Int64",
    "ReadingStatus",
]

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers of documents: a larger one, which only a forged document has, is not a valid value."""

GAVE_DATA: tuple[HostStatus, ...] = ("complete", "partial")

R = TypeVar("R")


class Clock(msgspec.Struct, frozen=True):
    """The host's wall clock: add `offset_ns` to get the collector's; the error is at most `bound_ns`."""

    offset_ns: Int64
    bound_ns: Int64
    round_trip_ns: Int64


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """The overhead on the host; None if the agent could not measure it."""

    cpu_seconds: float | None = None
    peak_memory_bytes: Int64 | None = None
    sent_bytes: Int64 | None = None
    stuck_children: Int64 | None = None


class ReadingStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one source was read: status, time it took on the host, and why there is no fact, if so.

    `declined` means that a program ran and reported an error: it has nothing to show on this host. Documents of version
    0.1 lack it, so that a failed program in them may as well have had output that could not be parsed.
    """

    status: str
    seconds: float
    note: str = ""
    declined: bool = False


class HostResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One requested host: its status and reason, and its facts by source name."""

    name: str
    status: HostStatus
    reason: str = ""
    method: str = ""
    agent: str = ""
    user: str | None = None
    slots: Int64 | None = None
    hostname: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    uid: Int64 | None = None
    collected_at: str = ""
    seconds: float = 0.0
    attempts: list[str] = []
    lost_frames: Int64 = 0
    clock: Clock | None = None
    cost: Cost | None = None
    readings: dict[str, ReadingStatus] = {}
    facts: dict[str, Any] = {}

    @property
    def gave_data(self) -> bool:
        """Whether the host returned data; others are excluded from sums and minimums."""
        return self.status in GAVE_DATA

    def fact(self, kind: type[R]) -> R | None:
        """The fact of that type, None if the host did not return it."""
        return next((value for value in self.facts.values() if isinstance(value, kind)), None)

    def rows(self, row: type[R]) -> list[R]:
        """The rows of that type, empty if the host returned none."""
        for value in self.facts.values():
            if isinstance(value, list) and value and isinstance(value[0], row):
                return value
        return []

    def convert_facts(self) -> HostResult:
        """Convert facts read from JSON to their types, in place; facts of unknown sources stay plain."""
        self.facts = {
            name: msgspec.convert(value, source.produces) if (source := catalogue.find(name)) else value
            for name, value in self.facts.items()
        }
        return self


class HasStatus(Protocol):
    """The result of a host, whatever was done there."""

    name: str
    status: HostStatus
    reason: str


class Coverage(msgspec.Struct, frozen=True):
    """How many hosts were requested, and how many have each status; every host is in exactly one count."""

    requested: Int64
    by_status: dict[str, Int64]

    @classmethod
    def of(cls, hosts: Sequence[HasStatus]) -> Coverage:
        """Count statuses."""
        return cls(len(hosts), dict(Counter(host.status for host in hosts)))

    @property
    def complete(self) -> bool:
        """Whether every host is complete."""
        return self.by_status.get("complete", 0) == self.requested

    @property
    def exit_code(self) -> int:
        """0 all complete, 3 some hosts failed or are partial, 4 no host returned data."""
        if self.complete:
            return ExitCode.SUCCESS
        reached = any(self.by_status.get(status) for status in GAVE_DATA)
        return ExitCode.INCOMPLETE if reached else ExitCode.NO_HOST
