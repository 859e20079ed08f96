"""What one host may send: limits that no real machine reaches, so that a faulty or hostile host affects only itself.

The limits follow from the plan and the interval. A source's `limit` bounds its text, so the plan bounds the text of
all facts and of one beat:

- bytes: half of a beat's text per interval, on top of a burst of all facts and four beats;
- frames: twice what the shell stand-in needs, which sends one frame per source, on top of a burst;
- inflated bytes: a beat's text per interval, on top of a burst of three times all facts and four beats, and eight times
  that in samples so small that they are not measured;
- bytes in total: 128 MiB, and for every beat so far a 64th of its text, or an eighth for a beat of the stand-in.

A command of the user may send twice the bytes of its output, and a mebibyte.

A mark adds the allowance of one beat. The agent deflates its samples and sends a few kilobytes per beat, about a
thousandth of these limits; only the stand-in sends plain text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Self

from rollbook.errors import AgentFailed, ProtocolError
from rollbook.protocol.beats import shell_step
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.samples import MAX_INFLATED, inflated_size

__all__ = ["Budget", "Meter"]

MIB = 1 << 20
UNMEASURED = 8
LEAST_BEAT = MIB  # bytes; also for plans without sampled sources


@dataclasses.dataclass(frozen=True)
class Budget:
    """The limits of one host; rates are averaged, because each burst is allowed on top of them."""

    bytes_per_second: float
    burst_bytes: float
    frames_per_second: float
    burst_frames: float
    inflated_per_second: float
    burst_inflated: float
    total_bytes: float
    total_bytes_per_second: float
    beat_bytes: float = LEAST_BEAT
    """Bytes that a mark adds to every limit on bytes."""

    @classmethod
    def of(cls, plan: Plan, interval: float) -> Self:
        """The budget for a plan that is sampled every `interval` seconds; 0 for facts only."""
        sampled = [source.limit for source in plan.sources if source.every]
        beat = max(LEAST_BEAT, sum(sampled))
        facts = max(LEAST_BEAT, sum(source.limit for source in plan.sources))
        beats = 1 / interval if interval else 0.1
        frames = max(beats, len(sampled) / shell_step(interval) if interval else 0.0)
        return cls(
            bytes_per_second=beat * beats / 2,
            burst_bytes=facts + 4 * beat,
            frames_per_second=20 + 2 * frames,
            burst_frames=1000 + 10 * len(plan.sources),
            inflated_per_second=beat * beats,
            burst_inflated=3 * facts + 4 * beat,
            total_bytes=128 * MIB,
            total_bytes_per_second=max(beat * beats / 64, beat / max(1.0, interval) / 8 if interval else 0.0),
            beat_bytes=beat,
        )

    def times(self, factor: float) -> Self:
        """This budget with all limits multiplied."""
        return dataclasses.replace(self, **{name: factor * value for name, value in dataclasses.asdict(self).items()})

    @classmethod
    def of_output(cls, limit: int) -> Self:
        """The budget for a command that may write `limit` bytes; lines carry a third more than they hold."""
        return cls(
            bytes_per_second=64 * 1024,
            burst_bytes=2 * limit + MIB,
            frames_per_second=60,
            burst_frames=1000 + limit // 1024,
            inflated_per_second=0,
            burst_inflated=0,
            total_bytes=2 * limit + 8 * MIB,
            total_bytes_per_second=1024,
        )


class Meter:
    """Compares what a host sends with its budget, over all its connections."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget, self._clock = budget, clock
        self._bytes = _Bucket(budget.bytes_per_second, budget.burst_bytes, clock())
        self._frames = _Bucket(budget.frames_per_second, budget.burst_frames, clock())
        self._inflated = _Bucket(budget.inflated_per_second, budget.burst_inflated, clock())
        # Samples whose worst case fits into this bucket are not measured, so that real hosts cost no time here.
        self._unmeasured = _Bucket(UNMEASURED * budget.inflated_per_second, budget.burst_inflated, clock())
        self._total = _Bucket(budget.total_bytes_per_second, math.inf, clock(), budget.total_bytes)

    def mark(self) -> None:
        """Allow the sample of a mark."""
        for bucket in (self._bytes, self._inflated, self._total):
            bucket.left += self.budget.beat_bytes
        self._frames.left += max(1.0, self.budget.frames_per_second)

    def receive(self, size: int) -> None:
        """Count received bytes; raises `AgentFailed` if they exceed the budget."""
        now = self._clock()
        if not self._bytes.take(size, now):
            raise _excess(f"{self.budget.bytes_per_second / MIB:.2g} MiB per second")
        if not self._total.take(size, now):
            raise _excess(f"{self.budget.total_bytes / MIB:.0f} MiB in total")

    def frame(self, frame: Frame) -> None:
        """Count a frame and the inflated size of a sample; raises `AgentFailed` if they exceed the budget."""
        if not self._frames.take(1, self._clock()):
            raise _excess(f"{self.budget.frames_per_second:.0f} frames per second")
        if frame.kind == "S":
            self._sample(frame.payload)

    def inflate(self, size: int) -> None:
        """Count inflated bytes; raises `AgentFailed` if they exceed the budget."""
        if not self._inflated.take(size, self._clock()):
            raise _excess(f"{self.budget.inflated_per_second / MIB:.2g} MiB of inflated data per second")

    def _sample(self, payload: bytes) -> None:
        if self._unmeasured.take(MAX_INFLATED * len(payload), self._clock()):
            return
        limit = int(self._inflated.refill(self._clock())) + 1
        with contextlib.suppress(ProtocolError):  # it cannot be decoded later either, and costs nothing then
            self.inflate(inflated_size(payload, limit))


class _Bucket:
    """A token bucket: `rate` per second up to `burst`; a request that does not fit takes nothing."""

    def __init__(self, rate: float, burst: float, now: float, left: float | None = None) -> None:
        self.rate, self.burst, self.left, self._at = rate, burst, burst if left is None else left, now

    def refill(self, now: float) -> float:
        self.left = max(self.left, min(self.burst, self.left + (now - self._at) * self.rate))
        self._at = now
        return self.left

    def take(self, amount: float, now: float) -> bool:
        fits = amount <= self.refill(now)
        if fits:
            self.left -= amount
        return fits


def _excess(limit: str) -> AgentFailed:
    return AgentFailed(f"disconnected: the host sends more than {limit}, its budget")
