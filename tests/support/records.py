"""Runs made of a few lines of data: what the cases of the checks are written in.

    {"start": {"n[1-3]": {"thp": {"enabled": "madvise"}}, "n3": {"thp": {"enabled": "always"}}}}

A nodeset gives its facts to each of its hosts; a later one adds to or replaces an earlier one's sources. Names that
begin with `@` are of the host itself: `@status`, `@slots`, `@clock`. A source that is not given is absent from the
host; those under `unread` were not read. `when` is the stretch of time that the first finding points to, from 0 at the
start of the run; empty where it must point to none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.checks.expect import Expectation
from rollbook.checks.run_data import RunData
from rollbook.hosts import expand
from rollbook.mlperf import rounds
from rollbook.records.hosts import HostResult
from rollbook.records.record import RecordHosts
from rollbook.sources import catalogue

Sets = dict[str, dict[str, Any]]


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
    advice: str = ""
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
    round: str = rounds.NEWEST

    def run_data(self) -> RunData:
        """The run as rules see it."""
        hosts = msgspec.convert(
            {"started_ns": 0, "ended_ns": 600 * 10**9, "interval_seconds": self.interval, "series": self.series},
            RecordHosts,
        )
        hosts.start, hosts.end = host_records(self.start, self.unread), host_records(self.end)
        base = (
            RunData(RecordHosts(started_ns=0, ended_ns=0, start=host_records(self.baseline))) if self.baseline else None
        )
        return RunData(
            hosts,
            metadata=self.metadata,
            named=self.groups,
            baseline=base,
            expectations=self.expect,
            description=self.description,
            mlperf_round=rounds.load(self.round),
        )
