"""Times without samples of a host, and why: from the times of its frames and the events of its connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rollbook.journal.survey import HostJournal, Survey
from rollbook.protocol.beats import LONGEST_STEP, Schedule
from rollbook.records.record import Gap, LossKind

__all__ = [
    "LATE",
    "FrameGap",
    "FrameGaps",
    "SamplingTime",
    "frame_gaps",
    "host_gaps",
    "host_schedule",
    "sampling_time",
]

LATE = 1.5  # intervals between two frames from which on a beat counts as missed


@dataclasses.dataclass(frozen=True)
class SamplingTime:
    """When samples of a host were due: from when until when, on the collector's clock, and at which intervals.

    `connection_lost` means that the host was not connected at the end.
    """

    first_ns: int
    last_ns: int
    schedule: Schedule
    connection_lost: bool


@dataclasses.dataclass(frozen=True)
class FrameGap:
    """Two adjacent frames of a host between which beats are missing, or a frame and the start or end of sampling."""

    start_ns: int
    end_ns: int
    kind: LossKind

    @property
    def length_ns(self) -> int:
        """The time between both ends."""
        return self.end_ns - self.start_ns


@dataclasses.dataclass(frozen=True)
class FrameGaps:
    """The gaps of a host's frames: before the first frame, between frames in order of time, and after the last."""

    due: SamplingTime
    before: FrameGap | None = None
    between: list[FrameGap] = dataclasses.field(default_factory=list)
    after: FrameGap | None = None


def host_schedule(survey: Survey, host: HostJournal) -> Schedule:
    """The intervals of this host."""
    return dataclasses.replace(survey.schedule, whole_seconds=host.uses_stand_in)


def sampling_time(survey: Survey, host: HostJournal) -> SamplingTime:
    """When samples of a host with at least one sample were due.

    They are due from the first sample of any host after all were ready, or from the moment at which they were ready if
    no host had a sample soon after it.
    """
    times, schedule = host.times(), host_schedule(survey, host)
    first = max(survey.ready_ns, times[0] if survey.sampled_from is None else survey.sampled_from)
    is_late = first - survey.ready_ns > LONGEST_STEP * schedule.at(first)
    if survey.ready_ns and is_late and first <= survey.ended_ns:  # a clock that was not measured may be years ahead
        first = survey.ready_ns
    lost = any(loss["at_ns"] > times[-1] for loss in host.losses)
    last = survey.ended_ns if lost else survey.sampled_until
    return SamplingTime(min(first, times[0]), max(last, times[-1]), schedule, lost)


def frame_gaps(host: HostJournal, due: SamplingTime) -> FrameGaps:
    """The gaps between the frames of a host in which at least one beat is missing."""
    times, at = host.times(), due.schedule.at
    between = [
        FrameGap(times[index - 1], times[index], "lost" if index in host.restarts else "missed")
        for index in range(1, len(times))
        if times[index] - times[index - 1] > LATE * at(times[index])
    ]
    before = FrameGap(due.first_ns, times[0], "missed")
    after = FrameGap(times[-1], due.last_ns, "lost" if host.missing_at_end else "missed")
    first, last = (LATE * at(gap.end_ns) for gap in (before, after))
    return FrameGaps(
        due, before if before.length_ns > first else None, between, after if after.length_ns > last else None
    )


def host_gaps(survey: Survey, host: HostJournal) -> Iterator[Gap]:
    """The gaps of a host that are long enough to be reported one by one, and every reboot, however short it was."""
    times, due = host.times(), sampling_time(survey, host)
    at = due.schedule.at
    connections = set(host.connections)
    for index in range(1, len(times)):
        boots = {host.boot_at(index - 1), host.boot_at(index)} - {""} if index in connections else set()
        # One or two late beats are normal, but not where the connection was lost.
        longest = (LATE if index in connections else LONGEST_STEP) * at(times[index])
        if len(boots) < 2 and times[index] - times[index - 1] <= longest:
            continue
        why = "no samples: the host was stopped or overloaded"
        if index in connections:
            why = "rebooted" if len(boots) > 1 else "connection lost"
        elif index in host.thinned:
            why = "samples skipped: the connection was too slow"
        elif index in host.restarts:
            why = "frames lost"
        elif any(times[index - 1] <= end and end - by <= times[index] for end, by in host.timeline.suspends):
            why = "the host was suspended"
        yield Gap(times[index - 1], times[index], why)
    if times[0] - due.first_ns > LONGEST_STEP * at(times[0]):
        yield Gap(due.first_ns, times[0], "not connected yet")
    if due.last_ns - times[-1] > LONGEST_STEP * at(due.last_ns):
        reasons = [str(loss.get("reason", "")) for loss in host.losses if loss["at_ns"] > times[-1]]
        yield Gap(times[-1], due.last_ns, f"connection lost: {reasons[0]}" if reasons else "no more samples")
