"""Metrics of one host from its frames as they arrive, for the live view and for push."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rollbook.errors import ParseError, ProtocolError
from rollbook.metrics.live import FACTS, HostMetrics, Values
from rollbook.metrics.metric import Part
from rollbook.protocol.beats import shell_step
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import page_texts, parse_facts, read_frame
from rollbook.protocol.samples import Unpacker
from rollbook.sources.base import Source

__all__ = ["ROW", "HostFrames"]

ROW = 512
"""The bytes of text that take as long to parse as the metrics of one row take to compute."""


class HostFrames:
    """Takes all frames of a host in order; `values` and `devices` are those of its latest complete beat.

    `step` is the interval in seconds, which may change. `parts` are the metrics to compute, by default those of the
    live view; other sources of the plan are skipped. `admit` is called before any work, with the size of the text that
    is to be parsed, or the same for rows that metrics are computed from; an error that it raises reaches the caller.
    """

    def __init__(
        self,
        plan: Plan,
        step: float,
        parts: Mapping[str, Part] | None = None,
        admit: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._plan, self._admit = plan, admit
        self._metrics = HostMetrics(step, parts)
        self._unpacker = Unpacker(plan)
        self._found: dict[int, Any] = {}  # the latest facts of each source, or the bytes if they were not needed yet
        self._seq, self._last, self._began = -1, -1, 0
        self._ends = max((number for number, source in enumerate(plan.sources) if source.every == 1), default=-1)
        self._is_shell = False

    @property
    def values(self) -> Values:
        """The metrics of the host, by name."""
        return self._metrics.values

    @property
    def devices(self) -> dict[str, Values]:
        """The metrics of each device that counts."""
        return self._metrics.devices

    @property
    def step(self) -> float:
        """The seconds between two beats of the host; more than the interval if the host cannot do better."""
        return max(self._metrics.step, self._metrics.least)

    @step.setter
    def step(self, seconds: float) -> None:
        self._metrics.step = seconds
        self._metrics.least = shell_step(seconds) if self._is_shell else 0.0

    def connected(self, hello: Mapping[str, str]) -> None:
        """A connection starts, with this hello of the agent."""
        self._is_shell = hello.get("kind") == "sh"
        self.step = self._metrics.step
        self._unpacker.restart()
        self._seq = -1

    def frame(self, frame: Frame, ts: int, *, compute: bool = True) -> int | None:
        """Take a frame of any kind; `ts` is its time on the collector's clock. Returns the time of a complete beat.

        Invalid content loses one beat. Without `compute` a sample is only unpacked, which later ones need, and its
        beat has no values.
        """
        if frame.seq != self._seq + 1:  # a missing frame may have been a sample that later ones build on
            self._unpacker.restart()
        self._seq = frame.seq
        try:
            if frame.kind == "S":
                self._metrics.begin()
                for sample in self._unpacker.beat(frame.payload, ts, frame.mono):
                    self._take(sample.source, sample.body, ts, sample.mono, compute=compute)
                self._metrics.end(ts)
                return ts
            if frame.kind in "RZ":
                return self._reading(frame, ts, compute=compute)
        except ProtocolError:
            self._unpacker.restart()
        return None

    def _reading(self, frame: Frame, ts: int, *, compute: bool) -> int | None:
        """Take a fact, or one source of a sample: the shell stand-in sends them one by one, in the order of the plan.

        Its beat has the time of the first, and is complete with the last source that every beat has.
        """
        reading = read_frame(frame, self._plan)
        if reading.phase != "sample":
            if reading.source.name in FACTS:
                self._admit(len(reading.raw))
                fact, _ = parse_facts(reading)
                if fact is not None:
                    self._metrics.learn(reading.source.name, fact)
            return None
        number = self._plan.sources.index(reading.source)
        if number <= self._last or self._last < 0:
            self._metrics.begin()
            self._began = ts
        self._last = number
        self._take(number, reading.raw, self._began, frame.mono, compute=compute)
        if number != self._ends:
            return None
        self._metrics.end(self._began)
        return self._began

    def _take(self, number: int, body: bytes | None, ts: int, mono: int, *, compute: bool) -> None:
        """Take one source of a sample; without a body it is unchanged."""
        source = self._plan.sources[number]
        if not self._metrics.uses(source.name):
            return
        if body is not None:
            self._found[number] = body
        if not compute:
            return
        found = self._found.get(number)
        if isinstance(found, bytes):
            self._admit(len(found))
            found = self._found[number] = _parsed(source, found)
        if found is not None:
            self._admit(ROW * (len(found) if isinstance(found, list) else 1))
            self._metrics.take(source.name, found, ts, mono)


def _parsed(source: Source, body: bytes) -> Any:
    """The facts of a sample; None if it has none."""
    pages = page_texts(body)
    try:
        return source.parse(pages) if pages else None
    except ParseError:
        return None
