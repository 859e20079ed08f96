"""The table of the full screen; renders only visible lines, so that the cost does not grow with the number of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rollbook.watch.board import FIRST, Board, HostView
from rollbook.watch.text import TREND, headings, table_row

__all__ = ["HostTable"]

WIDTHS = {"host": 40, "state": 14, "trend": TREND, "unusual": 22}  # at most
WIDTH, GAP = 11, 2  # a metric: "1023 MiB/s"
NARROW = {"unusual": 16}  # where the first metrics would not fit otherwise: "disk write 9.1 ×"
MEASURED_HOSTS = 200  # hosts that the widths of columns are taken from
LEFT = ("host", "state", "trend", "unusual")
HEAD, CURSOR = Style(bold=True, underline=True), Style(reverse=True)
STYLES = {"lost": Style(color="red"), "silent": Style(color="yellow"), "back": Style(color="green")}
ORDERED = Style(bold=True, underline=True, reverse=True)


class HostTable(ScrollView, can_focus=True):
    """A heading and a line per host. The cursor stays on its host when the order changes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("enter", "choose", "Details"),
    ]

    class Chosen(Message):
        """A host was chosen."""

        def __init__(self, host: HostView) -> None:
            super().__init__()
            self.host = host

    class Ordered(Message):
        """A heading was clicked."""

        def __init__(self, column: str) -> None:
            super().__init__()
            self.column = column

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board, self.order = board, ""
        self.hosts: Sequence[HostView] = []
        self.cursor = 0
        self._seen: dict[str, int] = {}  # the widest cell of each column so far: columns grow, and never jump back

    def show(self, board: Board, order: str, *, reverse: bool) -> None:
        """Show the hosts of a board, in that order."""
        on = self.hosts[self.cursor].name if self.hosts else ""
        hosts = board.ordered(order, reverse=reverse)
        self.board, self.hosts, self.order = board, hosts, order
        self.cursor = next((index for index, host in enumerate(hosts) if host.name == on), 0)
        for host in hosts[:MEASURED_HOSTS]:
            for name, text in zip(headings(board), table_row(board, host, order), strict=True):
                self._seen[name] = max(self._seen.get(name, 0), cell_len(text))
        widths, gap = self._layout()
        self.virtual_size = Size(sum(widths.values()) + gap * len(widths), len(hosts) + 1)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Render a line; the heading does not scroll."""
        index, (widths, gap) = y - 1 + self.scroll_offset.y, self._layout()
        titles = headings(self.board, self.order)
        if y == 0:
            texts = titles
            styles = {name: ORDERED if name == self.order else HEAD for name in widths}
        elif index < len(self.hosts):
            host = self.hosts[index]
            texts = dict(zip(titles, table_row(self.board, host, self.order), strict=True))
            style = STYLES.get(host.state, Style.null()) + (CURSOR if index == self.cursor else Style.null())
            styles = dict.fromkeys(widths, style)
        else:
            return Strip.blank(self.size.width, Style.null())
        segments = [
            Segment(_fit(texts[name], width, left=name in LEFT) + " " * gap, styles[name])
            for name, width in widths.items()
        ]
        across = self.scroll_offset.x
        return Strip(segments).crop(across, across + self.size.width).adjust_cell_length(self.size.width, Style.null())

    def _layout(self) -> tuple[dict[str, int], int]:
        """The columns in their order with their widths, and the gap between two.

        The trend comes last and columns are narrower if the first metrics would not fit the screen otherwise. A host
        may have added a column since `show`.
        """
        widths = {
            name: max(cell_len(title), min(WIDTHS.get(name, WIDTH), self._seen.get(name, 0)))
            for name, title in headings(self.board, self.order).items()
        }
        last = {name: width for name, width in widths.items() if name != "trend"} | {"trend": widths["trend"]}
        narrow = {name: min(width, NARROW.get(name, width)) for name, width in last.items()}
        for columns, gap in ((widths, GAP), (last, GAP), (last, 1)):
            first = list(columns)[: list(columns).index(FIRST[-1]) + 1]
            if sum(columns[name] + gap for name in first) - gap <= self.size.width:
                return columns, gap
        return narrow, 1

    def action_move(self, by: int) -> None:
        """Move the cursor, and scroll if needed."""
        self.cursor = max(0, min(len(self.hosts) - 1, self.cursor + by))
        top, seen = self.scroll_offset.y, max(1, self.size.height - 1)
        if not top <= self.cursor < top + seen:
            self.scroll_to(y=self.cursor if self.cursor < top else self.cursor - seen + 1, animate=False)
        self.refresh()

    def action_page(self, by: int) -> None:
        """Move by a screen."""
        self.action_move(by * max(1, self.size.height - 2))

    def action_choose(self) -> None:
        """Choose the host under the cursor."""
        if self.hosts:
            self.post_message(self.Chosen(self.hosts[self.cursor]))

    def on_click(self, event: events.Click) -> None:
        """A click on a heading sorts, the first on a host moves the cursor there, the second opens the host."""
        index = event.y - 1 + self.scroll_offset.y
        if event.y == 0:
            at = event.x + self.scroll_offset.x
            widths, gap = self._layout()
            for name, width in widths.items():
                at -= width + gap
                if at < 0:
                    self.post_message(self.Ordered(name))
                    return
        elif index < len(self.hosts):
            again, self.cursor = index == self.cursor, index
            self.refresh()
            if again:
                self.action_choose()


def _fit(text: str, width: int, *, left: bool) -> str:
    """The text padded or cut to a width in terminal cells."""
    fitting = set_cell_size(text, width)
    return fitting if left else fitting.rstrip().rjust(width)
