"""Options, progress and closing messages that `run` and `record` share."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import click
from rich.console import Console

from rollbook.api.recording import INTERRUPTED, Recording
from rollbook.api.settings import Settings, check_interval
from rollbook.api.signals import Signals
from rollbook.clean import clean
from rollbook.cli.options import OUTPUT, RECORDING, Number, add_options, is_typed, option, sign_option
from rollbook.cli.output import ProgressView, coverage_line, print_failures, print_json, stderr
from rollbook.cli.reach import Reach
from rollbook.cli.summary import show_failure, show_summary
from rollbook.errors import ExitCode, NoHostReached, UsageError
from rollbook.hosts import Host, fold
from rollbook.records.hosts import HasStatus
from rollbook.records.labels import Label
from rollbook.report.summary import summarise

__all__ = ["RunView", "completeness_code", "leave", "option_values", "recording_options", "share_option", "show_end"]

share_option = option(
    "--share",
    heading=RECORDING,
    is_flag=True,
    help="Let other users read the record, if the umask allows it [default: owner only].",
)


class Interval(Number):
    """The seconds between samples, or 0 for none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        seconds = super().convert(value, param, ctx)
        try:
            check_interval(seconds)
        except UsageError as error:
            self.fail(f"{error}.", param, ctx)
        return seconds


OPTIONS = (
    option("--results-dir", heading=RECORDING, type=click.Path(path_type=Path), default=Settings.results_dir,
           show_default=True, metavar="DIR", help="Directory for records."),
    option("--interval", "--timeseries-interval", "interval", heading=RECORDING, type=Interval(),
           metavar="SECONDS", help="Time between samples; 0: no samples, only facts at start and end [default: 0.5, "
           "doubled as the run grows, at most 32]."),
    option("--max-samples", "--max-timeseries-samples", "max_samples", heading=RECORDING, type=click.IntRange(0),
           default=Settings.max_samples, show_default=True, metavar="N",
           help="Maximum number of samples per host in the tables; more are merged. 0: unlimited."),
    option("--drop-raw", heading=RECORDING, is_flag=True, help="Remove the journal once the tables are verified."),
    option("--report/--no-report", heading=RECORDING, default=True, help="Write report.html at the end."),
    option("--bundle-on-failure", heading=RECORDING, is_flag=True,
           help="If the run or a check fails or a host is lost, add an issue report of the affected hosts."),
    option("--host-budget", heading=RECORDING, type=Number(0.001), default=Settings.host_budget, show_default=True,
           metavar="FACTOR", help="Multiply the amount of data that a host may send before it is disconnected by this "
           "factor."),
    option("--push", heading=RECORDING, default="", metavar="URL",
           help="Send the metrics to this Prometheus or VictoriaMetrics server during the run, by remote write. Lost "
           "values are counted; they do not affect the run."),
    sign_option,
    share_option,
    option("--name", heading=RECORDING, default="", metavar="NAME",
           help="Name of the record, accepted wherever a RECORD is expected."),
    option("--tag", "tags", heading=RECORDING, multiple=True, metavar="TAG",
           help="Tag of the record, for `rollbook list`; may be repeated."),
    option("--note", heading=RECORDING, default="", metavar="TEXT", help="Note about the run, stored in the record."),
    option("-q", "--quiet", heading=OUTPUT, is_flag=True, help="Print only what went wrong, and no summary."),
    option("--json", "as_json", heading=OUTPUT, is_flag=True,
           help="Print the summary as JSON on stdout; with `run`, the command's stdout goes to stderr."),
)  # fmt: skip

FIELDS = ("results_dir", "interval", "max_samples", "drop_raw", "report", "sign", "share", "bundle_on_failure",
          "host_budget", "push")  # fmt: skip
"""The options that are fields of `Settings`."""


def recording_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which receives them as `settings` without hosts."""

    @functools.wraps(command)
    def with_settings(*, name: str, tags: tuple[str, ...], note: str, **rest: Any) -> Any:
        own = {field: rest.pop(field) for field in FIELDS}
        if own["interval"] == 0 and not is_typed("push"):
            own["push"] = ""  # a configured server gets what is sampled: nothing
        return command(settings=Settings(**own, label=Label.of(name, tags, note)), **rest)

    return add_options(with_settings, OPTIONS)


def option_values(hosts: Sequence[Host]) -> dict[str, Any]:
    """The user's options by name, as stored in a record; hosts as they were resolved."""
    context = click.get_current_context()
    named = {
        max(param.opts, key=len).lstrip("-").replace("-", "_"): context.params[param.name]
        for param in context.command.get_params(context)
        if isinstance(param, click.Option) and param.name in context.params
    }
    plain: dict[str, Any] = json.loads(json.dumps(named, default=str))
    return {**plain, "hosts": [host.name for host in hosts]}


class RunView(ProgressView):
    """Shows hosts while they log in, and the missing ones before the command runs, when it can still be cancelled.

    With `strict` nothing is started if no host returned data; `message` is printed once recording has started. Without
    `contact` no host is contacted. With `quiet` only hosts that are not complete are printed.
    """

    def __init__(
        self, reach: Reach, *, strict: bool = False, message: str = "", contact: bool = True, quiet: bool = False
    ) -> None:
        super().__init__(reach.hosts if contact else [])
        self._reach, self._strict, self._message, self._contact = reach, strict, message, contact
        self._quiet = quiet
        self._missing: list[HasStatus] = []

    def __enter__(self) -> Self:
        if self._quiet or not self._contact:
            return self
        self._reach.explain()
        return super().__enter__()

    def done(self, result: HasStatus) -> None:
        """The host returned its start facts or failed."""
        super().done(result)
        if result.status != "complete":
            self._missing.append(result)

    def started(self) -> None:
        """Print the hosts that are not complete; raises `NoHostReached` with `strict` if there are no others."""
        coverage = self.coverage
        with contextlib.suppress(OSError):  # a closed terminal stops nothing
            if not coverage.complete:
                print_failures(self._missing)
                stderr().print(coverage_line(coverage))
            if self._message and not self._quiet:
                stderr().print(self._message)
        if self._strict and self._contact and coverage.exit_code == ExitCode.NO_HOST:
            raise NoHostReached("the command was not started: no host could be reached, and --strict is given")

    def push_failed(self, reason: str) -> None:
        """Print why pushing failed."""
        with contextlib.suppress(OSError):
            stderr().print(f"push failed: {clean(reason)}", style="yellow", soft_wrap=True)

    def writing(self, *, interrupted: bool) -> None:
        """Print that the record is being written, below the ^C that a terminal shows."""
        if self._quiet:
            return
        with contextlib.suppress(OSError):
            stderr().print("\n" * (interrupted and sys.stderr.isatty()) + "writing the record")

    def bundling(self, hosts: Sequence[str]) -> None:
        """Print from which hosts an issue report is collected."""
        with contextlib.suppress(OSError):
            stderr().print(f"the run failed; collecting an issue report from {fold(hosts)}", soft_wrap=True)

    def still_writing(self) -> None:
        """Print how to abandon the record. Runs in a signal handler: no other console may be in use."""
        with contextlib.suppress(OSError):
            os.write(2, b"still writing the record; Ctrl-C again leaves it to `rollbook recover`\n")


def show_end(recording: Recording, *, quiet: bool = False, as_json: bool = False) -> None:
    """Print the summary on stderr after the command's own output, or as JSON on stdout.

    With `quiet`, only what went wrong since the start: a command that failed, hosts that are not complete, a record
    that is not finished or not signed.
    """
    try:
        _show_end(recording, stderr(), quiet=quiet, as_json=as_json)
    except OSError:  # the terminal is closed: later output must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def completeness_code(recording: Recording) -> int:
    """The exit code for what a recording lacks: its record is not finished or signed, or hosts or data are missing."""
    if recording.finish_error or recording.signing_error:
        return ExitCode.ERROR
    return recording.coverage.exit_code or (ExitCode.INCOMPLETE if recording.recording_error else ExitCode.SUCCESS)


def leave(code: int, recording: Recording, signals: Signals) -> NoReturn:
    """Exit with a code that no further signal changes."""
    if click.get_current_context().find_root().obj == "process":  # not in a test runner, which lives on
        signals.ignore()
        if recording.finish_error == INTERRUPTED:
            # The thread that wrote the record may be inside DuckDB, which an orderly exit would have to wait for.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(code)


def _show_end(recording: Recording, console: Console, *, quiet: bool, as_json: bool) -> None:
    if recording.recording_error:
        console.print(f"recording ended early: {clean(recording.recording_error)}", style="red", soft_wrap=True)
    quoted = shlex.quote(str(recording.path))
    if recording.finish_error:
        console.print(f"the record is not finished: {clean(recording.finish_error)}", style="red", soft_wrap=True)
        console.print(f"to finish it: rollbook recover {quoted}", soft_wrap=True)
        return
    if recording.signing_error:
        console.print(f"the record is not signed: {clean(recording.signing_error)}", style="red", soft_wrap=True)
        console.print(f"to sign it: rollbook verify --sign KEY {quoted}", soft_wrap=True)
    if recording.bundle_error:
        console.print(f"issue report: {clean(recording.bundle_error)}", style="red", soft_wrap=True)
    if as_json:
        print_json(summarise(recording.record))
    elif quiet:
        show_failure(summarise(recording.record), console)
        hosts = recording.record.hosts
        printed = {(host.name, host.status, host.reason) for host in hosts.start}
        print_failures([host for host in hosts.outcome if (host.name, host.status, host.reason) not in printed])
    else:
        show_summary(summarise(recording.record), console)
    if recording.bundle is not None and not quiet:
        console.print(f"issue report: {recording.bundle / 'index.html'}", soft_wrap=True)
