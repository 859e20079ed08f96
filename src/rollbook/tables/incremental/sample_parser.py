"""The samples of one source of one host, parsed and kept as rows of numbers."""

from __future__ import annotations

from rollbook.errors import ParseError, ProtocolError
from rollbook.protocol.readings import READABLE, split_pages
from rollbook.sources.base import Source
from rollbook.tables.incremental.layout import Layout, NewShape
from rollbook.tables.incremental.lines import Lines, records_of

__all__ = ["SampleParser"]


class SampleParser:
    """Takes the bodies of one source of one host, one after the other; `take` gives what came of them.

    `refused` counts samples that the parser refused. They make no row, nor do those without a readable page.
    """

    def __init__(self, source: Source, *, incremental: bool = True) -> None:
        self.source, self.refused = source, 0
        self._layouts: list[Layout] = []
        self._layout: Layout | None = None
        self._lines: Lines | None = None
        self._connection, self._body, self._bad = -1, b"", False
        self._incremental = incremental and source.plain_numbers

    def __len__(self) -> int:
        """How many values are held."""
        return sum(len(layout.wholes) + len(layout.decimals) + 2 * len(layout) for layout in self._layouts)

    def take(self) -> list[Layout]:
        """Hand over what is there; the next sample begins a layout of its own."""
        layouts, self._layouts, self._layout, self._connection = self._layouts, [], None, -1
        return layouts

    def add(self, ts: int, mono: int, connection: int, body: bytes | None) -> None:
        """One more sample; without a body, the one before again."""
        if connection != self._connection:
            self._connection, self._layout, self._lines = connection, None, None
            body = self._body if body is None else body
        if body is not None:
            self._body = body
            try:
                self._read(body)
                self._bad = False
            except (ParseError, ProtocolError):
                self._layout, self._lines, self._bad = None, None, True
        self.refused += self._bad
        if self._layout is not None:
            self._layout.append(ts, mono)

    def _read(self, body: bytes) -> None:
        pages = {path: data for path, status, data in split_pages(body) if status in READABLE}
        if not pages:
            self._layout = self._lines = None
            return
        if self._lines is not None:
            if self._lines.changed(pages):
                return
            self._incremental = self._incremental and not self._lines.given_up
        records = records_of(self.source, pages)
        layout = self._layout
        try:
            if layout is not None:
                layout.replace(records, layout.now)
        except NewShape:
            layout = None
        if layout is None:
            layout = self._layout = Layout(self.source, records, self._connection)
            self._layouts.append(layout)
        self._lines = Lines(self.source, pages, records, layout) if self._incremental else None
