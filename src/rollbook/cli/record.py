"""`rollbook record`: a series without a command."""

from __future__ import annotations

import dataclasses
import sys

import click

from rollbook.api.recording import Settings
from rollbook.api.running import record_for
from rollbook.cli.options import RECORDING, Number, option
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.recording import StartView, recording_options, said, show_end

__all__ = ["command"]


@click.command("record", cls=ReachCommand)
@recording_options
@option("--duration", heading=RECORDING, type=Number(0.1), metavar="SECONDS", help="Stop after this many seconds.")
@reach_options
def command(reach: Reach, *, settings: Settings, duration: float | None) -> None:
    """Record all hosts until Ctrl-C or for --duration: start snapshot, series, end snapshot, tables."""
    settings = dataclasses.replace(
        settings, hosts=reach.hosts, options=reach.options, fanout=reach.fanout, args=said(reach.hosts)
    )
    start = StartView(reach, then="" if duration else "recording; Ctrl-C ends it")
    ended = record_for(settings, duration, start)
    show_end(ended)
    if ended.unfinished == "interrupted":
        sys.exit(130)
    sys.exit(2 if ended.unfinished or ended.unsigned else ended.run.coverage.exit_code)
