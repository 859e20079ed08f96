"""`rollbook run`: a command, and the record of every host before, during and after it."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from typing import Any

import click

from rollbook.adapters import leaf_parts, load
from rollbook.api.recording import Settings
from rollbook.api.running import run_command
from rollbook.cli.options import BENCHMARK, RECORDING, Number, option
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.recording import StartView, recording_options, said, show_end
from rollbook.errors import UsageError
from rollbook.records.record import Record

__all__ = ["command"]


@click.command(
    "run", cls=ReachCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@recording_options
@option(
    "--type",
    "kind",
    heading=BENCHMARK,
    default="generic",
    show_default=True,
    metavar="NAME",
    help="Benchmark: generic, fio, dlio, training, checkpointing, vector_database, kv_cache, or a plug-in's.",
)
@option(
    "--layout",
    heading=RECORDING,
    type=click.Choice(["rollbook", "mlpstorage"]),
    default="rollbook",
    show_default=True,
    help="Directories of the record: results/type, or those of MLPerf Storage's tools.",
)
@option(
    "--strict",
    heading=RECORDING,
    is_flag=True,
    help="If the command succeeded, exit with 3 or 4 for missing hosts, 2 for an incomplete record, 1 for an INVALID "
    "MLPerf Storage run, 3 for one that could not be judged. If no host is reached, do not start the command.",
)
@option("--skip-timeseries", heading=RECORDING, is_flag=True, help="Take snapshots only, no series.")
@option(
    "--collect-cluster-info/--skip-cluster-collection",
    "collect",
    heading=RECORDING,
    default=True,
    help="Ask the hosts; without, only the arguments say what the cluster is.",
)
@option(
    "--cluster-collection-timeout",
    heading=RECORDING,
    type=Number(0.1),
    metavar="SECONDS",
    help="Time for each host to log in and give its facts [default: that of --timeout].",
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
@option("--exec-type", heading=BENCHMARK, type=click.Choice(["mpi", "docker"]), help="Kept in the record's args.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS]...")
@reach_options
def command(
    reach: Reach,
    *,
    settings: Settings,
    argv: tuple[str, ...],
    layout: str,
    kind: str,
    strict: bool,
    skip_timeseries: bool,
    collect: bool,
    cluster_collection_timeout: float | None,
    **_declared: Any,
) -> None:
    """Run COMMAND with a record of all hosts: snapshot, series, command, snapshot, tables, page.

    The command keeps its stdin, terminal, signals and exit code; its output is shown and logged. Ctrl-C reaches the
    command first, then the record is finished; a second Ctrl-C skips the end snapshot.
    """
    load(kind)
    timeout = cluster_collection_timeout or reach.options.timeout
    settings = dataclasses.replace(
        settings,
        hosts=reach.hosts if collect else [],
        options=dataclasses.replace(reach.options, timeout=timeout),
        fanout=reach.fanout,
        kind=kind,
        interval=0.0 if skip_timeseries else settings.interval,
        parts=_parts(layout, kind, argv),
        args=said(reach.hosts),
    )
    recording, code = run_command(settings, argv, StartView(reach, strict=strict) if collect else None)
    show_end(recording)
    if strict and code == 0:
        code = 2 if recording.unfinished or recording.unsigned else _strict_code(recording.run)
    sys.exit(code)


def _strict_code(run: Record) -> int:
    """With --strict: missing hosts first, then a verdict of INVALID (1) or none for lack of inputs (3)."""
    verdict = 1 if run.metadata.get("verification") == "INVALID" else 3 if run.metadata["verification_missing"] else 0
    return run.coverage.exit_code or verdict


def _parts(layout: str, kind: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The directories above the record. MLPerf Storage's begin with mode, organisation and system name."""
    if layout == "rollbook":
        return ()
    try:
        organisation, system = os.environ["MLPSTORAGE_ORGNAME"], os.environ["MLPSTORAGE_SYSTEMNAME"]
    except KeyError as error:
        raise UsageError(f"--layout mlpstorage needs {error.args[0]} in the environment") from error
    mode = next((word for word in argv if word in ("closed", "open", "whatif")), "open")
    parts = (mode, organisation, "results", system, *leaf_parts(kind, argv))
    if unfit := [part for part in parts if not re.fullmatch(r"[A-Za-z0-9._-]+", part) or part.startswith(".")]:
        raise UsageError(f"{unfit[0]!r} cannot be a directory of a submission: only letters, digits, '.', '_' and '-'")
    return parts
