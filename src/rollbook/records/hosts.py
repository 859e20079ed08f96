"""What is known of each host asked for: status, reason, how its data came, its clock, its facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from rollbook.errors import HostStatus
from rollbook.sources import catalogue

__all__ = ["GAVE_DATA", "Clock", "Cost", "Coverage", "HostResult", "HostStatus", "ReadingStatus"]

GAVE_DATA: tuple[HostStatus, ...] = ("complete", "partial")

R = TypeVar("R")


class Clock(msgspec.Struct, frozen=True):
    """The host's wall clock: add `offset_ns` to get the collector's; the error is at most `bound_ns`."""

    offset_ns: int
    bound_ns: int
    round_trip_ns: int


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What looking at the host cost there; None where the agent could not tell."""

    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    sent_bytes: int | None = None
    stuck_children: int | None = None


class ReadingStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one source was read: its status, how long it took on the host, and why there is no fact if there is none."""

    status: str
    seconds: float
    note: str = ""


class HostResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One host asked for, with its own status and, where it gave any, its facts by source name."""

    name: str
    status: HostStatus
    reason: str = ""
    method: str = ""
    agent: str = ""
    user: str | None = None
    slots: int | None = None
    hostname: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    uid: int | None = None
    collected_at: str = ""
    seconds: float = 0.0
    attempts: list[str] = []
    lost_frames: int = 0
    clock: Clock | None = None
    cost: Cost | None = None
    readings: dict[str, ReadingStatus] = {}
    facts: dict[str, Any] = {}

    @property
    def gave_data(self) -> bool:
        """Whether its values count; hosts that gave nothing are left out of sums and minimums."""
        return self.status in GAVE_DATA

    def fact(self, record: type[R]) -> R | None:
        """The fact of that type, if the host gave it."""
        return next((value for value in self.facts.values() if isinstance(value, record)), None)

    def rows(self, row: type[R]) -> list[R]:
        """The rows of the source that is a table of that type; empty if the host gave none."""
        for value in self.facts.values():
            if isinstance(value, list) and value and isinstance(value[0], row):
                return value
        return []

    def typed(self) -> HostResult:
        """The same record with facts, as read from JSON, turned back into their types; unknown ones stay plain."""
        self.facts = {
            name: msgspec.convert(value, source.produces) if (source := catalogue.find(name)) else value
            for name, value in self.facts.items()
        }
        return self


class Coverage(msgspec.Struct, frozen=True):
    """How many hosts were asked for, and what became of them; every host is in exactly one of the counts."""

    asked: int
    by_status: dict[str, int]

    @classmethod
    def of(cls, hosts: Sequence[HostResult]) -> Coverage:
        """Count statuses."""
        return cls(len(hosts), dict(Counter(host.status for host in hosts)))

    @property
    def complete(self) -> bool:
        """Whether every host gave everything."""
        return self.by_status.get("complete", 0) == self.asked

    @property
    def exit_code(self) -> int:
        """0 all complete, 3 some hosts failed or are partial, 4 no host gave anything."""
        if self.complete:
            return 0
        return 3 if any(self.by_status.get(status) for status in GAVE_DATA) else 4
