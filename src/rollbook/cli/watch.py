"""`rollbook watch`: all hosts live in the terminal, or a record played again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from rollbook.api.finish import open_record
from rollbook.api.recording import LONGEST, SHORTEST
from rollbook.cli.options import Number, refuse_given
from rollbook.cli.output import failures, stderr, table
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.errors import UsageError
from rollbook.records.hosts import Coverage, HostResult
from rollbook.watch.board import Board, HostView
from rollbook.watch.live import Live
from rollbook.watch.replay import Replay
from rollbook.watch.text import headings, status_line, table_row

__all__ = ["command"]


@click.command("watch", cls=ReachCommand)
@click.argument("record", required=False, type=click.Path(path_type=Path))
@click.option(
    "--interval",
    type=Number(SHORTEST, LONGEST),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at live hosts.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Print one table of two looks, too few for RDMA and NFS, and end; so it is where stdout is no terminal.",
)
@click.option(
    "--speed",
    type=Number(0.1),
    default=10.0,
    show_default=True,
    metavar="N",
    help="How many times faster than it was a record is played.",
)
@reach_options
def command(reach: Reach, *, record: Path | None, interval: float, once: bool, speed: float) -> None:
    """Show what all hosts do now, most unusual first; nothing is kept.

    With RECORD, play that record instead. In the full screen: s and S choose the order, r turns it round, u puts the
    unusual first, Enter shows one host, space holds, q ends. In a record comma and full stop go one beat back and on,
    brackets a tenth of it, Home and End to its ends.
    """
    if record is not None:
        reach.refuse()
        refuse_given(["interval"], "a record has its own beats")
        if once:
            refuse_given(["speed"], "with --once nothing is played")
        feed: Live | Replay = Replay(open_record(record), speed)
    else:
        refuse_given(["speed"], "live hosts are shown as they are; a record can be played faster")
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
    records = [_record(host) for host in feed.board.hosts.values()]
    failures(records)
    sys.exit(0 if record else Coverage.of(records).exit_code)


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
    titles = headings(board)
    shown = [at for at, column in enumerate(titles) if column != "trend"]  # of one or two beats there is none
    rows = [table_row(board, host) for host in board.ordered()]
    chosen = [[row[at] for at in shown] for row in rows]
    table([list(titles.values())[at].upper() for at in shown], [(name, rest) for name, *rest in chosen])
    stderr().print(status_line(board, "unusual"), soft_wrap=True)


def _record(host: HostView) -> HostResult:
    """What became of a host, as other commands tell it."""
    if host.state == "lost":
        return HostResult(name=host.name, status=host.status, reason=host.reason)
    if host.state == "silent" or host.beats < 2:
        reason = "no more samples came" if host.state == "silent" else "no two samples came in time"
        return HostResult(name=host.name, status="timed-out", reason=reason)
    return HostResult(name=host.name, status="complete")
