"""`rollbook mark`: start a phase of the run this command is part of."""

from __future__ import annotations

import os

import click

from rollbook.api.marks import mark
from rollbook.collect.marks import VARIABLE, mark_name
from rollbook.errors import RecordError

__all__ = ["command"]


@click.command("mark")
@click.argument("name")
def command(name: str) -> None:
    """Start the phase NAME, from inside a command started by `rollbook run`.

    Every host is sampled immediately, so that the phase has a sample at its start. Outside a run, and if the collector
    is gone, warn on stderr and exit 0: a benchmark must not fail because it is not recorded.
    """
    name = mark_name(name)
    if not os.environ.get(VARIABLE):
        click.echo("rollbook: no phase was marked: this is not inside `rollbook run`", err=True)
        return
    try:
        mark(name)
    except RecordError as error:
        click.echo(f"rollbook: {error}", err=True)
