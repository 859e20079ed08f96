"""`rollbook watch`: all hosts live in the terminal, or the playback of a record."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

import click
from rich.cells import cell_len

from rollbook.api.finish import open_record
from rollbook.api.settings import LONGEST, SHORTEST
from rollbook.cli.options import Number, refuse_given
from rollbook.cli.output import print_failures, print_hosts, stderr, terminal_width
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.record_argument import RecordPath
from rollbook.cli.streams import end_with_reader
from rollbook.errors import UsageError
from rollbook.records.hosts import Coverage, HostResult
from rollbook.watch.board import Board, HostView
from rollbook.watch.live import Live
from rollbook.watch.replay import Replay
from rollbook.watch.text import headings, status_line, table_row

__all__ = ["command"]


@click.command("watch", cls=ReachCommand)
@click.argument("record", required=False, type=RecordPath())
@click.option(
    "--interval",
    type=Number(SHORTEST, LONGEST),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Sampling interval of live hosts.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Take two samples (too few for RDMA and NFS), print one table and exit; default if stdout is not a terminal.",
)
@click.option(
    "--speed",
    type=Number(0.1),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Playback speed of a record.",
)
@reach_options
def command(reach: Reach, *, record: Path | None, interval: float, once: bool, speed: float) -> None:
    """Show the metrics of all hosts live, the most unusual first; nothing is stored.

    With RECORD, play that record instead. Keys: s and S select the column to sort by, r reverses the order, u sorts by
    most unusual, Enter opens a host, space pauses, q quits. In a record, comma and full stop step one sample back and
    forward, brackets a tenth of the record, Home and End go to its start and end.
    """
    end_with_reader()
    if record is not None:
        reach.refuse()
        refuse_given(["interval"], "a record has its own interval")
        if once:
            refuse_given(["speed"], "--once does not play the record")
        feed: Live | Replay = Replay(open_record(record), speed)
    else:
        refuse_given(["speed"], "only a record can be played faster")
        feed = Live(
            reach.hosts,
            reach.route(),
            interval=interval,
            timeout=reach.options.timeout,
            fanout=reach.fanout,
            fallback=reach.fallback(),
        )
    if not once and sys.stdout.isatty():
        asyncio.run(_full_screen(feed))
        return
    asyncio.run(feed.settle())
    _print(feed.board)
    results = [_result(host) for host in feed.board.hosts.values()]
    print_failures(results)
    sys.exit(0 if record else Coverage.of(results).exit_code)


async def _full_screen(feed: Live | Replay) -> None:
    try:
        from rollbook.watch.screen import show  # noqa: PLC0415 - an extra, and only the full screen needs it
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise UsageError(
            "the full screen needs Textual: pip install 'rollbook[tui]'; --once prints one table without it"
        ) from None
    await show(feed)


def _print(board: Board) -> None:
    """Print one table, on a terminal only the columns that fit it: the first metrics are those that matter most."""
    rows = [table_row(board, host) for host in board.ordered()]
    titled = zip(headings(board).items(), zip(*rows, strict=True), strict=True)
    columns = [(title.upper(), *cells) for (name, title), cells in titled if name != "trend"]  # of two samples
    if sys.stdout.isatty():
        ends = itertools.accumulate(2 + max(map(cell_len, column)) for column in columns)
        columns = [column for column, end in zip(columns, ends, strict=True) if end - 2 <= terminal_width(sys.stdout)]
    titles, *cells = zip(*columns, strict=True)
    print_hosts(titles, [(name, rest) for name, *rest in cells])
    stderr().print(status_line(board, "unusual"), soft_wrap=True)


def _result(host: HostView) -> HostResult:
    """The result of a host, as other commands report it."""
    if host.state == "lost":
        return HostResult(name=host.name, status=host.status, reason=host.reason)
    if host.state == "silent" or host.beats < 2:
        reason = "no more samples arrived" if host.state == "silent" else "no two samples arrived in time"
        return HostResult(name=host.name, status="timed-out", reason=reason)
    return HostResult(name=host.name, status="complete")
