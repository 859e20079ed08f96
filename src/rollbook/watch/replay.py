"""A record played again: its beats on a board, faster or slower than they were."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

from rollbook.errors import HostStatus, RecordError
from rollbook.records.run import Run
from rollbook.series import store
from rollbook.watch.board import LASTING, Board
from rollbook.watch.rates import COLUMNS, Values

__all__ = ["Replay"]

CHUNK = 1000
DEVICES = {"disks": ("disk_read", "disk_write"), "interfaces": ("net_rx", "net_tx")}


class Replay:
    """Feeds a board from a record; `ended` says that all was shown."""

    def __init__(self, run: Run, speed: float = 1.0) -> None:
        step = (run.hosts.interval_seconds or 0.0) * run.hosts.merged
        series = {host.name: host for host in run.hosts.series}
        if not step or not any(host.samples for host in series.values()):
            raise RecordError(f"{run.path} has no samples to play")
        names = dict.fromkeys([*(host.name for host in run.hosts.start), *series])
        self.board = Board(list(names), step)
        self.ended = False
        self._going = asyncio.Event()
        self._going.set()
        self._series, self._step_ns, self._speed = series, round(step * 1e9), speed
        self._start = {host.name: host for host in run.hosts.start}
        self._connection = store.connect(run)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Play the record."""
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
        for at_ns, rows in self._beats(tail=2 * LASTING):
            self._step(at_ns, rows)
        self._connection.close()

    def hold(self, held: bool) -> None:
        """Stop at this beat, or go on."""
        (self._going.clear if held else self._going.set)()

    def devices(self, name: str) -> dict[str, Values]:
        """The rates of a host's devices at the beat that is shown."""
        found: dict[str, Values] = {}
        at_ns = self.board.hosts[name].beat_ns
        for view, columns in DEVICES.items():
            rows = self._connection.cursor().execute(
                f"SELECT device, {', '.join(columns)} FROM {view} "  # noqa: S608 - our own names
                "WHERE host = ? AND ts = make_timestamp_ns(?) ORDER BY device",
                [name, at_ns],
            )
            for device, *values in rows.fetchall():
                found[device] = {c: v for c, v in zip(columns, values, strict=True) if v is not None}
        return found

    async def _play(self) -> None:
        for at_ns, rows in self._beats():
            self._step(at_ns, rows)
            await asyncio.sleep(self.board.interval / self._speed)
            await self._going.wait()
        self.ended = True

    def _beats(self, tail: int = 0) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """The rows of each beat and its time, also of beats that no host gave; only the last ones with `tail`."""
        ends = [host.last_ns for host in self._series.values() if host.last_ns]
        since = max(ends) - tail * self._step_ns if tail and ends else 0
        found = self._connection.cursor().execute(
            f"SELECT host, epoch_ns(ts), {', '.join(COLUMNS)} FROM rates "  # noqa: S608 - our own names
            "WHERE ts >= make_timestamp_ns(?) ORDER BY ts, host",
            [since],
        )
        rows = itertools.chain.from_iterable(iter(lambda: found.fetchmany(CHUNK), []))
        last: int | None = None
        for number, group in itertools.groupby(rows, key=lambda row: round(row[1] / self._step_ns)):
            for missing in range(number if last is None else last + 1, number):
                yield missing * self._step_ns, []
            last = number
            yield number * self._step_ns, list(group)

    def _step(self, at_ns: int, rows: list[tuple[Any, ...]]) -> None:
        board = self.board
        for host, ts, *values in rows:
            known = {column: float(v) for column, v in zip(COLUMNS, values, strict=True) if v is not None}
            board.beat(host, ts, known)
        given = {row[0] for row in rows}
        for name in board.hosts.keys() - given:
            if missing := self._missing(name, at_ns):
                board.lost(name, *missing, at_ns)
        board.tick(at_ns)

    def _missing(self, name: str, at_ns: int) -> tuple[HostStatus, str] | None:
        """Why there is nothing of a host then; None where the record does not say."""
        series = self._series.get(name)
        if series is None or not series.samples:
            known = series if series and series.status != "complete" else self._start.get(name)
            return (known.status, known.reason or "no samples") if known else ("failed", "no samples")
        gap = next((gap for gap in series.gaps if gap.start_ns <= at_ns <= gap.end_ns), None)
        return ("partial", gap.why) if gap else None
