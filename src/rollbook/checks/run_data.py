"""The input of rules: hosts at start and end of a run, its series and metadata; or live hosts."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from rollbook.checks.expect import Expectation
from rollbook.checks.groups import Group, distinct_machines, form_groups
from rollbook.checks.mlperf_round import Round
from rollbook.checks.rule import Rule
from rollbook.checks.times import span
from rollbook.checks.views import status_of
from rollbook.errors import RecordError, RollbookError
from rollbook.hosts import fold
from rollbook.records.document import Snapshot, read
from rollbook.records.hosts import Clock, HostResult
from rollbook.records.locate import result_directory
from rollbook.records.reading import read_regular
from rollbook.records.record import Record, RecordHosts, SeriesHost
from rollbook.sources import catalogue
from rollbook.sources.base import Facts
from rollbook.sql.grids import Tables, open_tables

if TYPE_CHECKING:
    from rollbook.checks.mlperf_runs import ModelRuns

__all__ = [
    "BENCHMARKS",
    "MINIMUM_HOST_MEMORY_GB",
    "Baseline",
    "Benchmark",
    "Description",
    "EndFacts",
    "HostData",
    "Presence",
    "RunData",
    "Samples",
    "SeveralRuns",
    "open_run_data",
    "read_object",
]

Presence = Literal["present", "absent", "unknown"]
# MLPerf Storage has such a constant without a published value; this one only rejects hosts that were misread.
MINIMUM_HOST_MEMORY_GB = 1.0
BENCHMARKS = ("training", "checkpointing", "vector_database", "kv_cache")
R = TypeVar("R")


class HostData:
    """Needed input: a host that returned data at the start."""


class Samples:
    """Needed input: samples of a host."""


class EndFacts:
    """Needed input: facts read at the end of a run."""


class Benchmark:
    """Needed input: the record of an MLPerf Storage benchmark."""


class Baseline:
    """Needed input: a baseline record."""


class Description:
    """Needed input: the description of the system under test."""


class SeveralRuns:
    """Needed input: all runs of one model in a results directory of MLPerf Storage."""


class SourceState(NamedTuple):
    """How many hosts have facts of a source, and on which hosts it was not read."""

    present: int
    unread: list[str]


class RunData:
    """The data of one run or one snapshot, as rules read it. It does not change after construction."""

    def __init__(
        self,
        hosts: RecordHosts,
        *,
        metadata: Mapping[str, Any] | None = None,
        path: Path | None = None,
        named: Mapping[str, Sequence[str]] | None = None,
        baseline: RunData | None = None,
        expectations: Sequence[Expectation] = (),
        description: Mapping[str, Any] | None = None,
        minimum_memory_gb: float = MINIMUM_HOST_MEMORY_GB,
        mlperf_round: Round | None = None,
        tables: Tables | None = None,
        runs: ModelRuns | None = None,
    ) -> None:
        self.hosts = hosts
        self.start, self.end, self.series = hosts.start, hosts.end, hosts.series
        self.interval, self.clock_steps = hosts.interval_seconds, hosts.clock_steps
        self.started_ns, self.ended_ns = hosts.started_ns, hosts.ended_ns
        self.metadata = metadata or {}
        self.path = path
        self.baseline, self.expectations, self.description = baseline, expectations, description
        self.minimum_memory_gb = minimum_memory_gb
        self.mlperf_round = mlperf_round
        self.more_rules: Sequence[Rule] = ()
        """Rules that read only this kind of data, such as those of issue reports."""
        self.skipped_rules: frozenset[str] = frozenset()
        """Rules that mean nothing for this kind of data."""
        self.runs = runs
        self._named, self._tables = named or {}, tables
        self._states: dict[str, SourceState] = {}

    @functools.cached_property
    def groups(self) -> list[Group]:
        """Groups of hosts that are compared with each other."""
        return form_groups(self.start, self._named)

    @functools.cached_property
    def hosts_with_data(self) -> list[HostResult]:
        """The hosts that returned data at the start."""
        return [host for host in self.start if host.gave_data]

    @functools.cached_property
    def machines(self) -> list[HostResult]:
        """The hosts that returned data at the start, without further names of the same machine."""
        return distinct_machines(self.hosts_with_data)

    @property
    def result_directory(self) -> Path | None:
        """The directory of the benchmark's own files: that of the record, or the one around it."""
        return result_directory(self.path) if self.path else None

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """DLIO's summary of the run; empty if it is missing or unreadable.

        It lies in the record, in the result directory around it, or is stored in the metadata.
        """
        directory = self.result_directory
        found = read_object(directory / "summary.json") if directory else None
        stored = self.metadata.get("dlio_summary")
        return found or (stored if isinstance(stored, dict) else {})

    @contextlib.contextmanager
    def open_tables(self) -> Iterator[Tables | None]:
        """The tables of the series; None without series. Tables that were given are not closed."""
        if self._tables is not None or self.path is None:
            yield self._tables
            return
        with open_tables(Record(self.path, dict(self.metadata), self.hosts), charts=False) as tables:
            yield tables

    def unmatched_group_hosts(self) -> list[str]:
        """One line per named group with hosts that are not in the run."""
        present = {host.name for host in self.start}
        missing = {group: [name for name in names if name not in present] for group, names in self._named.items()}
        return [f"group {group}: not in the run: {fold(names)}" for group, names in missing.items() if names]

    def at_start(self) -> dict[str, int]:
        """The start time of the run as evidence; empty for a snapshot."""
        return span(self.started_ns, self.started_ns) if self.ended_ns else {}

    def each(self, kind: type[R]) -> Iterator[tuple[HostResult, R]]:
        """Each host with its facts of that type at the start; for a table, once per row."""
        name = _source_of(kind)
        for host in self.hosts_with_data:
            fact = host.facts.get(name)
            for one in fact if isinstance(fact, list) else [fact]:
                if isinstance(one, kind):
                    yield host, one

    def pairs(self) -> Iterator[tuple[HostResult, HostResult]]:
        """Start and end of each host that returned data at both."""
        after = {host.name: host for host in self.end if host.gave_data}
        for host in self.hosts_with_data:
            if host.name in after:
                yield host, after[host.name]

    def presence(self, need: type) -> tuple[Presence, str]:
        """Whether an input that a rule needs is available, and if not, the reason."""
        if issubclass(need, Facts):
            return self._fact_presence(_source_of(need))
        clocks = any(host.clock for host in self.hosts_with_data) or any(host.clocks for host in self.series)
        others: dict[type, tuple[bool, Presence, str]] = {
            HostData: (bool(self.hosts_with_data), "unknown", "no host returned data"),
            Samples: (any(host.samples for host in self.series), "unknown", "there are no samples"),
            Clock: (clocks, "unknown", "no clock offset was measured"),
            EndFacts: (bool(self.end), "absent", "the record has no end facts"),
            SeriesHost: (bool(self.series), "absent", "the record has no series"),
            Benchmark: (
                self.metadata.get("benchmark_type") in BENCHMARKS,
                "absent",
                "not an MLPerf Storage benchmark",
            ),
            Baseline: (self.baseline is not None, "absent", "no baseline was given"),
            Expectation: (bool(self.expectations), "absent", "no expectations were given"),
            SeveralRuns: (self.runs is not None, "absent", "not a results directory of several runs"),
            Description: (self.description is not None, "absent", "no description of the system was given"),
        }
        is_present, otherwise, why = others[need]
        return ("present", "") if is_present else (otherwise, why)

    def describe_unread(self, needs: Iterable[type]) -> str:
        """Which of these facts were not read on which hosts; empty if all were read."""
        sources = [_source_of(need) for need in needs if issubclass(need, Facts)]
        unread = {source: self.state(source).unread for source in sources}
        return "; ".join(f"{source} not read on {fold(hosts)}" for source, hosts in unread.items() if hosts)

    def _fact_presence(self, source: str) -> tuple[Presence, str]:
        state = self.state(source)
        if state.present:
            return "present", ""
        if state.unread or not self.hosts_with_data:
            return "unknown", f"{source} was not read"
        return "absent", f"no host has {source}"

    def state(self, source: str) -> SourceState:
        """How many hosts have facts of the source at the start, and on which hosts it was not read."""
        if source not in self._states:
            unread = [host.name for host in self.hosts_with_data if status_of(host, source) == "unknown"]
            # An empty table means that the host has no such device.
            present = sum(host.facts.get(source) not in (None, []) for host in self.hosts_with_data)
            self._states[source] = SourceState(present, unread)
        return self._states[source]


@functools.cache
def _built_in_types() -> dict[type, str]:
    return {catalogue.source(name).row_type: name for name in catalogue.NAMES}


def _source_of(facts: type) -> str:
    """The name of the source that gives facts of this type; raises `RollbookError` if there is none."""
    if facts in _built_in_types():
        return _built_in_types()[facts]
    found = next((name for name in catalogue.plugins() if catalogue.source(name).row_type is facts), None)
    if found is None:
        raise RollbookError(f"no source gives {facts.__qualname__}, which a rule needs")
    return found


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of a benchmark; None if the file is missing, unreadable or something else."""
    try:
        found = json.loads(read_regular(path))
    except (RecordError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def open_run_data(path: Path, **options: Any) -> RunData:
    """Read a record directory or a snapshot file; raises `RecordError` if it is missing or invalid."""
    if path.is_dir():
        run = Record.open(path)
        return RunData(run.hosts, metadata=run.metadata, path=path, **options)
    if not path.exists():
        raise RecordError(f"{path} does not exist")
    try:
        snapshot = read(path, Snapshot)
    except RecordError as error:
        if isinstance(error.__cause__, OSError):  # it could not be read
            raise
        raise RecordError(f"{error}; expected a record directory or a snapshot file") from error
    return RunData(RecordHosts(started_ns=0, ended_ns=0, start=snapshot.hosts), **options)
