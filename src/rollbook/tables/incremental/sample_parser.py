"""The samples of one source of one host, parsed and kept as rows of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rollbook.errors import ParseError, ProtocolError
from rollbook.protocol.readings import Page, readable_pages, split_pages
from rollbook.records.record import LossKind
from rollbook.sources.base import Source
from rollbook.tables.incremental.layout import Layout, NewShape
from rollbook.tables.incremental.lines import Lines, rows_of, without_rejected_lines
from rollbook.tables.losses import Tally

__all__ = ["SampleParser"]

LOSSES: tuple[LossKind, ...] = ("timed-out", "truncated", "failed", "denied")
"""Statuses of pages that are losses, the most important first; absent and skipped ones are not."""


class SampleParser:
    """Parses the bodies of one source of one host in order of time; `take` returns their layouts.

    `tally` counts stored and lost samples.
    """

    def __init__(self, source: Source, tally: Tally, *, incremental: bool = True) -> None:
        self.source, self.tally = source, tally
        self._layouts: list[Layout] = []
        self._layout: Layout | None = None
        self._lines: Lines | None = None
        self._connection, self._body = -1, b""
        self._loss: LossKind | None = None  # of the latest body
        self._present = False  # whether the host had the source in the latest body
        self._readable: set[str] = set()  # paths of pages that had text at any time
        self._incremental = incremental and source.plain_numbers

    def __len__(self) -> int:
        """The number of values held."""
        return sum(len(layout.integers) + len(layout.floats) + 2 * len(layout) for layout in self._layouts)

    def take(self) -> list[Layout]:
        """Remove and return all layouts; the next sample starts a new one."""
        layouts, self._layouts, self._layout, self._connection = self._layouts, [], None, -1
        return layouts

    def add(self, ts: int, mono: int, connection: int, body: bytes | None) -> None:
        """Add a sample; without a body, it is the same as the one before."""
        if connection != self._connection:
            self._connection, self._layout, self._lines = connection, None, None
            body = self._body if body is None else body
        if body is not None:
            self._body, self._loss, self._present = body, None, True
            try:
                self._read(body)
            except (ParseError, ProtocolError):
                self._layout, self._lines, self._loss = None, None, "rejected"
        tally = self.tally
        if self._layout is not None:
            self._layout.append(ts, mono)
            if self._loss is None and ts < tally.deadline:
                tally.stored += 1
                tally.latest, tally.deadline = ts, ts + tally.longest
            else:
                tally.add(ts, self._loss, stored=True)
        elif self._present:
            tally.add(ts, self._loss, stored=False)
        elif tally:
            tally.absent(ts)

    def lose(self, ts: int, kind: LossKind) -> None:
        """Count a sample that could not be decoded."""
        self.tally.add(ts, kind, stored=False)

    def _read(self, body: bytes) -> None:
        found = split_pages(body)
        pages = {path: data for path, status, data in found if status == "ok"}
        if len(pages) != len(found):
            pages = readable_pages(found)
            self._loss = self._worst(found, pages)
        if not pages:
            self._layout = self._lines = None
            self._present = self._loss is not None
            return
        if self._lines is not None:
            if self._lines.update(pages):
                return
            self._incremental = self._incremental and not self._lines.given_up
        self._readable.update(path for path, data in pages.items() if data)
        self._parse(pages)

    def _parse(self, pages: dict[str, bytes]) -> None:
        """Parse all pages; a line that the parser rejects affects only its own row, where lines can be parsed alone."""
        incremental = self._incremental
        try:
            rows = rows_of(self.source, pages)
        except ParseError:
            rows = without_rejected_lines(self.source, pages)
            self._loss, incremental = "rejected", False
        layout = self._layout
        try:
            if layout is not None:
                layout.replace(rows, layout.current)
        except NewShape:
            layout = None
        if layout is None:
            layout = self._layout = Layout(self.source, rows, self._connection)
            self._layouts.append(layout)
        self._lines = Lines(self.source, pages, rows, layout) if incremental else None

    def _worst(self, found: Sequence[Page], pages: Iterable[str]) -> LossKind | None:
        """The worst loss that the statuses of pages report.

        A page that fails or is denied beside readable ones is a loss only if it was readable before: many sensors never
        are. A program that fails and never had output is not a loss. A page that reports a lack of resources always is.
        """
        statuses = {
            status
            for path, status, data in found
            if status in ("timed-out", "truncated")
            or not pages
            or path in self._readable
            or (status == "failed" and data)
        }
        is_program = self.source.runs_program or any(order.op == "loop" for order in self.source.orders)
        is_short = any(status == "failed" and data for _, status, data in found)
        if statuses == {"failed"} and is_program and not self._readable and not is_short:
            return None
        return next((kind for kind in LOSSES if kind in statuses), None)
