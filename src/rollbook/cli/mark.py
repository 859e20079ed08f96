"""`rollbook mark`: start a phase of the run this command is part of."""

from __future__ import annotations

import click

from rollbook.collect.marks import send_mark
from rollbook.errors import RecordError

__all__ = ["command"]


@click.command("mark")
@click.argument("name")
def command(name: str) -> None:
    """Start the phase NAME. To be called from inside a command that `rollbook run` wraps.

    Every host is sampled at once, so that the phase has a sample at its edge. A recorder that is gone is said on
    stderr and is no failure: a benchmark must not end because its recording did.
    """
    try:
        send_mark(name)
    except RecordError as error:
        click.echo(f"rollbook: {error}", err=True)
