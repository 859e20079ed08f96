"""Start facts, end facts and series status of each host, from its journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import get_args

from rollbook.errors import HostStatus
from rollbook.hosts import Host, fold
from rollbook.journal.entries import frame_of
from rollbook.journal.gaps import host_gaps, host_schedule
from rollbook.journal.samples import Segments
from rollbook.journal.state import failure_of
from rollbook.journal.survey import HostJournal, Survey
from rollbook.protocol.beats import Schedule, nearest_beat
from rollbook.protocol.readings import READABLE, parse_facts, read_frame
from rollbook.protocol.visit import Phase, Visit, cost_of, parse_fields
from rollbook.records.hosts import HostResult
from rollbook.records.record import ClockJump, SeriesHost, SourceLoss
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.times import iso_time

__all__ = ["clock_notes", "facts_of", "series_of"]

MAX_NAMED = 3  # sources or clock steps in one line


def facts_of(survey: Survey, host: HostJournal, files: Segments) -> tuple[HostResult, HostResult]:
    """The results of a host at the start and at the end."""
    hello = host.hellos[0] if host.hellos else {}
    clocks = [point.clock for point in host.clock_points()]
    user, slots = (survey.begin.get(what, {}).get(host.name) for what in ("users", "slots"))
    asked = Host(host.name, user, slots)
    visit = Visit(asked, survey.plan, host.method, hello, {}, [], clocks[0] if clocks else None)
    began: dict[str, list[int]] = {}
    host.refused = 0
    for place, size in host.readings:
        frame = frame_of(files.payload(place, size))
        assert frame is not None
        try:
            reading = read_frame(frame, survey.plan)
        except Exception:  # noqa: BLE001 - whatever this host sent affects only this reading
            visit.lost += 1
            continue
        if visit.keep(reading):
            host.refused += reading.status in READABLE and parse_facts(reading)[0] is None
            began.setdefault(reading.phase, []).append(frame.wall)
    status, reason = _loss(host)
    ended = dataclasses.replace(
        visit,
        hello=host.hellos[-1] if host.hellos else {},
        goodbye=parse_fields(host.goodbye),
        clock=clocks[-1] if clocks else None,
        lost=host.lost_frames + host.missing_at_end + visit.lost,
    )
    host.refused += visit.lost
    found = []
    both: tuple[tuple[Visit, Phase], ...] = ((visit, "start"), (ended, "end"))
    for one, phase in both:
        # A host that sent its facts before it was lost has not failed.
        complete = phase in began or not host.losses
        result = one.result(phase, "complete" if complete else status, "" if complete else reason)
        if phase in began:
            first, last = min(began[phase]), max(began[phase])
            offset = one.clock.offset_ns if one.clock else 0
            result.collected_at = iso_time(first + offset)
            result.seconds = round((last - first) / 1e9, 4)
        elif complete:
            result.status, result.reason = status, reason or f"no {phase} facts were read"
        result.attempts = _attempts(host)
        found.append(result)
    return found[0], found[1]


def series_of(survey: Survey, host: HostJournal, start: HostResult, sources: Sequence[SourceLoss]) -> SeriesHost:
    """The series status of one host; `sources` are the losses found while its tables were made."""
    times = list(dict.fromkeys(host.times()))  # the frames that the stand-in sends for one sample count once
    cost = cost_of(parse_fields(host.goodbye)) if host.goodbye else None
    found = SeriesHost(
        name=host.name,
        status="complete",
        method=host.method,
        samples=len(times),
        boot_ids=host.boots,
        clocks=host.clock_points(),
        clock_steps=[ClockJump(at, by) for at, by in host.timeline.steps],
        suspends=[ClockJump(at, by) for at, by in host.timeline.suspends],
        sources=list(sources),
        cost=cost,
    )
    if not times:
        found.status, found.reason = _loss(host)
        return found
    found.first_ns, found.last_ns = times[0], times[-1]
    schedule = host_schedule(survey, host)
    found.late, found.missed = _off_beat([survey.clock.aligned(ts, schedule.at(ts)) for ts in times], schedule)
    found.gaps = list(host_gaps(survey, host))
    # Beats before the first and after the last sample are missed too.
    edges = [gap for gap in found.gaps if gap.end_ns == times[0] or gap.start_ns == times[-1]]
    found.missed += sum(int(schedule.beats(gap.start_ns, gap.end_ns)) for gap in edges)
    cpus, life = start.fact(CpuInfo), survey.ended_ns - _connected(survey, host)
    if cost and cost.cpu_seconds is not None and cpus and life > 0:
        found.cpu_share = cost.cpu_seconds * 1e9 / life / cpus.logical_cpus
    if reasons := _reasons(survey, host, found):
        found.status, found.reason = "partial", "; ".join(reasons)
    return found


def _reasons(survey: Survey, host: HostJournal, found: SeriesHost) -> list[str]:
    """Why a series is partial."""
    reasons, schedule = [], host_schedule(survey, host)
    interval = schedule.at(found.first_ns or 0)
    if found.gaps:
        seconds = sum(gap.end_ns - gap.start_ns for gap in found.gaps) / 1e9
        why = ", ".join(dict.fromkeys(gap.why for gap in found.gaps))
        reasons.append(f"{seconds:.1f} s without samples: {why}")
    elif not survey.ended:
        reasons.append(failure_of(survey.directory) or "the collector died; the samples end there")
    elif host.thinned:
        reasons.append(f"{found.missed} of {found.samples + found.missed} beats without samples: connection too slow")
    elif found.is_sparse:
        reasons.append(f"{found.missed} of {found.samples + found.missed} beats without samples: the host was busy")
    elif not schedule.doubles and interval != survey.interval_ns:
        every = f"a sample every {interval // 10**9} s"
        reasons.append(f"{every}: there is no Python, and the shell stand-in needs whole seconds")
    if cut := _missing_end(survey, host, found):
        reasons.append(cut)
    if losses := describe_losses(found.sources):
        reasons.append(losses)
    return reasons


def _missing_end(survey: Survey, host: HostJournal, found: SeriesHost) -> str:
    """What is known about lost data after the last sample that is too short for a gap; empty if nothing is missing."""
    if not survey.ended or (found.gaps and found.gaps[-1].start_ns == found.last_ns):
        return ""
    if not host.ended:
        reasons = [str(loss.get("reason", "")) for loss in host.losses if loss["at_ns"] > (found.last_ns or 0)]
        return f"the end is missing: {reasons[0] if reasons else 'no end frame'}"
    return "frames after the last sample are lost" if host.missing_at_end else ""


def describe_losses(sources: Sequence[SourceLoss]) -> str:
    """The losses of a host's sources in one line, the largest first; empty if there are none that affect its status."""
    found = sorted((one for one in sources if one.affected()), key=SourceLoss.share, reverse=True)
    parts = [one.text() for one in found[:MAX_NAMED]]
    if len(found) > MAX_NAMED:
        parts.append(f"{len(found) - MAX_NAMED} more sources")
    return "; ".join(parts)


def clock_notes(series: Sequence[SeriesHost], collector: Sequence[ClockJump]) -> list[str]:
    """Steps of the hosts' and the collector's clocks during the run, and suspends."""
    notes = []
    if collector:
        steps = ", ".join(f"{step.by_ns / 1e9:+.3f} s" for step in collector[:MAX_NAMED])
        notes.append(f"the collector's clock was set during the run, by {steps}; times are on its clock before that")
    if hosts := [host for host in series if host.clock_steps]:
        most = max(abs(step.by_ns) for host in hosts for step in host.clock_steps) / 1e9
        notes.append(f"clock set during the run, by up to {most:.3f} s, on {fold(host.name for host in hosts)}")
    if hosts := [host for host in series if host.suspends]:
        most = max(suspend.by_ns for host in hosts for suspend in host.suspends) / 1e9
        notes.append(f"suspended during the run, for up to {most:.1f} s: {fold(host.name for host in hosts)}")
    return notes


def _connected(survey: Survey, host: HostJournal) -> int:
    """The time at which the last agent connected; the cost it reports includes that of its facts."""
    began = host.connections[-1] if host.connections else 0
    return host.times()[began] if 0 < began < len(host.places) else survey.started_ns


def _off_beat(times: Sequence[int], schedule: Schedule) -> tuple[int, int]:
    """The number of beats with a sample late by more than a tenth of the interval, and without a sample."""
    nearest: dict[int, float] = {}  # the distance of each beat's sample, in intervals
    for ts in times:
        interval = schedule.at(ts)
        beat = nearest_beat(ts, interval)
        nearest[beat] = min(abs(ts - beat) / interval, nearest.get(beat, 1.0))
    late = sum(distance > 0.1 for distance in nearest.values())
    return late, round(schedule.beats(min(nearest), max(nearest))) + 1 - len(nearest)


def _attempts(host: HostJournal) -> list[str]:
    """Failed attempts before data came: rejections by a busy host, and each reason of other transports once."""
    failed = [(str(loss.get("method", host.method)), str(loss.get("reason", ""))) for loss in host.losses]
    others = dict.fromkeys(f"{method}: {reason}" for method, reason in failed if method != host.method)
    return [*host.turned_away, *others]


def _loss(host: HostJournal) -> tuple[HostStatus, str]:
    """The status and reason of a host without data."""
    last = host.losses[-1] if host.losses else {}
    statuses: dict[str, HostStatus] = {status: status for status in get_args(HostStatus)}
    reason = str(last.get("reason", "the recording ended before the host sent anything"))
    return statuses.get(str(last.get("status")), "failed"), reason
