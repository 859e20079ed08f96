"""An issue report of the affected hosts when a run failed, stored inside its record."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

from rollbook.api.bundle import Bundle, make_request, run_bundle
from rollbook.bundle.cluster_items import ClusterOptions
from rollbook.bundle.collect import TIMEOUT, Reach
from rollbook.bundle.directory import BundleDirectory
from rollbook.hosts import Host
from rollbook.records.findings import read_findings
from rollbook.records.record import Record
from rollbook.transports.routing import Options, fallback_route, route

__all__ = ["DIRECTORY", "affected_hosts", "take_report"]

DIRECTORY = "bundle"
"""The issue report inside a record."""


def affected_hosts(record: Record, exit_code: int | None) -> list[str]:
    """The hosts of a finished record that failed checks name or that are not complete.

    If the command failed, or a check that names no host, these are all hosts; if nothing failed, none.
    """
    every = [host.name for host in record.hosts.start]
    checked = read_findings(record.path)
    failures = checked.failures if checked else []
    if exit_code or any(not finding.hosts for finding in failures):
        return every
    affected = {name for finding in failures for name in finding.hosts}
    affected |= {host.name for host in record.hosts.outcome if host.status != "complete"}
    return [name for name in every if name in affected]


def take_report(record: Record, hosts: Sequence[Host], options: Options, fanout: int) -> Bundle:
    """Collect and analyse an issue report of these hosts for the time window of the run.

    Raises `UsageError` or `RecordError` if it cannot be written.
    """
    since = dt.datetime.fromtimestamp(record.hosts.started_ns // 10**9, dt.UTC)
    until = dt.datetime.fromtimestamp(record.hosts.ended_ns // 10**9 + 1, dt.UTC)
    request = make_request(hosts, since=since, until=until)
    directory = BundleDirectory.create_at(record.path / DIRECTORY, request, hosts, dt.datetime.now(dt.UTC))
    reach = Reach(route(options), fallback_route(options), max(options.timeout, TIMEOUT), fanout)
    cluster = ClusterOptions.of(options)
    return asyncio.run(run_bundle(directory, request, hosts, reach, cluster=cluster))
