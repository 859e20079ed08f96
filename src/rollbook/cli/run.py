"""`rollbook run`: run a command and record every host before, during and after it."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click

from rollbook.adapters import NAMES, load, names
from rollbook.api.recording import Recording
from rollbook.api.running import run_command
from rollbook.api.settings import Settings, in_group
from rollbook.api.signals import Signals
from rollbook.cli.options import BENCHMARK, RECORDING, Number, complete, is_typed, option
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.recording import RunView, completeness_code, leave, option_values, recording_options, show_end
from rollbook.errors import CannotRun, ExitCode, UsageError
from rollbook.mlperf.result_directory import Placement
from rollbook.records.record import Record

__all__ = ["command"]


@click.command(
    "run", cls=ReachCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@recording_options
@option(
    "--type",
    "benchmark",
    heading=BENCHMARK,
    default="generic",
    show_default=True,
    metavar="NAME",
    shell_complete=complete(names),
    help=f"Benchmark: {', '.join(NAMES)}, or a plug-in's.",
)
@option(
    "--layout",
    heading=RECORDING,
    type=click.Choice(["rollbook", "mlpstorage"]),
    default="rollbook",
    show_default=True,
    help="Where the record is written: results/TYPE, or the result directory that MLPerf Storage's tool creates.",
)
@option(
    "--strict",
    heading=RECORDING,
    is_flag=True,
    help="If the command succeeded, exit with 3 or 4 for missing hosts, 2 for an incomplete record, 1 for an INVALID "
    "MLPerf Storage run, 3 for one that could not be judged. If no host is reached, do not start the command.",
)
@option(
    "--repeat",
    heading=RECORDING,
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Run the command N times, one record each; together they are a group for `rollbook compare`. Stops after the "
    "first run that fails, with its exit status.",
)
@option("--skip-timeseries", heading=RECORDING, is_flag=True, help="Read facts at start and end only; do not sample.")
@option(
    "--collect-cluster-info/--skip-cluster-collection",
    "collect",
    heading=RECORDING,
    default=True,
    help="Contact the hosts (default), or use only the declared memory and number of client hosts.",
)
@option(
    "--cluster-collection-timeout",
    heading=RECORDING,
    type=Number(0.1),
    metavar="SECONDS",
    help="Per-host timeout for login and facts [default: --timeout].",
)
@option(
    "--client-host-memory-in-gb",
    heading=BENCHMARK,
    type=Number(0),
    metavar="GB",
    help="Declared memory of each client host.",
)
@option(
    "--num-client-hosts",
    heading=BENCHMARK,
    type=click.IntRange(1),
    metavar="N",
    help="Declared number of client hosts.",
)
@option(
    "--exec-type",
    heading=BENCHMARK,
    type=click.Choice(["mpi", "docker"]),
    help="Stored in the record; no other effect.",
)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS]...")
@reach_options
def command(
    reach: Reach,
    *,
    settings: Settings,
    argv: tuple[str, ...],
    layout: str,
    benchmark: str,
    strict: bool,
    repeat: int,
    skip_timeseries: bool,
    collect: bool,
    cluster_collection_timeout: float | None,
    quiet: bool,
    as_json: bool,
    **_declared: Any,
) -> None:
    """Run COMMAND and record all hosts: facts at the start, samples while it runs, facts at the end, tables, page.

    The command keeps its stdin, terminal, signals and exit status; its output is shown and logged. The first Ctrl-C
    goes to the command, then the record is written; a second one skips the facts at the end. While the record is being
    written, the first Ctrl-C changes nothing; a second one leaves the record to `rollbook recover`.
    """
    if argv[0].startswith("-"):
        raise UsageError(f"no such option: {argv[0]}{_suggestion(argv[0])}")
    if is_typed("hosts") and shutil.which(argv[0]) is None:
        hint = "if it is a host, write --hosts a,b or put -- before the command"
        raise CannotRun(f"cannot run {argv[0]}: no such program; {hint}", found=False)
    load(benchmark)
    timeout = cluster_collection_timeout or reach.options.timeout
    settings = dataclasses.replace(
        settings,
        hosts=reach.hosts if collect else [],
        options=dataclasses.replace(reach.options, timeout=timeout),
        fanout=reach.fanout,
        type=benchmark,
        interval=0.0 if skip_timeseries else settings.interval,
        push="" if skip_timeseries and not is_typed("push") else settings.push,
        args=option_values(reach.hosts),
    )
    if layout == "mlpstorage":
        if repeat > 1:
            raise UsageError("--repeat cannot be combined with --layout mlpstorage, which places one record")
        placement = Placement(settings.results_dir, benchmark, argv, os.environ)
        settings = dataclasses.replace(settings, placement=placement, results_dir=placement.staging)
        if placement.problem:
            click.echo(f"{placement.problem}: only the command itself can create a result directory", err=True)
    with Signals(command=True) as signals:

        def one(chosen: Settings) -> tuple[Recording, int]:
            progress = RunView(reach, strict=strict, contact=collect, quiet=quiet or as_json)
            try:
                recording = run_command(chosen, argv, progress, signals, stdout=2 if as_json else 1)
            except KeyboardInterrupt:
                below = "\n" * sys.stderr.isatty()  # the ^C that a terminal shows
                click.echo(f"{below}interrupted: the command was not started, and nothing was recorded", err=True)
                sys.exit(ExitCode.INTERRUPTED)
            show_end(recording, quiet=quiet, as_json=as_json)
            return recording, _exit_code(recording, strict=strict)

        recording, code = _repeats(one, settings, repeat, signals, quiet=quiet)
        leave(code, recording, signals)


def _repeats(
    run: Callable[[Settings], tuple[Recording, int]], settings: Settings, repeat: int, signals: Signals, *, quiet: bool
) -> tuple[Recording, int]:
    """Run once or several times until one run fails; returns the last recording and the exit code."""
    endings: list[str] = []
    try:
        for index in range(1, repeat + 1):
            if repeat > 1:
                settings = in_group(settings, index, repeat)
            if repeat > 1 and not quiet:
                _tell(f"run {index} of {repeat}")
            recording, code = run(settings)
            endings.append(_ending(recording, code, stopped=signals.stopped))
            if code or signals.stopped or recording.finish_error:
                break
    finally:  # even if a repeat was cancelled before its command was started
        _show_place(settings, endings, stopped=signals.stopped)
    if code == 0 and index < repeat:  # the last command ended well, but not all repeats were run
        code = ExitCode.INTERRUPTED if signals.stopped else ExitCode.ERROR
    return recording, code


def _exit_code(recording: Recording, *, strict: bool) -> int:
    """That of the command; with --strict, one for an incomplete record if the command succeeded."""
    code = recording.exit_code or 0
    if strict and code == 0:
        code = completeness_code(recording) or _verdict_code(recording.record)
    return code


def _ending(recording: Recording, code: int, *, stopped: bool) -> str:
    """What a reader of the group has to know about one repeat; empty if all went well."""
    if recording.finish_error:
        return "not finished"
    if recording.exit_code:
        return "interrupted" if stopped else "failed"
    if not recording.record.coverage.complete:
        return "without all hosts"
    return "rejected by --strict" if code else ""


def _show_place(settings: Settings, endings: Sequence[str], *, stopped: bool) -> None:
    """Print where the record was placed, or how many repeats there are, how they ended, and how to compare them."""
    if settings.placement is not None and settings.placement.message:
        _tell(settings.placement.message)
    if (group := settings.label.group) is not None:
        counts = "".join(f", {count} {how}" for how, count in Counter(filter(None, endings)).items())
        hint = f"; rollbook compare {settings.label.name or group.id} OTHER" if endings else ""
        end = "; stopped by Ctrl-C or a signal" if stopped and len(endings) < group.size else ""
        _tell(f"group {group.id}: {len(endings)} of {group.size} runs{counts}{end}{hint}")


def _tell(message: str) -> None:
    """Print a message on stderr; an unusable stderr stops nothing."""
    with contextlib.suppress(OSError):
        click.echo(message, err=True)


def _verdict_code(record: Record) -> int:
    """The exit code for a verdict of INVALID, or for none for lack of inputs."""
    if record.metadata.get("verification") == "INVALID":
        return ExitCode.FINDINGS
    return ExitCode.INCOMPLETE if record.metadata.get("verification_missing", True) else ExitCode.SUCCESS


def _suggestion(option: str) -> str:
    names = [name for param in click.get_current_context().command.params for name in param.opts]
    close = difflib.get_close_matches(option.partition("=")[0], names, n=1)
    return f"; did you mean {close[0]}?" if close else ""
