"""`rollbook exec`: run a command on every host."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence

import click

from rollbook.clean import clean, count_text
from rollbook.cli.live import run_interruptible
from rollbook.cli.options import OUTPUT, Number, SizeType, json_option, option
from rollbook.cli.output import ProgressView, coverage_line, names_by, print_failures, print_json, size, stderr
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.streams import end_with_reader
from rollbook.collect.execute import MAX_OUTPUT, Command, execute
from rollbook.errors import ExitCode, UsageError
from rollbook.hosts import Host, fold
from rollbook.records.commands import CommandResult, Execution
from rollbook.records.hosts import Coverage
from rollbook.times import iso_now

__all__ = ["command"]

MAX_LINE = 1 << 16  # bytes of a line that has not ended, after which it is printed


@click.command(
    "exec", cls=ReachCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@option("--live", heading=OUTPUT, is_flag=True, help="Print lines as they arrive, each with its host.")
@json_option
@option(
    "--max-output",
    heading=OUTPUT,
    type=SizeType(),
    default=MAX_OUTPUT,
    metavar="SIZE",
    help="Output to keep from each host; the rest is dropped and counted [default: 1 MiB].",
)
@click.option(
    "--command-timeout",
    type=Number(0.1),
    metavar="SECONDS",
    help="Kill the command on a host after this time [default: no limit]; --timeout limits the time to reach a host.",
)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS]...")
@reach_options
def command(
    reach: Reach,
    *,
    argv: tuple[str, ...],
    live: bool,
    as_json: bool,
    max_output: int,
    command_timeout: float | None,
) -> None:
    """Run COMMAND on every host; equal output is printed once, under the nodeset of its hosts.

    Several arguments are passed to the program exactly, without a shell; a single one is run by `sh -c`:
    `rollbook exec -- ls '/tmp/a b'`, `rollbook exec -- 'uptime | cut -c1-9'`. The command has an empty stdin. When it
    ends, and on Ctrl-C or a timeout, its whole process group is killed.

    Exit codes: 0 the command succeeded on all hosts, 1 it failed on some, 3 it did not finish on some, 4 no host
    reached, 130 interrupted.
    """
    if argv[0].startswith("-"):
        raise UsageError(f"no such option: {argv[0]}; put -- before the command")
    if live and as_json:
        raise UsageError("--live cannot be combined with --json")
    given = argv[0] if len(argv) == 1 else list(argv)
    what = Command(given, command_timeout, max_output)
    created = iso_now()
    lines = None
    if live:
        end_with_reader()
        lines = LiveLines()
    results, interrupted = _run(reach, what, lines)
    done = Execution(created=created, command=given, coverage=Coverage.of(results), hosts=results)
    if lines is not None:
        if lines.error is not None and not isinstance(lines.error, BrokenPipeError):
            raise lines.error
        lines.end()
    if as_json:
        print_json(done)
    elif lines is None:
        _print_folded(results)
    _print_dropped(results)
    _print_ends(results)
    print_failures(results)
    click.echo(_summary(done), err=True)
    sys.exit(ExitCode.INTERRUPTED if interrupted else done.exit_code)


class LiveLines:
    """Prints output line by line as it arrives, each line with its host; `error` is why that ended early."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self._open: dict[tuple[str, bool], bytes] = {}

    def add(self, host: Host, is_stderr: bool, data: bytes) -> None:
        """Print the lines that are complete."""
        *lines, rest = (self._open.pop((host.name, is_stderr), b"") + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        self._print(host.name, lines, is_stderr=is_stderr)
        if rest:
            self._open[host.name, is_stderr] = rest

    def end(self) -> None:
        """Print lines that were not ended."""
        for (name, is_stderr), line in self._open.items():
            self._print(name, [line], is_stderr=is_stderr)
        self._open.clear()

    def _print(self, name: str, lines: Sequence[bytes], *, is_stderr: bool) -> None:
        """Print lines at once: a host that sends a million short ones must not delay the others."""
        texts = (_printable(line.decode("utf-8", "backslashreplace"), err=is_stderr) for line in lines)
        if text := "".join(f"{name}: {line}\n" for line in texts):
            click.echo(text, nl=False, err=is_stderr, color=True)


def _run(reach: Reach, what: Command, lines: LiveLines | None) -> tuple[list[CommandResult], bool]:
    """The results of all hosts, and whether the user interrupted: the first Ctrl-C kills the commands."""
    with ProgressView(reach.hosts, shown=lines is None) as view:
        return run_interruptible(
            lambda stop: execute(
                reach.hosts,
                reach.route(),
                what,
                timeout=reach.options.timeout,
                fanout=reach.fanout,
                progress=view,
                on_output=_unless_broken(lines, stop) if lines else None,
                stop=stop,
                fallback=reach.fallback(),
            )
        )


def _unless_broken(lines: LiveLines, stop: asyncio.Event) -> Callable[[Host, bool, bytes], None]:
    """Print output until that fails, mostly because the reader of stdout is gone; then end the commands."""

    def guarded(host: Host, is_stderr: bool, data: bytes) -> None:
        try:
            if not stop.is_set():
                lines.add(host, is_stderr, data)
        except OSError as error:
            lines.error = error
            stop.set()

    return guarded


def _print_folded(results: list[CommandResult]) -> None:
    """Print each distinct output once, stdout on stdout and stderr on stderr, under the hosts that have it."""
    for is_stderr in (False, True):
        texts = ((result.stderr if is_stderr else result.stdout, result) for result in results)
        alike = names_by(((text, result.dropped_bytes > 0), result.name) for text, result in texts if text)
        for (text, truncated), names in sorted(alike.items(), key=lambda item: -len(item[1])):
            notes = ", stderr" * is_stderr + ", truncated" * truncated
            click.echo(f"--- {fold(names)} ({count_text(len(names), 'host')}{notes})", err=is_stderr)
            click.echo(_printable(text, err=is_stderr), nl=not text.endswith("\n"), err=is_stderr, color=True)


def _printable(text: str, *, err: bool) -> str:
    """The text; for a terminal, without control characters other than newline and tab.

    It is printed with `color=True`: otherwise click removes colours from what goes into a file or a pipe.
    """
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in text.split("\n"))


def _print_dropped(results: list[CommandResult]) -> None:
    """Mark output that is incomplete."""
    dropped = names_by((result.dropped_bytes, result.name) for result in results if result.dropped_bytes)
    for count, names in dropped.items():
        text = f"truncated  {fold(names)}: {size(count)} of output beyond --max-output dropped"
        stderr().print(text, style="yellow", soft_wrap=True)


def _print_ends(results: list[CommandResult]) -> None:
    """Name the hosts on which the command failed, by exit status."""
    ends = names_by((result.exit_status, result.name) for result in results if result.exit_status)
    for status, names in sorted(ends.items()):
        text = f"exit status {status}" if status > 0 else f"killed by {_signal_name(-status)}"
        stderr().print(f"{text}  {fold(names)}", style="red", soft_wrap=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _summary(done: Execution) -> str:
    """`7 of 8 hosts complete, 1 refused; exit status 0 on 6`."""
    good = sum(result.succeeded for result in done.hosts)
    return f"{coverage_line(done.coverage)}; exit status 0 on {good or 'none'}"
