"""What rules look at: the hosts of one run at its start and end, its series, its metadata; or live hosts."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from rollbook.checks.expect import Expectation
from rollbook.checks.groups import Group, form
from rollbook.checks.times import span
from rollbook.checks.views import status_of
from rollbook.errors import RecordError, RollbookError
from rollbook.hosts import fold
from rollbook.records.document import Snapshot, read
from rollbook.records.hosts import Clock, HostResult
from rollbook.records.record import Record, RecordHosts, SeriesHost
from rollbook.sources import catalogue
from rollbook.sources.base import Facts

__all__ = [
    "MINIMUM_HOST_MEMORY_GB",
    "Baseline",
    "Benchmark",
    "Description",
    "Ended",
    "Presence",
    "Sampled",
    "States",
    "Subject",
    "Told",
    "open_subject",
]

Presence = Literal["present", "absent", "unknown"]
# MLPerf Storage names such a constant and publishes no value: enough to tell a host that was misread from a small one.
MINIMUM_HOST_MEMORY_GB = 1.0
BENCHMARKS = ("training", "checkpointing", "vector_database", "kv_cache")
R = TypeVar("R")


class Told:
    """A need: a host that gave data at the start."""


class Sampled:
    """A need: a host of which there are samples."""


class Ended:
    """A need: the record of a run that was looked at again at its end."""


class Benchmark:
    """A need: the record of a run of MLPerf Storage's."""


class Baseline:
    """A need: a record that the user gave to compare with."""


class Description:
    """A need: the description of the system under test."""


class States(NamedTuple):
    """How a source was read: how many hosts have something there, and which could not tell."""

    there: int
    unknown: list[str]


class Subject:
    """One run, or one look at hosts, as rules see it. Nothing here changes once it is made."""

    def __init__(
        self,
        hosts: RecordHosts,
        *,
        metadata: Mapping[str, Any] | None = None,
        path: Path | None = None,
        named: Mapping[str, Sequence[str]] | None = None,
        baseline: Subject | None = None,
        expectations: Sequence[Expectation] = (),
        description: Mapping[str, Any] | None = None,
        minimum_memory_gb: float = MINIMUM_HOST_MEMORY_GB,
    ) -> None:
        self.hosts = hosts
        self.start, self.end, self.series = hosts.start, hosts.end, hosts.series
        self.interval = hosts.interval_seconds
        self.started_ns, self.ended_ns = hosts.started_ns, hosts.ended_ns
        self.metadata = metadata or {}
        self.path = path
        self.baseline, self.expectations, self.description = baseline, expectations, description
        self.minimum_memory_gb = minimum_memory_gb
        self._named = named or {}
        self._states: dict[str, States] = {}

    @functools.cached_property
    def groups(self) -> list[Group]:
        """Like hosts together."""
        return form(self.start, self._named)

    @functools.cached_property
    def telling(self) -> list[HostResult]:
        """The hosts that gave data at the start."""
        return [host for host in self.start if host.gave_data]

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """DLIO's summary of the run; empty where there is none that can be read."""
        if self.path is None:
            return {}
        try:
            found = json.loads((self.path / "summary.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def strangers(self) -> list[str]:
        """A line for each named group with hosts that nobody asked."""
        asked = {host.name for host in self.start}
        unasked = {group: [name for name in names if name not in asked] for group, names in self._named.items()}
        return [f"group {group}: not in the run: {fold(names)}" for group, names in unasked.items() if names]

    def at_start(self) -> dict[str, int]:
        """The moment when the run began, as evidence; empty for hosts that were only looked at."""
        return span(self.started_ns, self.started_ns) if self.ended_ns else {}

    def each(self, kind: type[R]) -> Iterator[tuple[HostResult, R]]:
        """Each host with its fact of that type, or with each of its rows of that type, at the start."""
        name = _source_of(kind)
        for host in self.telling:
            fact = host.facts.get(name)
            for one in fact if isinstance(fact, list) else [fact]:
                if isinstance(one, kind):
                    yield host, one

    def pairs(self) -> Iterator[tuple[HostResult, HostResult]]:
        """Each host that gave data at the start and at the end."""
        after = {host.name: host for host in self.end if host.gave_data}
        for host in self.telling:
            if host.name in after:
                yield host, after[host.name]

    def presence(self, need: type) -> tuple[Presence, str]:
        """Whether a rule that needs this can be asked, and why not."""
        if issubclass(need, Facts):
            return self._fact_presence(_source_of(need))
        clocks = any(host.clock for host in self.telling) or any(host.clocks for host in self.series)
        others: dict[type, tuple[bool, Presence, str]] = {
            Told: (bool(self.telling), "unknown", "no host gave data"),
            Sampled: (any(host.samples for host in self.series), "unknown", "there are no samples"),
            Clock: (clocks, "unknown", "no clock was measured"),
            Ended: (bool(self.end), "absent", "the record has no end"),
            SeriesHost: (bool(self.series), "absent", "the record has no series"),
            Benchmark: (
                self.metadata.get("benchmark_type") in BENCHMARKS,
                "absent",
                "not a benchmark of MLPerf Storage",
            ),
            Baseline: (self.baseline is not None, "absent", "no baseline was given"),
            Expectation: (bool(self.expectations), "absent", "no expectations were given"),
            Description: (self.description is not None, "absent", "no description of the system was given"),
        }
        there, otherwise, why = others[need]
        return ("present", "") if there else (otherwise, why)

    def unread(self, needs: Iterable[type]) -> str:
        """Which of the facts a rule needs were not read on which hosts; empty where all were."""
        sources = [_source_of(need) for need in needs if issubclass(need, Facts)]
        silent = {source: self.states(source).unknown for source in sources}
        return "; ".join(f"{source} not read on {fold(hosts)}" for source, hosts in silent.items() if hosts)

    def _fact_presence(self, source: str) -> tuple[Presence, str]:
        states = self.states(source)
        if states.there:
            return "present", ""
        if states.unknown or not self.telling:
            return "unknown", f"{source} was not read"
        return "absent", f"no host has {source}"

    def states(self, source: str) -> States:
        """How many hosts have what the source reads, at the start, and which could not tell."""
        if source not in self._states:
            unknown = [host.name for host in self.telling if status_of(host, source) == "unknown"]
            # A table without rows says that the host has no such thing.
            there = sum(host.facts.get(source) not in (None, []) for host in self.telling)
            self._states[source] = States(there, unknown)
        return self._states[source]


@functools.cache
def _sources_by_record() -> dict[type, str]:
    return {source.row_type: source.name for source in catalogue.load()}


def _source_of(record: type) -> str:
    """The name of the source that gives such records; other packages' are looked at only for one not built in."""
    built_in = _sources_by_record()
    if record in built_in:
        return built_in[record]
    plugged = (name for name in catalogue.plugged() if catalogue.source(name).row_type is record)
    found = next(plugged, None)
    if found is None:
        raise RollbookError(f"a rule needs {record.__qualname__}, which no source gives")
    return found


def open_subject(path: Path, **options: Any) -> Subject:
    """A record's directory, or the one file that `rollbook snapshot -o NAME.json` writes."""
    if path.is_dir():
        run = Record.open(path)
        return Subject(run.hosts, metadata=run.metadata, path=path, **options)
    if not path.exists():
        raise RecordError(f"{path} does not exist")
    snapshot = read(path, Snapshot)
    return Subject(RecordHosts(started_ns=0, ended_ns=0, start=snapshot.hosts), **options)
