"""A record as it is read: the facts of every host at start and end, and the state of its series.

`hosts.json` of a record holds a `RecordHosts`; checks, diff and the page need nothing else besides `series/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rollbook.errors import RecordError
from rollbook.records.document import current_version, read
from rollbook.records.hosts import Clock, Cost, Coverage, HostResult, HostStatus, Int64
from rollbook.records.locate import metadata_files, not_a_record, repair_hint
from rollbook.records.phase_statistics import PhaseStatistics
from rollbook.records.reading import UNDECODABLE, read_regular, require_directory, require_regular

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

__all__ = [
    "ClockJump",
    "ClockPoint",
    "Gap",
    "Loss",
    "LossKind",
    "Phase",
    "Record",
    "RecordHosts",
    "SeriesHost",
    "SourceLoss",
]

LossKind = Literal[
    "missed",
    "lost",
    "undecodable",
    "rejected",
    "truncated",
    "timed-out",
    "denied",
    "failed",
    "skipped",
    "excess",
]
"""Why samples of a source have no rows, or not all of their rows:

`missed` the host took no sample at that beat, or was not connected; `lost` the frame did not reach the journal or is
damaged there; `undecodable` the frame is there, but needs one that was lost; `rejected` the parser does not accept the
text; `truncated`, `timed-out`, `denied` and `failed` as the host reported; `skipped` the host sampled other sources,
but not this one; `excess` the host sent more text or more names than a host may.
"""

MISSED_SHARE, FEW_MISSED = 0.05, 2  # of the beats, and beats, that a busy host may miss


class Phase(msgspec.Struct, frozen=True):
    """A named part of the run, in nanoseconds of the collector's clock."""

    name: str
    start_ns: Int64
    end_ns: Int64


class Gap(msgspec.Struct, frozen=True):
    """A time without samples of a host or source, and why: `connection lost`, `rebooted`, `undecodable`, …."""

    start_ns: Int64
    end_ns: Int64
    why: str


class Loss(msgspec.Struct, frozen=True, omit_defaults=True):
    """Samples of a source that were lost for one reason, with the times of the first and the last.

    Of `samples`, `partly` are stored without some of their rows or values; nothing is stored of the others.
    """

    kind: LossKind
    samples: Int64
    first_ns: Int64
    last_ns: Int64
    partly: Int64 = 0


class SourceLoss(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The samples of one source of one host: how many were due, how many are stored, and what became of the others.

    A source is due while the host has it, at its own interval; `due` is `stored` plus all samples that were lost
    entirely. `rows` are the rows in its table. `gaps` are the longest times without samples; the beats that the host
    missed for all sources are only counted. `delay_ns` is the longest time from the time stamp of a sample, the start
    of its beat, to the end of its reading: on a busy host, values may be this much younger than their time stamp.
    """

    source: str
    due: Int64
    stored: Int64
    rows: Int64 = 0
    delay_ns: Int64 = 0
    losses: list[Loss] = []
    gaps: list[Gap] = []

    def affected(self) -> int:
        """The samples that are lost or incomplete, without beats that the host missed for all its sources."""
        return sum(loss.samples for loss in self.losses if loss.kind != "missed")

    def share(self) -> float:
        """The part of the samples that are due which is affected."""
        return self.affected() / max(1, self.due)

    def text(self, *, share: bool = False) -> str:
        """`diskstats: 12 of 600 samples lost (timed-out)`, or with the share `(2.0 %, timed-out)`."""
        losses = [loss for loss in self.losses if loss.kind != "missed"]
        state = "lost" if any(loss.samples > loss.partly for loss in losses) else "incomplete"
        kinds = [f"{100 * self.share():.1f} %"] * share + [loss.kind for loss in losses]
        return f"{self.source}: {self.affected()} of {self.due} samples {state} ({', '.join(kinds)})"


class ClockPoint(msgspec.Struct, frozen=True):
    """One measurement of a host's clock, at `at_ns` of the collector's clock."""

    at_ns: Int64
    clock: Clock


class ClockJump(msgspec.Struct, frozen=True):
    """A wall clock moved `by_ns` further than its monotonic clock; noticed at `at_ns` of the collector's clock."""

    at_ns: Int64
    by_ns: Int64


class SeriesHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The status of the series of one host. Times are on the collector's clock.

    `clocks` are measurements of its clock; of a long run, the most precise ones. `clock_steps` are the times at which
    the host's clock was set, `suspends` those at which the host resumed, with the time it was suspended. Neither moves
    samples from their true times. `sources` has the losses of each sampled source.
    """

    name: str
    status: HostStatus
    reason: str = ""
    method: str = ""
    samples: Int64 = 0
    late: Int64 = 0
    missed: Int64 = 0
    first_ns: Int64 | None = None
    last_ns: Int64 | None = None
    boot_ids: list[str] = []
    gaps: list[Gap] = []
    clocks: list[ClockPoint] = []
    clock_steps: list[ClockJump] = []
    suspends: list[ClockJump] = []
    sources: list[SourceLoss] = []
    cost: Cost | None = None
    cpu_share: float | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether more beats have no sample than a busy host misses now and then."""
        return self.missed > max(FEW_MISSED, MISSED_SHARE * (self.samples + self.missed))


class RecordHosts(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.run/1"):
    """All data about the hosts of a run except the tables; a record that is only a snapshot has no end and no series.

    `interval_seconds` is the time between samples at the end of the run, `first_interval_seconds` that at the start if
    it grew with the run; the tables have the last one throughout. `merged` is the number of beats in one stored sample,
    more than one if a limit on samples applied. `clock_steps` are the times at which the collector's own clock was set;
    all times are on that clock as it ran before.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
    started_ns: Int64
    ended_ns: Int64
    interval_seconds: float | None = None
    first_interval_seconds: float | None = None
    merged: Int64 = 1
    start: list[HostResult] = []
    end: list[HostResult] = []
    series: list[SeriesHost] = []
    clock_steps: list[ClockJump] = []
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
        """Each host as it was at the start; one with data that was not complete later is partial, with all reasons."""
        later: dict[str, list[str]] = {}
        for host in self.series:
            if host.status != "complete":
                later.setdefault(host.name, []).append(host.reason)
        for end in self.end:
            reasons = later.setdefault(end.name, [])
            if end.status != "complete" and not any(end.reason in reason for reason in reasons):
                reasons.append(f"at the end: {end.reason}")
        return [_with_reasons(host, later.get(host.name, [])) for host in self.start]

    @property
    def coverage(self) -> Coverage:
        """How many hosts were requested, and how many have each status."""
        return Coverage.of(self.outcome)

    @property
    def command_phases(self) -> dict[int, Phase]:
        """The phases, by number, that cover the whole command once: without those inside another and without `after`.

        A mark ends the phase before it, so `command` itself is only the time until the first mark. A record without
        phases is one phase called `run`.
        """
        found: dict[int, Phase] = {}
        phases = self.phases or [Phase("run", self.started_ns, self.ended_ns)]
        end_ns = phases[0].start_ns
        for number, phase in enumerate(phases):
            if phase.start_ns >= end_ns and not (phase.name == "after" and number):
                found[number], end_ns = phase, phase.end_ns
        return found


class _OwnMetadata(msgspec.Struct):
    """The keys of metadata that only Rollbook writes, and their types: readers rely on them. Others may be anything."""

    benchmark_type: str = ""
    run_datetime: str = ""
    invocation_start_time: str = ""
    executed_command: str | None = None
    exit_code: Int64 | None = None
    runtime: float | None = None
    command_output_files: list[dict[str, str]] = []
    notes: list[str] = []
    host_names: list[str] = []
    phase_statistics: list[PhaseStatistics] = []


def _with_reasons(host: HostResult, reasons: list[str]) -> HostResult:
    """A host with what happened to it later; a reason that is known from the start is not repeated."""
    found = list(dict.fromkeys(filter(None, [host.reason, *reasons])))
    if not reasons or not host.gave_data:
        return host
    return msgspec.structs.replace(host, status="partial", reason="; ".join(found))


class Record:
    """A record on disk, opened for reading."""

    def __init__(self, path: Path, metadata: dict[str, Any], hosts: RecordHosts) -> None:
        self.path, self.metadata, self.hosts = path, metadata, hosts
        self._without: frozenset[str] = frozenset()

    @classmethod
    def open(cls, path: Path) -> Record:
        """Open a record directory; the `RecordError` names what is missing or unreadable."""
        found = metadata_files(path)
        if not found:
            raise not_a_record(path)
        if len(found) > 1:
            raise RecordError(f"{path} is not a record: it has {len(found)} files named *_metadata.json, not one")
        try:
            metadata = msgspec.json.decode(read_regular(found[0]))
            msgspec.convert(metadata, _OwnMetadata)
            return cls(path, metadata, read(path / "hosts.json", RecordHosts))
        except UNDECODABLE as error:
            raise RecordError(f"{found[0]}: {error}; {repair_hint(path)}") from error
        except RecordError as error:
            raise RecordError(f"{error}; {repair_hint(path)}") from error

    @property
    def coverage(self) -> Coverage:
        """How many hosts were requested, and how many have each status."""
        return self.hosts.coverage

    def series_files(self) -> dict[str, Path]:
        """The tables of the series, by source name; raises `RecordError` for one that is not a regular file."""
        require_directory(self.path / "series")
        files = sorted((self.path / "series").glob("*.parquet"))
        found = {path.stem: path for path in files if path.stem not in self._without}
        for path in found.values():
            require_regular(path)
        return found

    def missing_tables(self) -> set[str]:
        """The tables that have rows according to `hosts.json`, but no file."""
        filled = {source.source for host in self.hosts.series for source in host.sources if source.rows}
        return filled - self.series_files().keys() - self._without

    def sql(self, query: str) -> DuckDBPyRelation:
        """The result of one SELECT over the record as a DuckDB relation: `.df()`, `.pl()`, `.arrow()`, `.fetchall()`.

        The tables are those of `rollbook query`. Raises `UsageError` for SQL that cannot be run. The relation reads
        rows when they are fetched: it raises `duckdb.Error` for a damaged table.
        """
        # One of two imports from higher layers, named in the import contract: a record does not otherwise need SQL.
        from rollbook.sql.connection import relation  # noqa: PLC0415 - DuckDB is slow to import

        return relation(self, query)

    def _repr_html_(self) -> str:
        """The record in a notebook: what was run, its results, and the charts that the page shows first."""
        from rollbook.report.notebook import record_html  # noqa: PLC0415 - only notebooks need the page's charts

        return record_html(self)

    def without_tables(self, names: Iterable[str]) -> Record:
        """The same record without some of its tables."""
        other = Record(self.path, self.metadata, self.hosts)
        other._without = self._without | frozenset(names)
        return other
