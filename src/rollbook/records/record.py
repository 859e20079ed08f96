"""A record as it is read: the facts of every host at start and end, and the state of its series.

`hosts.json` of a record holds a `RecordHosts`; checks, diff and the page need nothing else besides `series/`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import RecordError
from rollbook.records.document import current_version, read
from rollbook.records.hosts import Clock, Cost, Coverage, HostResult, HostStatus
from rollbook.records.locate import not_a_record
from rollbook.records.reading import read_regular, require_directory, require_regular

__all__ = ["ClockJump", "ClockPoint", "Gap", "Phase", "Record", "RecordHosts", "SeriesHost"]


class Phase(msgspec.Struct, frozen=True):
    """A named part of the run, in nanoseconds of the collector's clock."""

    name: str
    start_ns: int
    end_ns: int


class Gap(msgspec.Struct, frozen=True):
    """A time without samples of a host, and why: `connection lost`, `rebooted`, `thinned out`, …."""

    start_ns: int
    end_ns: int
    why: str


class ClockPoint(msgspec.Struct, frozen=True):
    """One measurement of a host's clock, at `at_ns` of the collector's."""

    at_ns: int
    clock: Clock


class ClockJump(msgspec.Struct, frozen=True):
    """A host's wall clock advanced `by_ns` more than its monotonic clock; detected at `at_ns` of the collector's."""

    at_ns: int
    by_ns: int


class SeriesHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The series of one host. Times are on the collector's clock.

    `clocks` are measurements of the host's clock; of a long run, the most exact ones. `clock_steps` are the times at
    which the host's clock was set, `suspends` those at which the host resumed, each with its length; sample times are
    corrected for both.
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
    """The hosts of a run; a record of a single snapshot has no end and no series.

    `merged` is the number of beats in one stored sample, more than one if the sample limit merged neighbours.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
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
        """The results of start and end."""
        return self.start + self.end

    @property
    def without_python(self) -> list[str]:
        """The hosts read by the shell stand-in, which samples in whole seconds."""
        return list(dict.fromkeys(host.name for host in self.hosts if host.agent == "sh"))

    @property
    def outcome(self) -> list[HostResult]:
        """Each host as it was at the start; a complete host that was not complete later is partial, with the reason."""
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
        """How many hosts were requested, and how many have each status."""
        return Coverage.of(self.outcome)


class Record:
    """A record on disk, opened for reading."""

    def __init__(self, path: Path, metadata: dict[str, Any], hosts: RecordHosts) -> None:
        self.path, self.metadata, self.hosts = path, metadata, hosts

    @classmethod
    def open(cls, path: Path) -> Record:
        """Open a record directory; the `RecordError` names what is missing or unreadable."""
        found = sorted(path.glob("*_metadata.json"))
        if not found:
            raise not_a_record(path)
        if len(found) > 1:
            raise RecordError(f"{path} is not a record: it has {len(found)} files named *_metadata.json, not one")
        try:
            metadata = json.loads(read_regular(found[0]))
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{found[0]}: {error}") from error
        if not isinstance(metadata, dict):
            raise RecordError(f"{found[0]} is not a JSON object")
        return cls(path, metadata, read(path / "hosts.json", RecordHosts))

    @property
    def coverage(self) -> Coverage:
        """How many hosts were requested, and how many have each status."""
        return self.hosts.coverage

    def series_files(self) -> dict[str, Path]:
        """The tables of the series, by source name; raises `RecordError` for one that is not a regular file."""
        require_directory(self.path / "series")
        found = {path.stem: path for path in sorted((self.path / "series").glob("*.parquet"))}
        for path in found.values():
            require_regular(path)
        return found
