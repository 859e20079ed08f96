"""The command line: one thin file per command, imported only when it runs."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from typing import Any

import click

from rollbook.cli.streams import guard, mute
from rollbook.errors import EXIT_CODES, ExitCode, RollbookError, UsageError
from rollbook.version import __version__

__all__ = ["COMMANDS", "Commands", "cli", "main"]

COMMANDS = {
    "hosts": "List the selected hosts, and check that they can be reached.",
    "snapshot": "Read the facts of every host once.",
    "exec": "Run a command on every host and fold equal output.",
    "run": "Run a command and record every host before, during and after it.",
    "record": "Record every host without a command.",
    "watch": "Show all hosts live in the terminal, or play back a record.",
    "mark": "Start a phase, from inside a command started by `run`.",
    "bundle": "Collect diagnostic evidence from every node: an issue report.",
    "check": "Apply the rules to a record or to live hosts.",
    "diff": "List the facts that differ between two records, two hosts, or the start and end of a run.",
    "compare": "Compare results, metrics and facts of runs or groups of repeated runs.",
    "list": "List the records of a results directory, newest first.",
    "report": "Write the offline HTML page of a record.",
    "query": "Run SQL over a record or all records.",
    "export": "Write a record in another format.",
    "grafana": "Print a Grafana dashboard for metrics sent with --push.",
    "describe": "Draft the MLPerf Storage system description from a record.",
    "verify": "Check manifest, hashes and signature of a record.",
    "recover": "Finish a record whose collector died.",
    "config": "Show the configured defaults of options and their origin.",
}

MODULES = {"list": "listing"}
"""Modules that are not named like their command: a module `list` would hide the built-in name in this package."""


class Commands(click.Group):
    """Subcommands by name; only the one that runs is imported, so that help and completion stay fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of a typical workflow."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and take its `command`."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = MODULES.get(cmd_name, cmd_name)
        command: click.Command = importlib.import_module(f"rollbook.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is an error with the closest name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib  # noqa: PLC0415 - only for a mistake

            close = difflib.get_close_matches(name, COMMANDS, n=1)
            suggestion = f"did you mean {close[0]}?" if close else "rollbook --help lists all"
            raise UsageError(f"no such command: {name}; {suggestion}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. If it ends with the reader of stdout, as in `rollbook query … | head`, it succeeded."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            mute(sys.stdout)
            sys.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


HELP = f"""Rollbook records every host of a cluster.

Exit codes: {"; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())}. `run` returns the exit status of
its command.
"""


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Commands, help=HELP, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="rollbook", message="%(prog)s %(version)s")
def cli() -> None:
    """The command line; its help names every exit code."""


def main() -> None:
    """Run the command line; every `RollbookError` is a message and an exit code, never a traceback."""
    _open_closed()
    # If our parent ignores it, the kernel discards every exit status, and Python takes a lost one for success.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):  # the encoding may lack characters: print others in their place
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.stdout, sys.stderr = guard(sys.stdout), guard(sys.stderr)
    try:
        code = _run()
        with contextlib.suppress(BrokenPipeError):  # as in `Commands.invoke`; the command has ended with its own code
            sys.stdout.flush()
    except OSError as error:  # mostly a full disk behind stdout: the output is incomplete
        reason = error.strerror or repr(error)
        _print_error(f"{error.filename}: {reason}" if error.filename else f"cannot write: {reason}")
        code = ExitCode.ERROR
    except KeyboardInterrupt:  # between two steps of click, which handles all others
        code = ExitCode.INTERRUPTED
    except Exception:  # noqa: BLE001 - without this, Python would exit with 1, which means findings
        traceback.print_exc()
        code = ExitCode.INTERNAL_ERROR
    _mute_failing()
    sys.exit(code)


def _open_closed() -> None:
    """Open standard streams that were closed (`>&-`) as /dev/null: the next file opened would get their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - stays open


def _run() -> Any:
    """Run the command and return its exit code."""
    try:
        return cli.main(prog_name="rollbook", standalone_mode=False, obj="process")
    except SystemExit as ended:
        return ended.code
    except click.exceptions.Abort:
        return ExitCode.INTERRUPTED
    except click.UsageError as error:
        message = error.format_message().rstrip(".")
        if isinstance(error, click.NoSuchOption):
            close = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
            message = f"no such option: {error.option_name}{close}"
        help_ = f"; see {error.ctx.command_path} --help" if error.ctx else ""
        _print_error(f"{message[:1].lower()}{message[1:]}{help_}")
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except RollbookError as error:
        _print_error(str(error))
        return error.exit_code


def _print_error(message: str) -> None:
    """Print a message on stderr. It may quote a host; a closed stderr does not change the exit code."""
    from rollbook.clean import clean  # noqa: PLC0415 - most commands succeed

    with contextlib.suppress(OSError):
        click.echo("\n".join(map(clean, f"rollbook: {message}".split("\n"))), err=True)


def _mute_failing() -> None:
    """Discard what stdout cannot write: flushing it would fail again when Python exits."""
    try:
        sys.stdout.flush()
    except OSError:
        mute(sys.stdout)
