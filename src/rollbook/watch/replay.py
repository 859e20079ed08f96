"""A record played again: its beats on a board, faster or slower than they were, from wherever the user wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from rollbook.errors import HostStatus, RecordError
from rollbook.metrics.counters import GOOD_FOR
from rollbook.metrics.live import COLUMNS, Values
from rollbook.protocol.beats import shell_step
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.sql import connection as store
from rollbook.watch.board import HISTORY, LASTING, Board

__all__ = ["Replay"]

DEVICES = {
    "disks": ("diskstats", ("disk_read", "disk_write")),
    "interfaces": ("net_dev", ("net_rx", "net_tx")),
    "gpus": ("gpu", ("gpu_util", "gpu_memory")),
    "ports": ("infiniband_counters", ("rdma_rx", "rdma_tx")),
    "nfs_mounts": ("nfs", ("nfs_read", "nfs_write")),
}
"""By view: the source whose beats it has, and its columns."""
BEATS = f"""CREATE OR REPLACE TEMP TABLE beats AS
    SELECT (epoch_ns(ts) - ?) // ? AS number, host, epoch_ns(ts) AS ts, {", ".join(COLUMNS)}
    FROM rates WHERE ts >= make_timestamp_ns(?) ORDER BY number, host, ts"""  # noqa: S608 - our own names


class Replay:
    """Feeds a board from a record; `ended` says that all was shown, `place` which beat of how many is."""

    def __init__(self, run: Record, speed: float = 1.0) -> None:
        step = (run.hosts.interval_seconds or 0.0) * run.hosts.merged
        series = {host.name: host for host in run.hosts.series}
        if not step or not any(host.samples for host in series.values()):
            raise RecordError(f"{run.path} has no samples to play")
        names = dict.fromkeys([*(host.name for host in run.hosts.start), *series])
        self.board = Board(list(names), step)
        least = shell_step(run.hosts.interval_seconds or 0.0)
        self.board.slower = {name: max(step, least) for name in run.hosts.without_python}
        self._going, self._moved = asyncio.Event(), asyncio.Event()
        self._going.set()
        self._series, self._step_ns, self._speed = series, round(step * 1e9), speed
        self._merged = run.hosts.merged
        self._start = {host.name: host for host in run.hosts.start}
        self._connection = store.connect(run)
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
        """The number of the beat shown, and how many there are."""
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
        """Go to the end at once."""
        last = max(host.last_ns or 0 for host in self._series.values())
        self._load(last - 2 * LASTING * self._step_ns)
        self.seek(self._last - self._first)
        self._connection.close()

    def hold(self, held: bool) -> None:
        """Stop at this beat, or go on."""
        (self._going.clear if held else self._going.set)()

    def seek(self, beat: int) -> None:
        """Show the beat of that number, or the nearest there is, with as much of its past as a board keeps."""
        wanted = min(max(self._first + beat, self._first), self._last)
        if not self._at < wanted <= self._at + HISTORY:
            self.board.clear()
            self._at = max(self._first, wanted - HISTORY) - 1
        while self._at < wanted:
            self._show(self._at + 1, judged=self._at + LASTING >= wanted)
        for name, series in self._series.items():
            self.board.hosts[name].drops = sum(gap.start_ns <= self._time(self._at) for gap in series.gaps)
        self._moved.set()

    def devices(self, name: str) -> dict[str, Values]:
        """The rates of a host's devices at the beat that is shown; of slow sources, those that still stand."""
        found: dict[str, Values] = {}
        if not self.board.hosts[name].there:
            return found
        at_ns = self.board.hosts[name].beat_ns
        for view, (source, columns) in DEVICES.items():
            beats = catalogue.source(source).beats(self._step_ns / self._merged / 1e9)
            since = at_ns if beats <= self._merged else at_ns - round(GOOD_FOR * beats / self._merged * self._step_ns)
            rows = self._connection.cursor().execute(
                f"SELECT device, {', '.join(columns)} FROM {view} "  # noqa: S608 - our own names
                "WHERE host = ? AND ts BETWEEN make_timestamp_ns(?) AND make_timestamp_ns(?) ORDER BY device, ts",
                [name, since, at_ns],
            )
            for device, *values in rows.fetchall():
                found[device] = {c: float(v) for c, v in zip(columns, values, strict=True) if v is not None}
        return found

    def _load(self, since_ns: int = 0) -> None:
        """Put the rates in the order of time; from then on only, where that is enough."""
        self._connection.execute(BEATS, [self._origin, self._step_ns, since_ns])
        ends = self._connection.execute("SELECT min(number), max(number) FROM beats").fetchall()[0]
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

    def _show(self, number: int, *, judged: bool = True) -> None:
        """The rows of a beat on the board, also of one that no host gave."""
        board, at_ns, self._at = self.board, self._time(number), number
        rows = self._connection.execute("SELECT * EXCLUDE number FROM beats WHERE number = ?", [number]).fetchall()
        for host, ts, *values in rows:
            board.beat(host, ts, _known(values))
        given = {row[0] for row in rows}
        for name in board.hosts.keys() - given:
            if missing := self._missing(name, at_ns):
                board.lost(name, *missing)
        board.tick(at_ns, judged=judged)

    def _time(self, number: int) -> int:
        """When a beat was: the last of those that it was made of."""
        return self._origin + (number + 1) * self._step_ns - self._half

    def _missing(self, name: str, at_ns: int) -> tuple[HostStatus, str, int] | None:
        """Why there is nothing of a host then, and since when; None where the record does not say."""
        series = self._series.get(name)
        if series is None or not series.samples:
            known = series if series and series.status != "complete" else self._start.get(name)
            status, reason = (known.status, known.reason) if known else ("failed", "")
            return status, reason or "no samples", self._time(self._first)
        gap = next((gap for gap in series.gaps if gap.start_ns <= at_ns <= gap.end_ns), None)
        return ("partial", gap.why, gap.start_ns) if gap else None


def _known(values: list[Any]) -> Values:
    return {column: float(value) for column, value in zip(COLUMNS, values, strict=True) if value is not None}
