"""Options and value types that several commands share, and the headings under which `--help` lists options."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rollbook.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = [
    "BENCHMARK",
    "HOSTS",
    "OUTPUT",
    "RECORDING",
    "TRANSPORT",
    "Command",
    "InputFile",
    "Number",
    "Option",
    "SizeType",
    "add_options",
    "complete",
    "file_option",
    "is_default",
    "is_typed",
    "json_option",
    "option",
    "refuse_given",
    "sign_option",
]

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


def add_options(command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]) -> Callable[..., Any]:
    """Add options to a command, in this order before those that it has."""
    for add in reversed(options):
        command = add(command)
    return command


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


class InputFile(click.Path):
    """A file that must exist."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, or `UsageError`."""
        del ctx
        path = Path(value)
        if path.is_file():
            return path
        reason = "it is a directory" if path.is_dir() else "it is not a file" if path.exists() else "no such file"
        raise UsageError(f"cannot use {param.opts[0] if param else 'a file'} {path}: {reason}")


sign_option = option(
    "--sign",
    heading=RECORDING,
    type=InputFile(),
    metavar="KEY",
    help="Sign the manifest with this ssh key.",
)
json_option = option("--json", "as_json", heading=OUTPUT, is_flag=True, help="Print one JSON document.")


class OutputFile(click.Path):
    """A file to write. `-` is rejected: what is printed without the option is not what the file would contain."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or a usage error."""
        if str(value) == "-":
            self.fail("'-' is not a file; use ./- or /dev/stdout.", param, ctx)
        return super().convert(value, param, ctx)


def file_option(*names: str, help: str) -> Callable[[Any], Any]:  # noqa: A002 - as in click
    """The option for a file to write."""
    return option(*names, heading=OUTPUT, type=OutputFile(), metavar="FILE", help=help)


def complete(
    names: Callable[[], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Complete the values of an option with names that are looked up when the shell asks."""

    def found(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for completion

        del ctx, param
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]

    return found


def is_typed(name: str) -> bool:
    """Whether a parameter of the current command was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def is_default(name: str) -> bool:
    """Whether a parameter of the current command has its built-in default."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.DEFAULT


def refuse_given(names: Collection[str], why: str) -> None:
    """Raise `UsageError` if one of the parameters was typed; `why` explains why it would have no effect."""
    context = click.get_current_context()
    typed = [
        parameter.opts[0]
        for parameter in context.command.get_params(context)
        if parameter.name in names and is_typed(parameter.name)
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

    def _describe_range(self) -> str:
        """The range for `--help`; click prints `x<=None` for a number without limits."""
        return "" if self.min is None and self.max is None else super()._describe_range()


class SizeType(click.ParamType[Any]):
    """A size such as `256 MiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes, or a usage error."""
        from rollbook.bundle.items import parse_size  # noqa: PLC0415 - most commands take no sizes

        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
