"""Options and kinds of value that several commands share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rollbook.errors import UsageError

__all__ = ["Number", "Words", "refuse_given", "sign_option"]

sign_option = click.option(
    "--sign",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="KEY",
    help="Sign the manifest with this ssh key.",
)


def refuse_given(names: Collection[str], why: str) -> None:
    """Raise `UsageError` for those of the parameters that were typed, where none changes anything; `why` says that."""
    context = click.get_current_context()
    typed = [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if typed:
        raise UsageError(f"{', '.join(typed)} would have no effect: {why}")


class Number(click.FloatRange):
    """A number in a range; `nan` is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no such number.", param, ctx)
        return found


class Words(click.types.StringParamType):
    """Arguments for a program in one text, quoted as in a shell."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as it is, or a usage error."""
        found = super().convert(value, param, ctx)
        try:
            shlex.split(found)
        except ValueError as error:
            self.fail(f"{found} cannot be read: {error}.", param, ctx)
        return found
