"""Runs made of a few lines of data: what the cases of the checks are written in.

    {"start": {"n[1-3]": {"thp": {"enabled": "madvise"}}, "n3": {"thp": {"enabled": "always"}}}}

A nodeset gives its facts to each of its hosts; a later one adds to or replaces an earlier one's sources. Names that
begin with `@` are of the host itself: `@status`, `@slots`, `@clock`. A source that is not given is absent from the
host; those under `unread` were not read. `when` is the stretch of time that the first finding points to, from 0 at the
start of the run; empty where it must point to none.

`tables` are tables of the series: by source and nodeset one row per device, each column as SQL over `s`, the seconds
from the start of the run, one sample a second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.checks.expect import Expectation
from rollbook.checks.subject import Subject
from rollbook.hosts import expand
from rollbook.records.hosts import HostResult
from rollbook.records.record import RecordHosts, SeriesHost
from rollbook.sources import catalogue
from rollbook.sources.base import compare_of

Sets = dict[str, dict[str, Any]]
SECONDS = 120  # in the tables of the series


def host_records(sets: Sets, unread: list[str] | None = None) -> list[HostResult]:
    """The hosts that the sets describe, facts in their types."""
    merged: dict[str, dict[str, Any]] = {}
    for nodeset, facts in sets.items():
        for name in expand(nodeset):
            merged.setdefault(name, {}).update(facts)
    return [_record(name, facts, unread or []) for name, facts in merged.items()]


def _record(name: str, given: dict[str, Any], unread: list[str]) -> HostResult:
    facts = {source: fact for source, fact in given.items() if not source.startswith("@")}
    about = {field[1:]: value for field, value in given.items() if field.startswith("@")}
    absent = [source for source in catalogue.NAMES if source not in facts and source not in unread]
    readings = {source: {"status": "ok", "seconds": 0.0} for source in facts}
    readings |= {source: {"status": "absent", "seconds": 0.0} for source in absent}
    fields = {"name": name, "status": "complete", "readings": readings, "facts": facts, **about}
    return msgspec.convert(fields, HostResult).typed()


class RunCase(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One run as data, and what a rule shall say of it."""

    about: str
    outcome: str
    hosts: list[str] = []
    says: str = ""
    when: list[int] | None = None
    start: Sets = {}
    end: Sets = {}
    series: list[dict[str, Any]] = []
    interval: float | None = None
    unread: list[str] = []
    metadata: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    baseline: Sets = {}
    expect: list[Expectation] = []
    description: dict[str, Any] | None = None
    summary: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    tables: dict[str, dict[str, list[dict[str, str]]]] = {}

    def subject(self) -> Subject:
        """The run as rules see it."""
        hosts = msgspec.convert(
            {"started_ns": 0, "ended_ns": 600 * 10**9, "interval_seconds": self.interval, "series": self.series},
            RecordHosts,
        )
        hosts.start, hosts.end = host_records(self.start, self.unread), host_records(self.end)
        base = (
            Subject(RecordHosts(started_ns=0, ended_ns=0, start=host_records(self.baseline))) if self.baseline else None
        )
        if self.tables:
            names = {name for sets in self.tables.values() for nodeset in sets for name in expand(nodeset)}
            last = SECONDS * 10**9
            hosts.interval_seconds = 1.0
            hosts.series = [
                SeriesHost(name=name, status="complete", samples=SECONDS, first_ns=0, last_ns=last)
                for name in sorted(names)
            ]
        return Subject(
            hosts,
            metadata=self.metadata,
            named=self.groups,
            baseline=base,
            expectations=self.expect,
            description=self.description,
        )

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
