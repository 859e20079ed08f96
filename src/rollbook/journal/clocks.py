"""Host clocks mapped to the collector's clock: measured offsets, interpolation, clock steps and suspends."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence

__all__ = ["STEP", "CollectorClock", "Timeline"]

STEP = 50_000_000  # ns; the monotonic clock of the shell stand-in has a resolution of 10 ms
FARTHEST_SET, FARTHEST_OFF = 1 << 60, 1 << 61  # ns: with these limits, times fit into 64 bits whatever a host sends
MAX_JUMPS = 1000  # kept of each kind


class CollectorClock:
    """The collector's wall clock as it ran at the start, whatever it was set to during the run.

    Each event of the journal has the wall clock and `CLOCK_BOOTTIME`, which cannot be set and runs during a suspend. A
    change of their difference is a clock step; `steady` removes the steps so far. `steps` are their times, on the clock
    as it ran before, and by how much the clock moved.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self._shift = 0
        self._difference: int | None = None

    def observe(self, wall_ns: int, boot_ns: int) -> None:
        """Take both clocks of an event, in the order of the journal."""
        difference = wall_ns - boot_ns
        jump = difference - self._difference if self._difference is not None else 0
        if STEP < abs(jump) <= FARTHEST_SET:
            if len(self.steps) < MAX_JUMPS:
                self.steps.append((wall_ns - jump - self._shift, jump))
            self._shift += jump
        self._difference = difference

    def steady(self, wall_ns: int) -> int:
        """A time of the current wall clock on the clock as it ran at the start."""
        return wall_ns - self._shift

    def aligned(self, steady_ns: int, interval_ns: int) -> int:
        """A time moved by less than an interval, so that beats of the wall clock at that time are multiples of it."""
        shift = sum(by for at, by in self.steps if at <= steady_ns)
        return steady_ns + (shift + interval_ns // 2) % interval_ns - interval_ns // 2


class Timeline:
    """Built from a host's frames and clock measurements in the order they came; converts its times to the collector's.

    A step of the host's clock is detected because the monotonic clock does not make it, and is removed, so that the
    offset between two measurements stays linear. A suspend looks similar, because the monotonic clock stops, but then
    the frames arrive as late as the wall clock shows, and nothing is removed. Times of arrival must be steady. Each
    connection has its own measurements.

    `steps` and `suspends` are the times at which they were noticed, on the collector's clock, and the size of the jump.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.suspends: list[tuple[int, int]] = []
        self._shift = 0
        self._before: tuple[int, int, int] | None = None
        self._points = [array("q")]  # of each connection: time and offset of each measurement, alternating

    def connect(self) -> None:
        """Start a new connection: the host may have booted in between."""
        self._before = None
        self._points.append(array("q"))

    def steady(self, mono: int, wall: int, arrived: int) -> int:
        """The wall clock of a frame without the steps so far."""
        if self._before is not None:
            mono_before, wall_before, arrived_before = self._before
            jump = (wall - wall_before) - (mono - mono_before)
            if abs(jump) > STEP:
                passed = arrived - arrived_before
                if abs(wall - wall_before - passed) < abs(mono - mono_before - passed):
                    self._suspended(arrived_before, arrived, jump)
                elif abs(self._shift + jump) <= FARTHEST_SET:
                    self._shift += jump
                    if len(self.steps) < MAX_JUMPS:
                        self.steps.append((arrived, jump))
        self._before = (mono, wall, arrived)
        return wall - self._shift

    def measured(self, at_ns: int, offset_ns: int) -> bool:
        """Add a measurement: at `at_ns` of the collector's clock the offset was `offset_ns`; False if out of range."""
        offset = offset_ns + self._shift
        if abs(offset) > FARTHEST_OFF:
            return False
        self._points[-1].extend((at_ns - offset, offset))
        return True

    def times(self, walls: Sequence[int], connections: Sequence[int]) -> array[int]:
        """Collector times of steady wall clocks; `connections` are the indices at which connections start.

        Between two measurements the offset is interpolated, outside them the nearest one applies. A connection without
        measurements uses the latest one before it.
        """
        found = array("q")
        edges = [0, *connections, len(walls)]
        latest = next((points for points in self._points if points), array("q", (0, 0)))
        for points, first, last in zip(self._points, edges, edges[1:], strict=False):
            latest = points or latest[-2:]
            found.extend(_interpolated(walls[first:last], sorted(zip(latest[::2], latest[1::2], strict=True))))
        return found

    def latest(self, wall: int) -> int:
        """The collector's time of a steady wall clock by the latest measurement: what is known during a recording."""
        return wall + next((points[-1] for points in reversed(self._points) if points), 0)

    def _suspended(self, before: int, arrived: int, jump: int) -> None:
        if jump < 0:
            # A suspend cannot go back in time: the agent was delayed between reading its two clocks at the frame
            # before.
            if self.suspends and self.suspends[-1][0] == before:
                self.suspends.pop()
        elif len(self.suspends) < MAX_JUMPS:
            self.suspends.append((arrived, jump))


def _interpolated(walls: Sequence[int], points: list[tuple[int, int]]) -> list[int]:
    places = [at for at, _ in points]
    times = []
    for wall in walls:
        right = bisect.bisect_right(places, wall)
        if 0 < right < len(points):
            (left_at, left), (right_at, after) = points[right - 1], points[right]
            offset = left + (after - left) * (wall - left_at) // (right_at - left_at)
        else:
            offset = points[min(right, len(points) - 1)][1]
        times.append(wall + offset)
    return times
