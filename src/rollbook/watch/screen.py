"""The full screen of `watch`, in Textual: the table of all hosts, and one host's details over it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from rollbook.watch.board import Board, HostView
from rollbook.watch.rates import Values
from rollbook.watch.words import HEADINGS, TREND, cells, details, status_line

__all__ = ["Feed", "WatchApp", "show"]

LOOK_EVERY = 0.25  # seconds
STYLES = {"lost": "red", "silent": "yellow", "connecting": "dim", "back": "green"}


class Feed(Protocol):
    """What keeps a board up to date."""

    board: Board
    ended: bool

    def hold(self, held: bool) -> None:
        """Stop, where that can be, or go on."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """The block in which it does."""

    def devices(self, name: str) -> dict[str, Values]:
        """The rates of a host's devices."""


async def show(feed: Feed) -> None:
    """Show a feed until the user has seen enough."""
    async with feed.running():
        await WatchApp(feed).run_async()


class Details(ModalScreen[None]):
    """One host, as long as it is looked at."""

    CSS = "Details > VerticalScroll { margin: 1 3; padding: 1 2; background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "Back"),
    ]

    def __init__(self, text: Callable[[], Text]) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The text, which may be longer than the screen."""
        with VerticalScroll():
            yield Static(self._text(), id="details", markup=False)
        yield Footer()

    def renew(self) -> None:
        """Show how the host is now."""
        self.query_one("#details", Static).update(self._text())


class WatchApp(App[None]):
    """The table of all hosts. Untrusted texts go in as `Text`, never as markup."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#status { background: $panel; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("s", "sort(1)", "Next order"),
        Binding("S", "sort(-1)", "Order before"),
        Binding("u", "order('unusual')", "Unusual first"),
        Binding("r", "reverse", "Reverse"),
        Binding("space", "pause", "Hold"),
    ]

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed, self.order, self.reverse = feed, "unusual", False
        self.held = False
        self._shown: tuple[int, bool] = (-1, False)

    def compose(self) -> ComposeResult:
        """A line of counts, the table, the keys."""
        yield Static(id="status", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True, fixed_columns=1)
        yield Footer()

    def on_mount(self) -> None:
        """Make the columns; look at the board from now on."""
        table = self._table
        # Widths are given: to measure every cell of a thousand hosts takes longer than all else.
        longest = max((len(name) for name in self.feed.board.hosts), default=0)
        widths = {"host": min(40, max(4, longest)), "state": 12, "unusual": 30}
        for column, heading in HEADINGS.items():
            table.add_column(heading, key=column, width=widths.get(column, 10))
        table.add_column("trend", key="trend", width=TREND)
        self._renew()
        self.set_interval(LOOK_EVERY, self._look)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter on a host: its details."""
        host = self.feed.board.hosts[str(event.row_key.value)]
        self.push_screen(Details(lambda: Text(details(self.feed.board, host, self.feed.devices(host.name)))))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a heading: order by it; again: the other way round."""
        column = str(event.column_key.value)
        if column in HEADINGS:
            self.reverse = column == self.order and not self.reverse
            self.action_order(column, reverse=self.reverse)

    def action_order(self, column: str, *, reverse: bool = False) -> None:
        """Order by a column."""
        self.order, self.reverse = column, reverse
        self._renew()

    def action_sort(self, by: int) -> None:
        """Order by the next column, or the one before."""
        names = list(HEADINGS)
        self.action_order(names[(names.index(self.order) + by) % len(names)])

    def action_reverse(self) -> None:
        """The other way round."""
        self.action_order(self.order, reverse=not self.reverse)

    def action_pause(self) -> None:
        """Hold what is shown, or go on."""
        self.held = not self.held
        self.feed.hold(self.held)
        self._renew()

    @property
    def _table(self) -> DataTable[Text]:
        return self.screen_stack[0].query_one(DataTable)

    def _look(self) -> None:
        if not self.held and (self.feed.board.ticks, self.feed.ended) != self._shown:
            self._renew()

    def _renew(self) -> None:
        board, table = self.feed.board, self._table
        self._shown = (board.ticks, self.feed.ended)
        chosen = _chosen(table)
        hosts = board.ordered(self.order, reverse=self.reverse)
        table.clear()
        for host in hosts:
            table.add_row(*_styled(board, host, self.order), key=host.name)
        if chosen in board.hosts:
            table.move_cursor(row=table.get_row_index(chosen), animate=False)
        more = "  held" if self.held else "  end of the record" if self.feed.ended else ""
        self.screen_stack[0].query_one("#status", Static).update(Text(status_line(board, self.order) + more))
        if isinstance(self.screen, Details):
            self.screen.renew()


def _chosen(table: DataTable[Text]) -> str:
    """The host that the cursor is on."""
    if not table.row_count:
        return ""
    return str(table.coordinate_to_cell_key(Coordinate(table.cursor_row, 0)).row_key.value)


def _styled(board: Board, host: HostView, order: str) -> list[Text]:
    style = STYLES.get(host.state, "")
    name, state, *rest = cells(board, host, order)
    return [
        Text(name, style),
        Text(state, style),
        *(Text(cell, justify="right") for cell in rest[:-2]),
        *map(Text, rest[-2:]),
    ]
