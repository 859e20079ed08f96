"""The full screen of `watch`, in Textual: the table of all hosts, and one host's details over it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from rollbook.errors import ExitCode
from rollbook.metrics.live import Values
from rollbook.watch.board import Board
from rollbook.watch.table import HostTable
from rollbook.watch.text import details, headings, status_line

__all__ = ["Feed", "WatchApp", "show"]

REFRESH = 0.25  # seconds
FAR = 10**9  # beats: beyond the end of any record


HELP = """\
Up, Down, k, j      move to another host; Page Up and Page Down by a screen
Left, Right         scroll to columns that do not fit
Enter               details of the host: all metrics, their medians, and devices
s, S                sort by the next or the previous column; a click on a heading too
r                   reverse the order
u                   most unusual host first
Space               pause and continue
?                   this help
q                   quit

In a record:
, and .             one sample back or forward
[ and ]             a tenth of the record back or forward
Home, End           start and end of the record

`unusual` names the metric in which a host is furthest from the median of all
hosts. A dot stands for a metric that the host does not have."""


class Feed(Protocol):
    """Keeps a board up to date."""

    board: Board

    @property
    def ended(self) -> bool:
        """Whether the last beat is shown."""

    @property
    def place(self) -> tuple[int, int] | None:
        """The number of the beat that is shown, and the number of beats; None if it cannot seek."""

    def pause(self, paused: bool) -> None:
        """Pause if possible, or continue; `paused` is the new state."""

    def seek(self, beat: int) -> None:
        """Show the beat of that number, or the nearest one."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """The context in which the board is updated."""

    def devices(self, name: str) -> dict[str, Values]:
        """The metrics of a host's devices."""


async def show(feed: Feed) -> None:
    """Show a feed until the user quits."""
    async with feed.running():
        app = WatchApp(feed)
        await app.run_async()
    if app.return_code:  # Textual printed the traceback
        raise SystemExit(ExitCode.INTERNAL_ERROR)


class Details(ModalScreen[None]):
    """The details of one host, updated while they are shown."""

    CSS = "Details > VerticalScroll { margin: 1 3; padding: 1 2; background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter", "dismiss", "Back"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, text: Callable[[], Text]) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The text, which may scroll."""
        with VerticalScroll():
            yield Static(self._text(), id="details", markup=False)
        yield Footer()

    def redraw(self) -> None:
        """Show the current values."""
        self.query_one("#details", Static).update(self._text())


class WatchApp(App[None]):
    """The table of all hosts. Texts go in as `Text`, never as markup."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#status { background: $panel; padding: 0 1; } HostTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("question_mark", "help", "Help"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", show=False),
        Binding("u", "order('unusual')", "Unusual"),
        Binding("r", "reverse", "Reverse"),
        Binding("space", "pause", "Pause"),
        Binding("comma", "step(-1)", "Back"),
        Binding("full_stop", "step(1)", "Forward"),
        Binding("left_square_bracket", "jump(-1)", "-10 %"),
        Binding("right_square_bracket", "jump(1)", "+10 %"),
        Binding("home", "seek(0)", "Start", priority=True),
        Binding("end", f"seek({FAR})", "End", priority=True),
    ]

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed, self.order, self.reverse = feed, "unusual", False
        self.paused = False
        self.board = feed.board
        self._shown: tuple[int, bool] = (-1, False)

    def compose(self) -> ComposeResult:
        """The status line, the table, the keys."""
        yield Static(id="status", markup=False)
        yield HostTable(self.feed.board)
        yield Footer()

    def on_mount(self) -> None:
        """Start to refresh."""
        self._redraw()
        self.set_interval(REFRESH, self._refresh_if_changed)

    def on_host_table_chosen(self, event: HostTable.Chosen) -> None:
        """Enter on a host: its details."""
        name = event.host.name

        def text() -> Text:
            host = self.board.hosts[name]
            return Text(details(self.board, host, host.devices or self.feed.devices(name)))

        self.push_screen(Details(text))

    def on_host_table_ordered(self, event: HostTable.Ordered) -> None:
        """A click on a heading: sort by it; again: reverse."""
        if event.column in self._orders():
            self.action_order(event.column, reverse=event.column == self.order and not self.reverse)

    def action_help(self) -> None:
        """Show all keys; the footer has room for some of them."""
        if not isinstance(self.screen, Details):
            self.push_screen(Details(lambda: Text(HELP)))

    def action_order(self, column: str, *, reverse: bool = False) -> None:
        """Sort by a column."""
        self.order, self.reverse = column, reverse
        self._redraw()

    def action_sort(self, by: int) -> None:
        """Sort by the next or the previous column."""
        orders = self._orders()
        self.action_order(orders[(orders.index(self.order) + by) % len(orders)])

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.action_order(self.order, reverse=not self.reverse)

    def action_pause(self) -> None:
        """Pause or continue."""
        self.paused = not self.paused
        self.feed.pause(self.paused)
        self._show_current()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys for seeking with live hosts, which have no past."""
        del parameters
        return self.feed.place is not None or action not in ("step", "jump", "seek")

    def action_step(self, by: int) -> None:
        """Step some beats forward or back, and pause."""
        if self.feed.place:
            if not self.paused:
                self.action_pause()
            self.action_seek(self.feed.place[0] + by)

    def action_jump(self, by: int) -> None:
        """Move by a tenth of the record."""
        if self.feed.place:
            at, beats = self.feed.place
            self.action_seek(at + by * max(1, beats // 10))

    def action_seek(self, beat: int) -> None:
        """Show another beat of the record."""
        self.feed.seek(beat)
        self._show_current()

    def _orders(self) -> list[str]:
        return [column for column in headings(self.board) if column != "trend"]

    def _refresh_if_changed(self) -> None:
        """Show the board if it has changed. The timer may still run while the view is being closed."""
        is_open = bool(self.screen_stack) and bool(self.screen_stack[0].query(HostTable))
        if is_open and not self.paused and (self.feed.board.ticks, self.feed.ended) != self._shown:
            self._redraw()

    def _show_current(self) -> None:
        """Show the current board; while paused, a copy that does not change."""
        self.board = self.feed.board.frozen() if self.paused else self.feed.board
        self._redraw()

    def _redraw(self) -> None:
        board, main = self.board, self.screen_stack[0]
        self._shown = (board.ticks, self.feed.ended)
        main.query_one(HostTable).show(board, self.order, reverse=self.reverse)
        more = [status_line(board, self.order)]
        if self.feed.place:
            more.append(f"sample {self.feed.place[0] + 1} of {self.feed.place[1]}")
        more += ["paused"] if self.paused else ["end of the record"] if self.feed.ended else []
        main.query_one("#status", Static).update(Text("  ".join(more)))
        if isinstance(self.screen, Details):
            self.screen.redraw()
