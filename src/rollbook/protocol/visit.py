"""What one visit to a host gave, and the record that follows from it."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from rollbook.errors import HostStatus
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import Reading, parsed
from rollbook.records.hosts import Clock, Cost, HostResult, ReadingStatus
from rollbook.sources.base import Source

__all__ = ["PHASES", "Phase", "Visit", "cost_of", "said", "whole"]

Phase = Literal["now", "start", "end"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""When all of a plan is read: by a snapshot, at the start and at the end of a recording."""
DEFECTS = ("timed-out", "truncated", "failed")  # of a reading: what was asked for is not there as it should be


@dataclasses.dataclass
class Visit:
    """What was heard from the agent on one host: the same whether it came just now or is read from a journal.

    `hello` and `goodbye` are what the agent said of itself, empty where it did not; `lost` counts missing frames.
    """

    host: Host
    plan: Plan
    method: str = ""
    hello: dict[str, str] = dataclasses.field(default_factory=dict)
    goodbye: dict[str, str] = dataclasses.field(default_factory=dict)
    readings: list[Reading] = dataclasses.field(default_factory=list)
    clock: Clock | None = None
    lost: int = 0
    _kept: set[tuple[Source, str]] = dataclasses.field(default_factory=set)

    def keep(self, reading: Reading) -> bool:
        """Add a reading that was asked for; a host that repeats itself must not fill our memory."""
        wanted = reading.phase in PHASES and (reading.source, reading.phase) not in self._kept
        if wanted:
            self._kept.add((reading.source, reading.phase))
            self.readings.append(reading)
        return wanted

    def record(self, phase: Phase, status: HostStatus = "complete", reason: str = "") -> HostResult:
        """The host's record of one phase. A visit that went well so far may still turn out partial."""
        hello = self.hello
        record = HostResult(name=self.host.name, status=status, user=self.host.user, slots=self.host.slots)
        if hello:
            record.method = self.method
            record.agent = f"python {hello.get('python', '')}" if hello.get("kind") == "python" else "sh"
            record.hostname = hello.get("hostname") or None
            record.machine_id = hello.get("machine_id") or None
            record.boot_id = hello.get("boot_id") or None
            record.uid = whole(hello.get("uid"))
        record.clock, record.lost_frames = self.clock, self.lost
        record.cost = cost_of(self.goodbye) if self.goodbye else None
        readings = [reading for reading in self.readings if reading.phase == phase]
        defects = [defect for reading in readings if (defect := _add(record, reading))]
        record.status, record.reason = _verdict(record, status, reason, defects, len(self.plan.sources))
        return record


def said(payload: bytes) -> dict[str, str]:
    """What an agent said of itself in `name=value` lines; values are cut at a length no honest agent reaches."""
    lines = payload[:8192].decode("utf-8", "backslashreplace").splitlines()
    return {name: value[:256] for name, _, value in (line.partition("=") for line in lines) if name}


def cost_of(goodbye: dict[str, str]) -> Cost:
    """What the agent said it cost."""
    peak, cpu = whole(goodbye.get("peak_kib")), goodbye.get("cpu", "")
    return Cost(
        float(cpu) if cpu.replace(".", "", 1).isdecimal() and len(cpu) < 19 else None,
        peak * 1024 if peak is not None else None,
        whole(goodbye.get("sent")),
        whole(goodbye.get("stuck")),
    )


def _add(record: HostResult, reading: Reading) -> str | None:
    """Put a reading's fact and status into the record; gives the defect if it is not as it should be."""
    fact, why = parsed(reading)
    name, status = reading.source.name, reading.status
    # A program of the host that ran and said no, such as one whose service is off, has given its answer.
    declined = status == "failed" and reading.source.runs_program
    if fact is not None:
        record.facts[name] = fact
    elif status == "ok":
        status = "failed"
    record.readings[name] = ReadingStatus(status, round(reading.seconds, 6), why or reading.note)
    return f"{name} {status}" if status in DEFECTS and not declined else None


def _verdict(record: HostResult, status: HostStatus, reason: str, bad: list[str], asked: int) -> tuple[HostStatus, str]:
    """The host's status in the end: partial where some, but not all, of what was asked is there."""
    missing = asked - len(record.readings)
    if status != "complete":
        count = f"; {missing} of {asked} sources missing" if missing else ""
        return ("partial", f"{reason}{count}") if record.facts else (status, reason)
    if not bad and not missing:
        return "complete", ""
    named = ", ".join([*bad[:5], *(["…"] if len(bad) > 5 else []), *(["the rest lost on the way"] if missing else [])])
    return "partial", f"{len(bad) + missing} of {asked} sources missing: {named}"


def whole(text: str | None) -> int | None:
    """The number that an agent said, None where it is none that an honest one says."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else None
