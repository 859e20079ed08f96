"""Playback of a record: its beats on a board, at any speed, from any position."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rollbook.errors import HostStatus, RecordError
from rollbook.metrics import catalogue
from rollbook.metrics.counters import HOLD
from rollbook.metrics.live import Values
from rollbook.protocol.beats import shell_step
from rollbook.records.record import Record
from rollbook.sql import connection as store
from rollbook.watch.board import HISTORY, LASTING, Board

__all__ = ["Replay"]

BEATS = """CREATE OR REPLACE TEMP TABLE played AS
    SELECT (epoch_ns(ts) - ?) // ? AS number, host, epoch_ns(ts) AS ts, {columns}
    FROM rates WHERE ts >= make_timestamp_ns(?) ORDER BY number, host, ts"""


class Replay:
    """Feeds a board from a record; `ended` means that the last beat is shown, `place` is the number of the beat."""

    def __init__(self, record: Record, speed: float = 1.0) -> None:
        step = (record.hosts.interval_seconds or 0.0) * record.hosts.merged
        series = {host.name: host for host in record.hosts.series}
        if not step or not any(host.samples and host.first_ns for host in series.values()):
            raise RecordError(f"{record.path} has no samples to play")
        names = dict.fromkeys([*(host.name for host in record.hosts.start), *series])
        self.board = Board(list(names), step)
        least = shell_step(record.hosts.interval_seconds or 0.0)
        self.board.slower = {name: max(step, least) for name in record.hosts.without_python}
        self._going, self._moved = asyncio.Event(), asyncio.Event()
        self._going.set()
        self._series, self._step_ns, self._speed = series, round(step * 1e9), speed
        self._merged = record.hosts.merged
        self._start = {host.name: host for host in record.hosts.start}
        self._run, self._connection = record, store.connect(record, as_live=True)
        self._first, self._last, self._at = 0, 0, -1
        # Merged samples have the time of their last beat: the edges of groups lie half a beat before the first.
        self._half = self._step_ns // self._merged // 2
        self._origin = min(host.first_ns for host in series.values() if host.first_ns) - self._half

    @property
    def ended(self) -> bool:
        """Whether the last beat is shown."""
        return self._at == self._last

    @property
    def place(self) -> tuple[int, int]:
        """The number of the beat that is shown, and the number of beats."""
        return max(0, self._at - self._first), self._last - self._first + 1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Play the record."""
        self._load()
        playing = asyncio.create_task(self._play())
        try:
            yield
        finally:
            playing.cancel()
            await asyncio.wait([playing])
            self._connection.close()
            if not playing.cancelled():
                playing.result()

    async def settle(self) -> None:
        """Go to the end."""
        last = max(host.last_ns or 0 for host in self._series.values())
        self._load(last - 2 * LASTING * self._step_ns)
        self.seek(self._last - self._first)
        self._connection.close()

    def pause(self, paused: bool) -> None:
        """Stop at this beat, or continue."""
        (self._going.clear if paused else self._going.set)()

    def seek(self, beat: int) -> None:
        """Show the beat of that number, or the nearest one, with as much history as a board keeps."""
        wanted = min(max(self._first + beat, self._first), self._last)
        if not self._at < wanted <= self._at + HISTORY:
            self.board.clear()
            self._at = max(self._first, wanted - HISTORY) - 1
        while self._at < wanted:
            self._show(self._at + 1, compare=self._at + LASTING >= wanted)
        for name, series in self._series.items():
            self.board.hosts[name].drops = sum(gap.start_ns <= self._time(self._at) for gap in series.gaps)
        self._moved.set()

    def devices(self, name: str) -> dict[str, Values]:
        """The metrics of a host's devices at the beat that is shown."""
        found: dict[str, Values] = {}
        if not self.board.hosts[name].is_up:
            return found
        at_ns, interval = self.board.hosts[name].beat_ns, self._step_ns / self._merged / 1e9
        for part in catalogue.parts().values():
            columns = [metric.name for metric in part.metrics if metric.watch]
            if not columns or not part.shows_devices:
                continue
            beats = max(table.source.beats(interval) for table in part.tables)
            since = at_ns - round(HOLD * max(1, beats / self._merged) * self._step_ns) if part.is_held else at_ns
            query = (
                f"SELECT device, {', '.join(columns)} FROM {part.name} "  # noqa: S608 - our own names
                "WHERE host = ? AND ts BETWEEN make_timestamp_ns(?) AND make_timestamp_ns(?) ORDER BY device, ts"
            )
            with store.readable(self._run):
                rows = self._connection.cursor().execute(query, [name, since, at_ns]).fetchall()
            for device, *values in rows:
                found[device] = {c: float(v) for c, v in zip(columns, values, strict=True) if v is not None}
        return {device: values for device, values in found.items() if values}

    def _load(self, since_ns: int = 0) -> None:
        """Sort the metrics by time, from `since_ns` on; raises `RecordError` for damaged tables."""
        query = BEATS.format(columns=", ".join(self.board.metrics))
        with store.readable(self._run):
            self._connection.execute(query, [self._origin, self._step_ns, since_ns])
        ends = self._connection.execute("SELECT min(number), max(number) FROM played").fetchall()[0]
        if ends[0] is None:
            raise RecordError("the record's tables have no samples to play")
        self._first, self._last = ends
        self._at = self._first - 1

    async def _play(self) -> None:
        while True:
            await self._going.wait()
            if self.ended:
                self._moved.clear()
                await self._moved.wait()
            else:
                self._show(self._at + 1)
                await asyncio.sleep(self.board.interval / self._speed)

    def _show(self, number: int, *, compare: bool = True) -> None:
        """Show a beat on the board, also one without samples."""
        board, at_ns, self._at = self.board, self._time(number), number
        rows = self._connection.execute("SELECT * EXCLUDE number FROM played WHERE number = ?", [number]).fetchall()
        for host, ts, *values in rows:
            if host not in board.hosts:  # it is in the tables only
                continue
            known = zip(board.metrics, values, strict=True)
            board.beat(host, ts, {column: float(value) for column, value in known if value is not None})
        for name in board.hosts.keys() - {row[0] for row in rows}:
            if missing := self._missing(name, at_ns):
                board.lost(name, *missing)
        board.tick(at_ns, compare=compare)

    def _time(self, number: int) -> int:
        """The time of a beat; of merged beats, that of the last."""
        return self._origin + (number + 1) * self._step_ns - self._half

    def _missing(self, name: str, at_ns: int) -> tuple[HostStatus, str, int] | None:
        """Status, reason and start of a host's absence at that time; None if the record has none."""
        series = self._series.get(name)
        if series is None or not series.samples:
            known = series if series and series.status != "complete" else self._start.get(name)
            status, reason = (known.status, known.reason) if known else ("failed", "")
            return status, reason or "no samples", self._time(self._first)
        gap = next((gap for gap in series.gaps if gap.start_ns <= at_ns <= gap.end_ns), None)
        return ("partial", gap.why, gap.start_ns) if gap else None
