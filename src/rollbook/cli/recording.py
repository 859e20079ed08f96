"""The options and the closing words that `run` and `record` share."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import click
from rich.console import Console

from rollbook.api.recording import LONGEST, SHORTEST, Recording, Settings
from rollbook.clean import clean
from rollbook.cli.options import RECORDING, Number, option, sign_option
from rollbook.cli.output import ProgressView, coverage_line, failures, size, stderr
from rollbook.cli.reach import Reach
from rollbook.errors import NoHostReached
from rollbook.hosts import Host
from rollbook.records.document import read
from rollbook.records.findings import Findings
from rollbook.records.hosts import HostResult

__all__ = ["StartView", "recording_options", "said", "show_end"]

OPTIONS = (
    option("--results-dir", "results", heading=RECORDING, type=click.Path(path_type=Path), default=Path("results"),
           show_default=True, metavar="DIR", help="Where records are made."),
    option("--timeseries-interval", "interval", heading=RECORDING, type=Number(SHORTEST, LONGEST), default=10.0,
           show_default=True, metavar="SECONDS", help="Time between samples."),
    option("--max-timeseries-samples", "max_samples", heading=RECORDING, type=click.IntRange(0), default=3600,
           show_default=True, metavar="N",
           help="Samples kept per host in the tables: of more, neighbours are merged. 0: all."),
    option("--drop-raw", heading=RECORDING, is_flag=True, help="Remove the raw log once the tables are verified."),
    option("--report/--no-report", heading=RECORDING, default=True, help="Write report.html at the end."),
    sign_option,
)  # fmt: skip


def recording_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; it gets them as `settings` that know no hosts yet."""

    @functools.wraps(command)
    def with_settings(
        *,
        results: Path,
        interval: float,
        max_samples: int,
        drop_raw: bool,
        report: bool,
        sign: Path | None,
        **rest: Any,
    ) -> Any:
        settings = Settings(
            results=results,
            interval=interval,
            max_samples=max_samples,
            drop_raw=drop_raw,
            report=report,
            sign=sign,
        )
        return command(settings=settings, **rest)

    for add in reversed(OPTIONS):
        with_settings = add(with_settings)
    return with_settings


def said(hosts: Sequence[Host]) -> dict[str, Any]:
    """What the user asked for, by the names of the options, as it is kept in a record; the hosts as they were found."""
    context = click.get_current_context()
    named = {
        max(param.opts, key=len).lstrip("-").replace("-", "_"): context.params[param.name]
        for param in context.command.get_params(context)
        if isinstance(param, click.Option) and param.name in context.params
    }
    plain: dict[str, Any] = json.loads(json.dumps(named, default=str))
    return {**plain, "hosts": [host.name for host in hosts]}


class StartView(ProgressView):
    """Hosts while they log in; then who is missing, before the command runs: now the user can still choose not to wait.

    With `strict` nothing is begun where no host gave anything; `then` is said when the start is over.
    """

    def __init__(self, reach: Reach, *, strict: bool = False, then: str = "") -> None:
        super().__init__(reach.hosts)
        self._reach, self._strict, self._then = reach, strict, then
        self._missing: list[HostResult] = []

    def __enter__(self) -> Self:
        self._reach.explain()
        return super().__enter__()

    def done(self, record: HostResult) -> None:
        """The host gave its start facts, or failed to."""
        super().done(record)
        if record.status != "complete":
            self._missing.append(record)

    def over(self) -> None:
        """Say what became of all hosts, unless all is well. That nobody can read it stops nothing."""
        coverage = self.coverage
        with contextlib.suppress(OSError):
            if not coverage.complete:
                failures(self._missing)
                stderr().print(coverage_line(coverage))
            if self._then:
                stderr().print(self._then)
        if self._strict and coverage.exit_code == NoHostReached.exit_code:
            raise NoHostReached("the command was not started: no host could be reached, and --strict is given")


def show_end(ended: Recording) -> None:
    """Who is missing, what our looking cost, and where the record is; on stderr, after the command's own output.

    A terminal that is gone by then keeps nobody from ending well.
    """
    try:
        _show_end(ended, stderr())
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _show_end(ended: Recording, console: Console) -> None:
    if ended.broken:
        console.print(f"recording ended early: {clean(ended.broken)}", style="red", soft_wrap=True)
    if ended.unfinished:
        console.print(f"the record is not finished: {clean(ended.unfinished)}", style="red", soft_wrap=True)
        console.print(f"what was recorded is kept: rollbook recover {shlex.quote(str(ended.path))}", soft_wrap=True)
        return
    if ended.unsigned:
        console.print(f"the record is not signed: {clean(ended.unsigned)}", style="red", soft_wrap=True)
        console.print(f"it can be later: rollbook verify --sign KEY {shlex.quote(str(ended.path))}", soft_wrap=True)
    hosts = ended.run.hosts
    failures(ended.run.hosts.outcome)
    costs = [host.cost for host in hosts.series if host.cost is not None]
    shares = [host.cpu_share for host in hosts.series if host.cpu_share is not None]
    if shares:
        sent = sum(cost.sent_bytes or 0 for cost in costs)
        console.print(f"our cost: at most {100 * max(shares):.3f} % of a host's CPUs, {size(sent)} sent by all hosts")
    console.print(coverage_line(ended.run.coverage))
    for note in ended.run.metadata["notes"]:
        console.print(f"note: {clean(note)}", soft_wrap=True)
    findings = ended.path / "findings.json"
    if findings.exists():
        counts = read(findings, Findings).counts
        bad = [f"{count} {severity}" for severity, count in counts.items() if count]
        console.print(
            f"checks: {', '.join(bad) or 'nothing found'}; see rollbook check {shlex.quote(str(ended.path))}",
            soft_wrap=True,
        )
        if text := ended.run.metadata.get("verification_text"):
            console.print(clean(text), soft_wrap=True)
    page = ended.path / "report.html"
    console.print(f"record in {ended.path}" + (f", page: {page}" if page.exists() else ""), soft_wrap=True)
