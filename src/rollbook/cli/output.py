"""Output of commands: tables, failures, progress on stderr.

rich is imported inside the functions that draw: it takes longer to load than hosts take to answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

import click
import msgspec

from rollbook.clean import clean, count_text
from rollbook.hosts import Host, fold
from rollbook.records.causes import group_by_status
from rollbook.records.document import encode
from rollbook.records.hosts import Coverage, HasStatus

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "ProgressView",
    "coverage_line",
    "make_table",
    "names_by",
    "print_failures",
    "print_hosts",
    "print_json",
    "print_table",
    "size",
    "stderr",
    "table_width",
    "terminal_width",
    "text_width",
    "wrapped",
]

K = TypeVar("K")
MAX_TEXT_WIDTH = 100  # columns that text is wrapped at, however wide the terminal is
FOLD_ABOVE = 24  # with more hosts than this, equal rows are printed once with a folded nodeset
COLOURS = {"complete": "green", "partial": "yellow"}


def size(count: float) -> str:
    """Format bytes with a fitting unit."""
    from rollbook.metrics.formatting import amount  # noqa: PLC0415 - most commands print no sizes

    return amount(count, "B")


def stderr() -> Console:
    """A console on stderr for messages and progress."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def terminal_width(stream: TextIO) -> int:
    """The columns of a terminal, 80 if it does not know them; any number into a pipe."""
    if not stream.isatty():
        return sys.maxsize
    columns = os.environ.get("COLUMNS", "")
    try:
        return (int(columns) if columns.isdecimal() else os.get_terminal_size(stream.fileno()).columns) or 80
    except OSError:
        return 80


def text_width(stream: TextIO) -> int:
    """The columns that lines of text may have: those of a terminal, up to a limit; any number into a pipe."""
    width = terminal_width(stream)
    return width if width == sys.maxsize else min(width, MAX_TEXT_WIDTH)


def wrapped(text: str, stream: TextIO, indent: int) -> str:
    """The text in lines that fit the terminal `stream`, all but the first indented; into a pipe it stays one line.

    Words such as paths stay whole, so that they can be copied.
    """
    width = text_width(stream)
    if len(text) <= width:
        return text
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def print_json(document: Any) -> None:
    """Print a document as JSON. Arguments and paths in it need not be UTF-8: other bytes are replaced."""
    try:
        data = encode(document)
    except UnicodeEncodeError:
        from rollbook.adapters.argv import storable_text  # noqa: PLC0415 - most documents are UTF-8

        text = json.dumps(msgspec.to_builtins(document), ensure_ascii=False)
        data = encode(json.loads(storable_text(text)))
    click.echo(data, nl=False)


def make_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of plain strings, each column as wide as needed."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        shown.add_column(Text(clean(heading)), overflow="fold")
    for cells in rows:
        shown.add_row(*(Text(clean(cell), COLOURS.get(cell, "")) for cell in cells))
    return shown


def table_width(shown: Table, console: Console) -> int:
    """The width of a table without wrapping."""
    return console.measure(shown, options=console.options.update(max_width=10**9)).maximum


def names_by(pairs: Iterable[tuple[K, str]]) -> dict[K, list[str]]:
    """Group names by their key, from pairs of key and name."""
    found: dict[K, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found


def print_hosts(headings: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print a row per host or, if there are many, a row per distinct set of values with its hosts folded."""
    if len(rows) > FOLD_ABOVE:
        alike = names_by((tuple(cells), name) for name, cells in rows)
        rows = [(fold(names), cells) for cells, names in alike.items()]
    print_table(headings, [(name, *cells) for name, cells in rows])


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, wrap: bool = False) -> None:
    """Print a table; if it is wider than the terminal, each row as lines of name and value or, with `wrap`, wrapped.

    In a file or a pipe, it is as wide as it needs to be.
    """
    from rich.console import Console  # noqa: PLC0415

    shown, console = make_table(headings, rows), Console(highlight=False)
    width = table_width(shown, console)
    if not sys.stdout.isatty():  # FORCE_COLOR makes a terminal of a pipe for rich
        console.width = max(width, 1)
        with console.capture() as captured:
            console.print(shown)
        # Without the blanks that fill the last column.
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    elif wrap or width <= console.width:
        console.print(shown)
    else:
        _print_lines([clean(heading) for heading in headings], rows)


def _print_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as lines of name and value, an empty line between two rows."""
    longest = max(map(len, headings))
    for number, row in enumerate(rows):
        lines = (f"{name:<{longest}}  {clean(cell)}".rstrip() for name, cell in zip(headings, row, strict=True))
        click.echo("\n" * (number > 0) + "\n".join(lines))


def print_failures(hosts: Sequence[HasStatus]) -> None:
    """Print every host that is not complete on stderr, hosts with the same cause together."""
    for status, reason, names in group_by_status(host for host in hosts if host.status != "complete"):
        from rich.text import Text  # noqa: PLC0415 - usually no host failed

        text = wrapped(f"{status}  {clean(fold(names))}: {clean(reason)}", sys.stderr, 2)
        line = Text.assemble((status, COLOURS.get(status, "red")), text.removeprefix(status))
        stderr().print(line, soft_wrap=True)


def coverage_line(coverage: Coverage, noun: str = "host") -> str:
    """`6 of 8 hosts complete, 1 partial, 1 refused`."""
    if not coverage.requested:
        return f"no {noun}s"
    others = [f"{count} {status}" for status, count in coverage.by_status.items() if status != "complete"]
    complete = f"{coverage.by_status.get('complete', 0)} of {count_text(coverage.requested, noun)} complete"
    return ", ".join([complete, *others])


class ProgressView:
    """Shows counts and slow hosts while hosts are contacted, if `shown` and if stderr is a terminal."""

    def __init__(self, hosts: Sequence[Host], *, shown: bool = True) -> None:
        self._requested, self._done = len(hosts), Counter[str]()
        self._active: dict[str, float] = {}
        self._live: Live | None = None
        if shown and sys.stderr.isatty():
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(get_renderable=self._view, console=stderr(), refresh_per_second=5, transient=True)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            with contextlib.suppress(OSError):  # the terminal may be closed meanwhile
                self._live.stop()

    def begun(self, host: Host) -> None:
        """The connection to the host is started."""
        self._active[host.name] = time.monotonic()

    def done(self, result: HasStatus) -> None:
        """The host is finished."""
        self._active.pop(result.name, None)
        self._done[result.status] += 1

    @property
    def coverage(self) -> Coverage:
        """The hosts by status so far."""
        return Coverage(self._requested, dict(self._done))

    def _view(self) -> Text:
        from rich.text import Text  # noqa: PLC0415

        done, active = dict(self._done), dict(self._active)  # copies: this runs in another thread
        counts = "  ".join(f"{count} {status}" for status, count in done.items())
        text = Text(f"{sum(done.values())} of {count_text(self._requested, 'host')}  {counts}")
        slow = [name for name, since in active.items() if time.monotonic() - since > 2]
        if slow:
            text.append(f"\nwaiting for {fold(slow)}", "dim")
        return text
