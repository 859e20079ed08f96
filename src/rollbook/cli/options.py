"""Options and value types that several commands share, and the headings under which `--help` lists options."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rollbook.errors import UsageError

__all__ = ["BENCHMARK", "HOSTS", "OUTPUT", "RECORDING", "TRANSPORT", "Command", "Number", "Option", "option",
           "refuse_given", "sign_option"]  # fmt: skip

HOSTS, TRANSPORT, RECORDING, BENCHMARK, OUTPUT = "Hosts", "Transport", "Recording", "Benchmark", "Output"
OTHER = "Options"
HEADINGS = (HOSTS, TRANSPORT, RECORDING, BENCHMARK, OUTPUT, OTHER)
"""The headings of `--help`, in their order."""


class Option(click.Option):
    """An option that `--help` lists under `heading`."""

    def __init__(self, *args: Any, heading: str = OTHER, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.heading = heading


def option(*declarations: str, heading: str, **attributes: Any) -> Callable[[Any], Any]:
    """As `click.option`, for an option that `--help` lists under `heading`."""
    return click.option(*declarations, cls=Option, heading=heading, **attributes)


class Command(click.Command):
    """A command whose `--help` lists options under their headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one section for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (row := parameter.get_help_record(ctx)) is not None:
                sections[getattr(parameter, "heading", OTHER)].append(row)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


sign_option = option(
    "--sign",
    heading=RECORDING,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="KEY",
    help="Sign the manifest with this ssh key.",
)


def refuse_given(names: Collection[str], why: str) -> None:
    """Raise `UsageError` if one of the parameters was typed; `why` explains why it would have no effect."""
    context = click.get_current_context()
    typed = [
        parameter.opts[0]
        for parameter in context.command.get_params(context)
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if typed:
        raise UsageError(f"{', '.join(typed)} would have no effect: {why}")


class Number(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return super().convert(value, param, ctx)
