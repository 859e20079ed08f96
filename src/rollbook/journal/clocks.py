"""A host's clock laid on the collector's: measured offsets, lines between them, steps and suspends told apart."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence

__all__ = ["Timeline"]

STEP = 50_000_000  # ns; the stand-in's monotonic clock itself moves in steps of 10 ms
FARTHEST_SET, FARTHEST_OFF = 1 << 60, 1 << 61  # ns: with these, times fit into 64 bits whatever a host says
MOST_JUMPS = 1000  # that are kept of either kind


class Timeline:
    """Built from a host's frames and clock measurements in the order they came; then gives collector times.

    A clock that somebody sets in the middle of a run is steadied: the step is seen because the monotonic clock does
    not make it, and taken out again, so that the line between two measurements stays a line. A host that was
    suspended looks the same (its monotonic clock stands still), but then the frames come as late as its wall clock
    says, and nothing is taken out. Each connection has measurements of its own.

    `steps` and `suspends` are when they were noticed, on the collector's clock, and by how much the clock jumped.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.suspends: list[tuple[int, int]] = []
        self._shift = 0
        self._before: tuple[int, int, int] | None = None
        self._points = [array("q")]  # of each connection: when and how far off, one after the other

    def connect(self) -> None:
        """A new connection: the host may have booted since."""
        self._before = None
        self._points.append(array("q"))

    def steady(self, mono: int, wall: int, arrived: int) -> int:
        """A frame's wall clock without the steps so far."""
        if self._before is not None:
            mono_before, wall_before, arrived_before = self._before
            jump = (wall - wall_before) - (mono - mono_before)
            if abs(jump) > STEP:
                passed = arrived - arrived_before
                if abs(wall - wall_before - passed) < abs(mono - mono_before - passed):
                    self._slept(arrived_before, arrived, jump)
                elif abs(self._shift + jump) <= FARTHEST_SET:
                    self._shift += jump
                    if len(self.steps) < MOST_JUMPS:
                        self.steps.append((arrived, jump))
        self._before = (mono, wall, arrived)
        return wall - self._shift

    def measured(self, at_ns: int, offset_ns: int) -> bool:
        """The clock was measured: `offset_ns` had to be added at `at_ns` of the collector's clock; if that can be."""
        offset = offset_ns + self._shift
        if abs(offset) > FARTHEST_OFF:
            return False
        self._points[-1].extend((at_ns - offset, offset))
        return True

    def times(self, walls: Sequence[int], connections: Sequence[int]) -> array[int]:
        """Collector times of steady walls; `connections` are the indices at which each connection begins.

        Between two measurements the offset lies on the line between them, outside it is the nearest. A connection
        without any takes the last one known.
        """
        found = array("q")
        edges = [0, *connections, len(walls)]
        known = next((points for points in self._points if points), array("q", (0, 0)))
        for points, first, last in zip(self._points, edges, edges[1:], strict=False):
            known = points or known[-2:]
            found.extend(_laid(walls[first:last], sorted(zip(known[::2], known[1::2], strict=True))))
        return found

    def _slept(self, before: int, arrived: int, jump: int) -> None:
        if jump < 0:
            # No sleep takes time back: the agent was held up between its two clocks at the frame before.
            if self.suspends and self.suspends[-1][0] == before:
                self.suspends.pop()
        elif len(self.suspends) < MOST_JUMPS:
            self.suspends.append((arrived, jump))


def _laid(walls: Sequence[int], points: list[tuple[int, int]]) -> list[int]:
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
