"""The command line: one thin file per command, imported only when it runs."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from rollbook import __version__
from rollbook.errors import RollbookError

__all__ = ["COMMANDS", "Commands", "cli", "main"]

COMMANDS = {
    "hosts": "Who would be asked, and can they be reached.",
    "snapshot": "Facts of every host, now.",
    "run": "A command, with a record of every host before, during and after it.",
    "record": "A series without a command.",
    "watch": "All hosts live in the terminal, or a record played again.",
    "mark": "Start a phase, from inside a command that `run` wraps.",
    "check": "Rules over a record or live hosts.",
    "diff": "Two records, two hosts, or start against end.",
    "report": "The offline HTML page of a record.",
    "query": "SQL over a record.",
    "export": "A record in other forms: parquet, csv, json, openmetrics, timeseries.",
    "describe": "The MLPerf Storage system description, as far as it can be measured.",
    "verify": "Manifest, hashes, signature of a record.",
    "recover": "Finish a record whose collector died.",
}


class Commands(click.Group):
    """Subcommands by name; only the one that runs is imported, so that help and completion stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order a person meets them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and take its `command`."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"rollbook.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. That nobody reads on, as in `rollbook … | head`, is no error, and no finding either."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="rollbook", message="%(prog)s %(version)s")
def cli() -> None:
    """Rollbook keeps the record of every host in a cluster.

    Exit codes: 0 all well, 1 findings, 2 usage or configuration, 3 some hosts failed, 4 no host reached,
    130 interrupted.
    """


def main() -> None:
    """Run the command line; every error of ours is a message and an exit code, never a traceback."""
    try:
        code = cli.main(prog_name="rollbook", standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except RollbookError as error:
        click.echo(f"rollbook: {error}", err=True)
        code = error.exit_code
    sys.exit(code)
