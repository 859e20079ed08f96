"""An issue report of the affected hosts when a run failed, stored inside its record."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rollbook.api.bundle import TIMEOUT, Bundle, make_request, run_bundle
from rollbook.bundle.collect import Reach
from rollbook.bundle.directory import BundleDirectory
from rollbook.bundle.once import ClusterOptions
from rollbook.clean import count_text
from rollbook.hosts import Host
from rollbook.records.findings import read_findings
from rollbook.records.record import Record
from rollbook.transports.routing import Options, fallback_route, route

__all__ = ["DIRECTORY", "Failure", "find_failure", "take_report"]

DIRECTORY = "bundle"
"""The issue report inside a record."""


class Failure(NamedTuple):
    """Why a run failed, and the hosts that an issue report is taken from."""

    reasons: list[str]
    hosts: list[str]


def find_failure(record: Record, exit_code: int | None) -> Failure | None:
    """What failed in a finished record: the command, hosts that were lost, checks; None if nothing did.

    If the command failed, or a check that names no host, every host is affected.
    """
    every = [host.name for host in record.hosts.start]
    lost = [host.name for host in record.hosts.outcome if host.status != "complete"]
    checked = read_findings(record.path)
    failures = checked.failures if checked else []
    reasons = [f"the command failed with exit status {exit_code}"] if exit_code else []
    reasons += [f"{count_text(len(lost), 'host')} lost or incomplete"] if lost else []
    reasons += [f"{count_text(len(failures), 'check')} failed"] if failures else []
    if not reasons:
        return None
    named = {name for finding in failures for name in finding.hosts}
    if exit_code or any(not finding.hosts for finding in failures):
        named |= set(every)
    return Failure(reasons, [name for name in every if name in named or name in lost])


def take_report(record: Record, hosts: Sequence[Host], options: Options, fanout: int) -> Bundle:
    """Collect and analyse an issue report of these hosts for the time window of the run.

    Raises `UsageError` or `RecordError` if it cannot be written.
    """
    since = dt.datetime.fromtimestamp(record.hosts.started_ns // 10**9, dt.UTC)
    until = dt.datetime.fromtimestamp(record.hosts.ended_ns // 10**9 + 1, dt.UTC)
    request = make_request(hosts, since=since, until=until)
    path: Path = record.path / DIRECTORY
    directory = BundleDirectory.create_at(path, request, hosts, dt.datetime.now(dt.UTC))
    reach = Reach(route(options), fallback_route(options), max(options.timeout, TIMEOUT), fanout)
    cluster = ClusterOptions.of(options)
    return asyncio.run(run_bundle(directory, request, hosts, reach, cluster=cluster))
