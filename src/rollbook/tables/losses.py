"""Counts, per host and source, the samples that were due, stored and lost while tables are made."""

from __future__ import annotations

import bisect
import itertools

from rollbook.journal.gaps import LATE, FrameGap, FrameGaps
from rollbook.records.record import Gap, Loss, LossKind, SourceLoss
from rollbook.sources.base import Source

__all__ = ["Tally"]

MAX_GAPS = 20  # kept per source, the longest; losses are counted in full
NEVER, ALWAYS = -1, 1 << 62


class Tally:
    """The samples of one source of one host, added in order of time; with `every_beat` they are due at every beat.

    Adding one is on the critical path: for a sample that is stored completely before the `deadline`, it is enough to
    increment `stored`, set `latest` to its time and the deadline to `longest` after it.
    """

    def __init__(self, source: Source, frames: FrameGaps, *, every_beat: bool = False) -> None:
        self._source, self._frames, self._every_beat = source, frames, every_beat
        self._changes = list(frames.due.schedule.doubles)
        self._step = self._step_at(frames.due.first_ns)
        self.longest = round(LATE * self._step)
        self._starts = [gap.start_ns for gap in frames.between]
        self._ends = [gap.end_ns for gap in frames.between]
        self.stored, self.rows = 0, 0
        self.latest, self.deadline = NEVER, ALWAYS
        self._losses: dict[LossKind, list[int]] = {}  # samples, first, last, partly
        self._gaps: list[Gap] = []
        self._open: dict[str, None] = {}  # kinds of loss since the last sample that was stored
        self._open_since = NEVER

    def __bool__(self) -> bool:
        return self.latest != NEVER

    def absent(self, ts: int) -> None:
        """Note that the host does not have the source at this time, so that no sample is due."""
        self._expect_after(ts)

    def add(self, ts: int, kind: LossKind | None, *, stored: bool) -> None:
        """Add a sample: stored, lost for a reason, or stored without some of its rows for a reason."""
        if self._changes and ts >= self._changes[0]:
            self._changes = [at for at in self._changes if at > ts]
            self._step = self._step_at(ts)
            self.longest = round(LATE * self._step)
        if self.latest != NEVER and ts - self.latest > self.longest:
            self._skip(self.latest, ts)
        if kind is not None:
            self._lose(kind, ts, ts, 1, partly=stored)
        if stored:
            self.stored += 1
            if self._open:
                self._close(ts)
        elif kind is not None:
            if not self._open:
                self._open_since = ts if self.latest == NEVER else self.latest
            self._open[kind] = None
        self._expect_after(ts)

    def incomplete(self, kind: LossKind, first_ns: int, last_ns: int, samples: int) -> None:
        """Count samples that were added as stored, but lack some of their values."""
        self._lose(kind, first_ns, last_ns, samples, partly=True)

    def result(self) -> SourceLoss | None:
        """The counts after the last sample, with the beats due before the host's first frame and after its last."""
        if self.latest == NEVER:
            return None
        before, after, due = self._frames.before, self._frames.after, self._frames.due
        if before is not None:
            self._miss(before, int(self._due_between(before.start_ns, before.end_ns)))
        # A source that the host no longer had at its last frame is not due after it.
        if after is not None and after.start_ns - self.latest <= self.longest:
            samples = self._due_between(after.start_ns, after.end_ns)
            self._miss(after, int(samples) if due.connection_lost else round(samples) - 1)
        if self._open:
            self._close(due.last_ns)
        lost = sum(samples - partly for samples, _, _, partly in self._losses.values())
        return SourceLoss(
            source=self._source.name,
            due=self.stored + lost,
            stored=self.stored,
            rows=self.rows,
            losses=[
                Loss(kind, samples, first, last, partly)
                for kind, (samples, first, last, partly) in self._losses.items()
            ],
            gaps=sorted(self._gaps, key=lambda gap: gap.start_ns),
        )

    def _expect_after(self, ts: int) -> None:
        # An open gap has no deadline, so that the next stored sample goes through `add`, which closes the gap.
        self.latest, self.deadline = ts, NEVER if self._open else ts + self.longest

    def _skip(self, before: int, ts: int) -> None:
        """Count the samples that are missing between two times: skipped if frames arrived, else missed or lost."""
        missing = round(self._due_between(before, ts)) - 1
        between = self._frames.between
        gaps = between[bisect.bisect_left(self._starts, before) : bisect.bisect_right(self._ends, ts)]
        without_frames = sum(gap.length_ns - self._frames.due.schedule.at(gap.end_ns) for gap in gaps)
        skipped = min(max(0, round((ts - before - without_frames) / self._step) - 1), max(0, missing))
        if skipped:
            self._lose("skipped", before, ts, skipped)
            self._open["skipped"] = None
        if missing > skipped:
            kind: LossKind = "lost" if any(gap.kind == "lost" for gap in gaps) else "missed"
            self._lose(kind, before, ts, missing - skipped)
            if kind == "lost":
                self._open[kind] = None
        if self._open and self._open_since == NEVER:
            self._open_since = before

    def _step_at(self, ns: int) -> int:
        """The time between two samples of this source."""
        interval = self._frames.due.schedule.at(ns)
        return interval * (1 if self._every_beat or not interval else self._source.beats(interval / 1e9)) or ALWAYS

    def _due_between(self, start_ns: int, end_ns: int) -> float:
        """The number of samples that were due between two times."""
        edges = [start_ns, *(at for at in self._frames.due.schedule.doubles if start_ns < at < end_ns), end_ns]
        return sum((end - start) / self._step_at(start) for start, end in itertools.pairwise(edges))

    def _miss(self, gap: FrameGap, samples: int) -> None:
        if samples > 0:
            self._lose(gap.kind, gap.start_ns, gap.end_ns, samples)

    def _lose(self, kind: LossKind, first_ns: int, last_ns: int, samples: int, *, partly: bool = False) -> None:
        count = self._losses.setdefault(kind, [0, first_ns, last_ns, 0])
        count[0] += samples
        count[1], count[2] = min(count[1], first_ns), max(count[2], last_ns)
        count[3] += samples if partly else 0

    def _close(self, ts: int) -> None:
        gap = Gap(self._open_since, ts, ", ".join(self._open))
        self._gaps.append(gap)
        if len(self._gaps) > MAX_GAPS:
            self._gaps.remove(min(self._gaps, key=lambda kept: kept.end_ns - kept.start_ns))
        self._open, self._open_since = {}, NEVER
