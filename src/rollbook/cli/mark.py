"""`rollbook mark`: start a phase of the run this command is part of."""

from __future__ import annotations

import click

from rollbook.api.marks import mark
from rollbook.collect.marks import mark_name
from rollbook.errors import RecordError

__all__ = ["command"]


@click.command("mark")
@click.argument("name")
def command(name: str) -> None:
    """Start the phase NAME, from inside a command started by `rollbook run`.

    Every host is sampled immediately, so that the phase has a sample at its start. Outside a run, and if the recorder
    is gone, warn on stderr and exit 0: a benchmark must not fail because it is not recorded.
    """
    try:
        mark(mark_name(name))
    except RecordError as error:
        click.echo(f"rollbook: {error}", err=True)
