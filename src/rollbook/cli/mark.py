"""`rollbook mark`: start a phase of the run this command is part of."""

from __future__ import annotations

import click

from rollbook.collect.marks import send_mark

__all__ = ["command"]


@click.command("mark")
@click.argument("name")
def command(name: str) -> None:
    """Start the phase NAME. To be called from inside a command that `rollbook run` wraps.

    Every host is sampled at once, so that the phase has a sample at its edge.
    """
    send_mark(name)
