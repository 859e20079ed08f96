"""The options and the closing words that `run` and `record` share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rollbook.api.recording import Recording
from rollbook.cli.output import coverage_line, failures, size, stderr
from rollbook.records.hosts import Coverage

__all__ = ["recording_options", "show_end"]

OPTIONS = (
    click.option("--results-dir", "results", type=click.Path(path_type=Path), default=Path("results"),
                 show_default=True, metavar="DIR", help="Where records are made."),
    click.option("--timeseries-interval", "interval", type=click.FloatRange(0.1, 86400), default=10.0,
                 show_default=True, metavar="SECONDS", help="Time between samples."),
    click.option("--max-timeseries-samples", "max_samples", type=click.IntRange(0), default=3600, show_default=True,
                 metavar="N", help="Most samples kept per host in the tables; more are merged. 0: no limit."),
    click.option("--drop-raw", is_flag=True, help="Remove the raw log once the tables are verified."),
    click.option("--report/--no-report", default=True, help="Write report.html at the end."),
    click.option("--sign", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="KEY",
                 help="Sign the manifest with this ssh key."),
)  # fmt: skip


def recording_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def show_end(ended: Recording) -> None:
    """Who is missing, what our looking cost, and where the record is; on stderr, after the command's own output."""
    console = stderr()
    hosts = ended.run.hosts
    if ended.broken:
        console.print(f"recording ended early: {ended.broken}", style="red")
    failures(hosts.start)
    costs = [host.cost for host in hosts.series if host.cost is not None]
    if costs:
        seconds = max(host.cpu_share or 0.0 for host in hosts.series)
        sent = sum(cost.sent_bytes or 0 for cost in costs)
        console.print(f"our cost: at most {100 * seconds:.3f} % of a host's CPUs, {size(sent)} sent by all hosts")
    console.print(coverage_line(Coverage.of(hosts.start)))
    findings = ended.path / "findings.json"
    if findings.exists():
        outcomes = json.loads(findings.read_bytes())["outcomes"]
        bad = [f"{outcomes[word]} {word}" for word in ("fail", "warn") if outcomes.get(word)]
        console.print(f"checks: {', '.join(bad) or 'nothing found'}; see rollbook check {ended.path}", soft_wrap=True)
    page = ended.path / "report.html"
    console.print(f"record in {ended.path}" + (f", page: {page}" if page.exists() else ""), soft_wrap=True)
