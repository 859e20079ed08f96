"""A run as it is read back: what every host was at the start and at the end, and how its series went.

`hosts.json` of a record holds a `RecordHosts`; it is all that checks, diff and the page need besides `series/`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import RecordError
from rollbook.records.document import read, written_by
from rollbook.records.hosts import Clock, Cost, Coverage, HostResult, HostStatus
from rollbook.records.locate import no_record

__all__ = ["ClockJump", "ClockPoint", "Gap", "Phase", "Record", "RecordHosts", "SeriesHost"]


class Phase(msgspec.Struct, frozen=True):
    """A named stretch of the run, in nanoseconds of the collector's clock."""

    name: str
    start_ns: int
    end_ns: int


class Gap(msgspec.Struct, frozen=True):
    """A stretch without samples of a host, and why: `connection lost`, `rebooted`, `thinned out`, …."""

    start_ns: int
    end_ns: int
    why: str


class ClockPoint(msgspec.Struct, frozen=True):
    """One measurement of a host's clock, at `at_ns` of the collector's."""

    at_ns: int
    clock: Clock


class ClockJump(msgspec.Struct, frozen=True):
    """A host's wall clock went `by_ns` further than its monotonic clock; noticed at `at_ns` of the collector's."""

    at_ns: int
    by_ns: int


class SeriesHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How the series of one host went. Times are on the collector's clock.

    `clocks` are measurements of its clock; of a run of many hours, those that are known best. `clock_steps` are the
    moments at which somebody set the host's clock, `suspends` those at which the host came back from a sleep that was
    so long; samples are at their true times all the same.
    """

    name: str
    status: HostStatus
    reason: str = ""
    method: str = ""
    samples: int = 0
    late: int = 0
    missed: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    boot_ids: list[str] = []
    gaps: list[Gap] = []
    clocks: list[ClockPoint] = []
    clock_steps: list[ClockJump] = []
    suspends: list[ClockJump] = []
    cost: Cost | None = None
    cpu_share: float | None = None


class RecordHosts(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.run/1"):
    """Everything known of the hosts of a run; a record that is only a snapshot has no end and no series.

    `merged` is the number of beats in one kept sample, more than one where a limit made the step coarser.
    """

    rollbook: str = msgspec.field(default_factory=written_by)
    started_ns: int
    ended_ns: int
    interval_seconds: float | None = None
    merged: int = 1
    start: list[HostResult] = []
    end: list[HostResult] = []
    series: list[SeriesHost] = []
    phases: list[Phase] = []

    @property
    def hosts(self) -> list[HostResult]:
        """Start and end records."""
        return self.start + self.end

    @property
    def without_python(self) -> list[str]:
        """The hosts that the stand-in looked at, which samples in whole seconds."""
        return list(dict.fromkeys(host.name for host in self.hosts if host.agent == "sh"))

    @property
    def outcome(self) -> list[HostResult]:
        """Each host as it was at the start; one that was whole then and not afterwards is partial, and says why."""
        later = {host.name: f"at the end: {host.reason}" for host in self.end if host.status != "complete"}
        later |= {host.name: host.reason for host in self.series if host.status != "complete"}
        return [
            msgspec.structs.replace(host, status="partial", reason=later[host.name])
            if host.status == "complete" and host.name in later
            else host
            for host in self.start
        ]

    @property
    def coverage(self) -> Coverage:
        """What became of the hosts asked for."""
        return Coverage.of(self.outcome)


class Record:
    """A record on disk, opened for reading."""

    def __init__(self, path: Path, metadata: dict[str, Any], hosts: RecordHosts) -> None:
        self.path, self.metadata, self.hosts = path, metadata, hosts

    @classmethod
    def open(cls, path: Path) -> Record:
        """Open a record directory; raises `RecordError` that says what is missing or unreadable."""
        found = sorted(path.glob("*_metadata.json"))
        if not found:
            raise no_record(path)
        if len(found) > 1:
            raise RecordError(f"{path} is not a record: it has {len(found)} files named *_metadata.json, not one")
        try:
            metadata = json.loads(found[0].read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{found[0]}: {error}") from error
        if not isinstance(metadata, dict):
            raise RecordError(f"{found[0]} is not a JSON object")
        return cls(path, metadata, read(path / "hosts.json", RecordHosts))

    @property
    def coverage(self) -> Coverage:
        """What became of the hosts asked for."""
        return self.hosts.coverage

    def series_files(self) -> dict[str, Path]:
        """The tables of the series, by source name."""
        return {path.stem: path for path in sorted((self.path / "series").glob("*.parquet"))}
