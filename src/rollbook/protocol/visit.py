"""Everything received from the agent of one host, and the host's result."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from rollbook.errors import HostStatus
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import Reading, parse_facts
from rollbook.records.hosts import Clock, Cost, HostResult, ReadingStatus
from rollbook.sources.base import Source

__all__ = ["PHASES", "Phase", "Visit", "agent_name", "cost_of", "parse_fields", "to_int"]

Phase = Literal["now", "start", "end"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The occasions on which the whole plan is read: a snapshot, the start and the end of a recording."""
DEFECTS = ("timed-out", "truncated", "failed")  # statuses of a reading that make a host partial


@dataclasses.dataclass
class Visit:
    """What the agent on one host sent, received live or read from a journal.

    `hello` and `goodbye` are the fields of those frames, empty if they were not received; `lost` counts missing frames.
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
        """Add a reading that was requested. Returns False for repeated and unrequested ones, which are not kept."""
        wanted = reading.phase in PHASES and (reading.source, reading.phase) not in self._kept
        if wanted:
            self._kept.add((reading.source, reading.phase))
            self.readings.append(reading)
        return wanted

    def result(self, phase: Phase, status: HostStatus = "complete", reason: str = "") -> HostResult:
        """The host's result for one phase. A complete visit becomes partial if readings are missing or failed."""
        hello = self.hello
        result = HostResult(name=self.host.name, status=status, user=self.host.user, slots=self.host.slots)
        if hello:
            result.method = self.method
            result.agent = agent_name(hello)
            result.hostname = hello.get("hostname") or None
            result.machine_id = hello.get("machine_id") or None
            result.boot_id = hello.get("boot_id") or None
            result.uid = to_int(hello.get("uid"))
        result.clock, result.lost_frames = self.clock, self.lost
        result.cost = cost_of(self.goodbye) if self.goodbye else None
        readings = [reading for reading in self.readings if reading.phase == phase]
        defects = [defect for reading in readings if (defect := _add(result, reading))]
        result.status, result.reason = _verdict(result, status, reason, defects, len(self.plan.sources))
        return result


def parse_fields(payload: bytes) -> dict[str, str]:
    """The `name=value` lines of a hello or end frame; long values are truncated."""
    lines = payload[:8192].decode("utf-8", "backslashreplace").splitlines()
    return {name: value[:256] for name, _, value in (line.partition("=") for line in lines) if name}


def agent_name(hello: dict[str, str]) -> str:
    """The program that sent the hello: `python 3.11.2`, or `sh` for the shell stand-in."""
    return f"python {hello.get('python', '')}" if hello.get("kind") == "python" else "sh"


def cost_of(goodbye: dict[str, str]) -> Cost:
    """The cost of the agent as reported in its end frame."""
    peak, cpu = to_int(goodbye.get("peak_kib")), goodbye.get("cpu", "")
    return Cost(
        float(cpu) if cpu.replace(".", "", 1).isdecimal() and len(cpu) < 19 else None,
        peak * 1024 if peak is not None else None,
        to_int(goodbye.get("sent")),
        to_int(goodbye.get("stuck")),
    )


def _add(result: HostResult, reading: Reading) -> str | None:
    """Add a reading's facts and status to the result; returns a description if it is defective."""
    facts, why = parse_facts(reading)
    name, status = reading.source.name, reading.status
    # A program that ran and reported an error, for example because its service is off, has given its answer.
    declined = status == "failed" and reading.source.runs_program and not reading.starved
    if facts is not None:
        result.facts[name] = facts
    elif status == "ok":
        status = "failed"
    result.readings[name] = ReadingStatus(status, round(reading.seconds, 6), why or reading.note, declined)
    return f"{name} {status}" if status in DEFECTS and not declined else None


def _verdict(
    result: HostResult, status: HostStatus, reason: str, defects: list[str], sources: int
) -> tuple[HostStatus, str]:
    """The host's final status and reason: partial if some, but not all, sources were read."""
    missing = sources - len(result.readings)
    if status != "complete":
        count = f"; {missing} of {sources} sources missing" if missing else ""
        return ("partial", f"{reason}{count}") if result.facts else (status, reason)
    if not defects and not missing:
        return "complete", ""
    lost = ["the rest were lost in transit"] if missing else []
    details = ", ".join([*defects[:5], *(["…"] if len(defects) > 5 else []), *lost])
    return "partial", f"{len(defects) + missing} of {sources} sources missing: {details}"


def to_int(text: str | None) -> int | None:
    """A non-negative number of at most 18 digits, otherwise None."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else None
