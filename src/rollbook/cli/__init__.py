"""The command line: one thin file per command, imported only when it runs."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from typing import Any

import click

from rollbook.errors import RollbookError
from rollbook.version import __version__

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
    "export": "A record in other forms: parquet, csv, json, openmetrics, timeseries, mlpstorage.",
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
            _mute()
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
    70 a mistake in Rollbook itself, 130 interrupted.
    """


def main() -> None:
    """Run the command line; every error of ours is a message and an exit code, never a traceback."""
    _open_closed()
    try:
        code = _run()
        sys.stdout.flush()
    except OSError as error:  # most of all a full disk below stdout: what was to be read is not there
        _mute()
        _say(f"{error.filename}: {error.strerror}" if error.filename else f"cannot write: {error.strerror}")
        code = RollbookError.exit_code
    except Exception:  # noqa: BLE001 - a traceback alone would end with 1, which means findings
        traceback.print_exc()
        code = 70
    sys.exit(code)


def _open_closed() -> None:
    """Lead standard channels that were closed (`>&-`) to nowhere: the next file opened would get their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the least that is free is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - open to the end


def _run() -> Any:
    """The exit code of the command that was typed."""
    try:
        return cli.main(prog_name="rollbook", standalone_mode=False)
    except SystemExit as ended:
        return ended.code
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except RollbookError as error:
        _say(str(error))
        return error.exit_code


def _say(message: str) -> None:
    """A message on stderr; it may quote a host, and that nobody can read it changes no exit code."""
    from rollbook.clean import clean  # noqa: PLC0415 - most commands end well

    with contextlib.suppress(OSError):
        click.echo("\n".join(map(clean, f"rollbook: {message}".split("\n"))), err=True)


def _mute() -> None:
    """Let nothing more be written to stdout: what waits to be would fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
