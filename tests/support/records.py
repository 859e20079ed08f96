"""Runs as a few lines of data, the format of the cases of rules.

    {"start": {"n[1-3]": {"thp": {"enabled": "madvise"}}, "n3": {"thp": {"enabled": "always"}}}}

A nodeset gives its facts to each of its hosts; later nodesets add or replace sources. Names that begin with `@` are
fields of the host itself: `@status`, `@slots`, `@clock`. Sources that are not given are absent on the host; those under
`unread` were not read. `when` is the time range of the first finding, from 0 at the start of the run; empty if it must
have none. `says` and `advice` are part of the texts of the findings.

`files` are files of the benchmark in the directory of the run, by name.

`tables` are tables of the series: by source and nodeset one row per device, each column as SQL over `s`, the seconds
from the start of the run, one sample a second.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import msgspec
import pytest

from rollbook.checks.expect import Expectation
from rollbook.checks.mlperf_runs import ModelRuns
from rollbook.checks.run_data import RunData
from rollbook.hosts import expand
from rollbook.mlperf import rounds
from rollbook.records.hosts import HostResult
from rollbook.records.record import ClockJump, RecordHosts, SeriesHost
from rollbook.sources import catalogue
from rollbook.sources.base import compare_of

Sets = dict[str, dict[str, Any]]
FEW = (
    *("identity", "version", "os_release", "cpuinfo", "block", "thp"),
    *("meminfo", "loadavg", "stat", "vmstat", "diskstats", "net_dev"),
)
SECONDS = 120  # in the tables of the series


def host_results(sets: Sets, unread: list[str] | None = None) -> list[HostResult]:
    """The hosts that the sets describe, facts in their types."""
    merged: dict[str, dict[str, Any]] = {}
    for nodeset, facts in sets.items():
        for name in expand(nodeset):
            merged.setdefault(name, {}).update(facts)
    return [_host_result(name, facts, unread or []) for name, facts in merged.items()]


def _host_result(name: str, given: dict[str, Any], unread: list[str]) -> HostResult:
    facts = {source: fact for source, fact in given.items() if not source.startswith("@")}
    about = {field[1:]: value for field, value in given.items() if field.startswith("@")}
    absent = [source for source in catalogue.NAMES if source not in facts and source not in unread]
    readings = {source: {"status": "ok", "seconds": 0.0} for source in facts}
    readings |= {source: {"status": "absent", "seconds": 0.0} for source in absent}
    fields = {"name": name, "status": "complete", "readings": readings, "facts": facts, **about}
    return msgspec.convert(fields, HostResult).convert_facts()


@contextlib.contextmanager
def few_sources() -> Iterator[None]:
    """Let recordings in this process have few sources, which makes them and their checks much faster."""
    sources = [catalogue.source(name) for name in FEW]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollbook.api.recording.catalogue", SimpleNamespace(load=lambda: sources))
        yield


def is_whole(host: SeriesHost) -> bool:
    """Whether a series has no loss other than beats that a busy machine missed, which the agents count."""
    lost = lost_gaps(host) or "is missing" in host.reason or any(one.affected() for one in host.sources)
    return host.status == "complete" or (not lost and (host.is_sparse or bool(host.gaps)))


def was_read(host: HostResult) -> bool:
    """Whether the facts of a host are whole, except for readings that a busy machine did not finish in time."""
    late = any(reading.status == "timed-out" for reading in host.readings.values())
    return host.status == ("partial" if late else "complete")


def lost_gaps(host: SeriesHost) -> list[str]:
    """The reasons of all gaps except those in which the machine was too busy to sample."""
    # The last two are before the first and after the last sample; a lost connection has another reason.
    busy = ("no samples: the host was stopped or overloaded", "not connected yet", "no more samples")
    return [gap.why for gap in host.gaps if gap.why not in busy]


class RunCase(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One run as data, and the expected result of a rule."""

    about: str
    outcome: str
    hosts: list[str] = []
    says: str = ""
    advice: str = ""
    when: list[int] | None = None
    start: Sets = {}
    end: Sets = {}
    series: list[dict[str, Any]] = []
    clock_steps: list[ClockJump] = []
    interval: float | None = None
    first_interval: float | None = None
    unread: list[str] = []
    metadata: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    baseline: Sets = {}
    expect: list[Expectation] = []
    description: dict[str, Any] | None = None
    summary: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    files: dict[str, Any] = {}
    round: str = rounds.NEWEST
    runs: ModelRuns | None = None
    tables: dict[str, dict[str, list[dict[str, str]]]] = {}

    def run_data(self) -> RunData:
        """The run as the input of rules."""
        hosts = msgspec.convert(
            {
                "started_ns": 0,
                "ended_ns": 600 * 10**9,
                "interval_seconds": self.interval,
                "first_interval_seconds": self.first_interval,
                "series": self.series,
            },
            RecordHosts,
        )
        hosts.start, hosts.end = host_results(self.start, self.unread), host_results(self.end)
        hosts.clock_steps = self.clock_steps
        base = (
            RunData(RecordHosts(started_ns=0, ended_ns=0, start=host_results(self.baseline))) if self.baseline else None
        )
        if self.tables:
            names = {name for sets in self.tables.values() for nodeset in sets for name in expand(nodeset)}
            last = SECONDS * 10**9
            hosts.interval_seconds = 1.0
            hosts.series = [
                SeriesHost(name=name, status="complete", samples=SECONDS, first_ns=0, last_ns=last)
                for name in sorted(names)
            ]
        return RunData(
            hosts,
            metadata=self.metadata,
            named=self.groups,
            baseline=base,
            expectations=self.expect,
            description=self.description,
            mlperf_round=rounds.load(self.round),
            runs=self.runs,
        )

    def write_files(self, path: Path) -> None:
        """Write the summary and the other files of the benchmark into the record at `path`."""
        for name, content in {"summary.json": self.summary, **self.files}.items():
            (path / name).write_text(json.dumps(content))

    def write_tables(self, path: Path) -> None:
        """Write the tables of the series into the record at `path`."""
        (path / "series").mkdir()
        for source, sets in self.tables.items():
            how = compare_of(catalogue.source(source).row_type)
            rows = []
            for nodeset, devices in sets.items():
                for name in expand(nodeset):
                    for columns in devices:
                        values = ", ".join(f"{value} AS {column}" for column, value in columns.items())
                        rows.append(f"SELECT '{name}' AS host, s, {values} FROM range({SECONDS + 1}) seconds(s)")
            about = {column: [how[column].mode, how[column].unit] for column in next(iter(sets.values()))[0]}
            times = "make_timestamp_ns(s::BIGINT * 1000000000) AS ts, (1000 + s)::BIGINT * 1000000000 AS mono"
            query = f"SELECT host, {times}, * EXCLUDE (host, s) FROM ({' UNION ALL '.join(rows)}) ORDER BY ALL"
            options = f"FORMAT parquet, KV_METADATA {{rollbook_columns: '{json.dumps(about)}'}}"
            duckdb.execute(f"COPY ({query}) TO '{path}/series/{source}.parquet' ({options})")
