"""`rollbook record`: record all hosts without a command."""

from __future__ import annotations

import dataclasses

import click

from rollbook.api.recording import INTERRUPTED
from rollbook.api.running import record_for
from rollbook.api.settings import Settings
from rollbook.api.signals import Signals
from rollbook.cli.options import RECORDING, Number, option
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.recording import RunView, completeness_code, leave, option_values, recording_options, show_end
from rollbook.errors import ExitCode

__all__ = ["command"]


@click.command("record", cls=ReachCommand)
@recording_options
@option(
    "--duration",
    heading=RECORDING,
    type=Number(0.1),
    metavar="SECONDS",
    help="Stop after this many seconds [default: record until Ctrl-C].",
)
@reach_options
def command(reach: Reach, *, settings: Settings, duration: float | None, quiet: bool, as_json: bool) -> None:
    """Record all hosts until Ctrl-C or for --duration: facts at the start, samples, facts at the end, tables, page.

    While the record is being written, the first Ctrl-C changes nothing; a second one leaves the record to
    `rollbook recover`.
    """
    settings = dataclasses.replace(
        settings, hosts=reach.hosts, options=reach.options, fanout=reach.fanout, args=option_values(reach.hosts)
    )
    progress = RunView(reach, message="" if duration else "recording; press Ctrl-C to stop", quiet=quiet or as_json)
    with Signals() as signals:
        recording = record_for(settings, duration, progress, signals)
        show_end(recording, quiet=quiet, as_json=as_json)
        code = ExitCode.INTERRUPTED if recording.finish_error == INTERRUPTED else completeness_code(recording)
        leave(code, recording, signals)
