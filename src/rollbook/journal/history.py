"""How the series of each host went, and its start and end facts, from what the journal has of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import get_args

from rollbook.errors import HostStatus
from rollbook.hosts import Host, fold
from rollbook.journal.log import failure, frame_of
from rollbook.journal.samples import Segments
from rollbook.journal.survey import HostLog, Survey
from rollbook.protocol.beats import LONGEST_STEP, nearest_beat, shell_step
from rollbook.protocol.readings import READABLE, parsed, read_frame
from rollbook.protocol.visit import Phase, Visit, cost_of, said
from rollbook.records.hosts import HostResult
from rollbook.records.record import ClockJump, Gap, SeriesHost
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.times import iso_time

__all__ = ["clock_notes", "facts_of", "series_of"]


def facts_of(survey: Survey, host: HostLog, files: Segments) -> tuple[HostResult, HostResult]:
    """What the host was at the start, and at the end."""
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
        except Exception:  # noqa: BLE001 - whatever this host sent, it costs its reading and no other's
            visit.lost += 1
            continue
        if visit.keep(reading):
            host.refused += reading.status in READABLE and parsed(reading)[0] is None
            began.setdefault(reading.phase, []).append(frame.wall)
    status, reason = _loss(host)
    ended = dataclasses.replace(
        visit,
        hello=host.hellos[-1] if host.hellos else {},
        goodbye=said(host.goodbye),
        clock=clocks[-1] if clocks else None,
        lost=host.lost_frames + visit.lost,
    )
    host.refused += visit.lost
    found = []
    both: tuple[tuple[Visit, Phase], ...] = ((visit, "start"), (ended, "end"))
    for one, phase in both:
        # A host that gave its facts before it was lost is not failed for them.
        complete = phase in began or not host.losses
        record = one.record(phase, "complete" if complete else status, "" if complete else reason)
        if phase in began:
            first, last = min(began[phase]), max(began[phase])
            offset = one.clock.offset_ns if one.clock else 0
            record.collected_at = iso_time(first + offset)
            record.seconds = round((last - first) / 1e9, 4)
        elif complete:
            record.status, record.reason = status, reason or f"no {phase} facts were read"
        record.attempts = _attempts(host)
        found.append(record)
    return found[0], found[1]


def series_of(survey: Survey, host: HostLog, start: HostResult) -> SeriesHost:
    """How the sampling of one host went."""
    times = _beats(host)
    cost = cost_of(said(host.goodbye)) if host.goodbye else None
    found = SeriesHost(
        name=host.name,
        status="complete",
        method=host.method,
        samples=len(times),
        boot_ids=host.boots,
        clocks=host.clock_points(),
        clock_steps=[ClockJump(at, by) for at, by in host.timeline.steps],
        suspends=[ClockJump(at, by) for at, by in host.timeline.suspends],
        cost=cost,
    )
    if not times:
        found.status, found.reason = _loss(host)
        return found
    found.first_ns, found.last_ns = times[0], times[-1]
    interval = _interval(survey, host)
    found.late, found.missed = _off_beat(times, interval)
    found.gaps = list(_gaps(survey, host))
    cpus, life = start.fact(CpuInfo), survey.ended_ns - _connected(survey, host)
    if cost and cost.cpu_seconds is not None and cpus and life > 0:
        found.cpu_share = cost.cpu_seconds * 1e9 / life / cpus.logical_cpus
    if found.gaps:
        seconds = sum(gap.end_ns - gap.start_ns for gap in found.gaps) / 1e9
        why = ", ".join(dict.fromkeys(gap.why for gap in found.gaps))
        found.status, found.reason = "partial", f"{seconds:.1f} s without samples: {why}"
    elif not survey.ended:
        found.status, found.reason = "partial", failure(survey.directory) or "the collector died; the samples end there"
    elif interval != survey.interval_ns:
        found.status = "partial"
        found.reason = f"a sample every {interval // 10**9} s: there is no Python, and the shell takes whole seconds"
    return found


def clock_notes(series: Sequence[SeriesHost]) -> list[str]:
    """What became of the hosts' clocks during the run, for people to read."""
    notes = []
    if hosts := [host for host in series if host.clock_steps]:
        most = max(abs(step.by_ns) for host in hosts for step in host.clock_steps) / 1e9
        notes.append(f"clock set during the run, by up to {most:.3f} s, on {fold(host.name for host in hosts)}")
    if hosts := [host for host in series if host.suspends]:
        most = max(suspend.by_ns for host in hosts for suspend in host.suspends) / 1e9
        notes.append(f"suspended during the run, for up to {most:.1f} s: {fold(host.name for host in hosts)}")
    return notes


def _connected(survey: Survey, host: HostLog) -> int:
    """Since when the agent that said goodbye was there: its facts cost something too, not its samples alone."""
    began = host.connections[-1] if host.connections else 0
    return host.times()[began] if 0 < began < len(host.places) else survey.started_ns


def _interval(survey: Survey, host: HostLog) -> int:
    """The nanoseconds between two samples of this host."""
    shell = any(hello.get("kind") == "sh" for hello in host.hellos)
    return round(shell_step(survey.interval_ns / 1e9) * 1e9) if shell else survey.interval_ns


def _beats(host: HostLog) -> list[int]:
    """When samples were taken; the frames that the stand-in sends for one sample count once."""
    return list(dict.fromkeys(host.times()))


def _off_beat(times: Sequence[int], interval: int) -> tuple[int, int]:
    """Beats of the collector's clock met late by more than a tenth of the interval, and not met at all."""
    nearest: dict[int, int] = {}
    for ts in times:
        beat = nearest_beat(ts, interval)
        nearest[beat] = min(abs(ts - beat), nearest.get(beat, interval))
    late = sum(distance > interval // 10 for distance in nearest.values())
    return late, (max(nearest) - min(nearest)) // interval + 1 - len(nearest)


def _gaps(survey: Survey, host: HostLog) -> Iterator[Gap]:
    times, interval = host.times(), _interval(survey, host)
    longest = LONGEST_STEP * interval
    begins = set(host.connections)
    for index in range(1, len(times)):
        # A beat or two may be late or left out; one that is missing where the connection was lost was lost with it.
        if times[index] - times[index - 1] <= (1.5 * interval if index in begins else longest):
            continue
        why = "no samples: the host was stopped or overloaded"
        if index in begins:
            boots = {host.boot_at(index - 1), host.boot_at(index)} - {""}
            why = "rebooted" if len(boots) > 1 else "connection lost"
        elif index in host.thinned:
            why = "thinned out: the connection was too slow"
        elif index in host.restarts:
            why = "frames lost"
        elif any(times[index - 1] <= at and at - by <= times[index] for at, by in host.timeline.suspends):
            why = "the host was suspended"
        yield Gap(times[index - 1], times[index], why)
    # A host whose clock is off, and was not measured, must not tell when the others should have begun.
    firsts = [other.times()[0] for other in survey.hosts if other.places]
    first = max(survey.ready_ns, min((at for at in firsts if at >= survey.started_ns), default=times[0]))
    if times[0] - first > longest:
        yield Gap(first, times[0], "not connected yet")
    lost = [loss for loss in host.losses if loss["at_ns"] > times[-1]]
    end = survey.ended_ns if lost else survey.sampled_until
    if end - times[-1] > longest:
        yield Gap(times[-1], end, f"connection lost: {lost[0].get('reason', '')}" if lost else "no more samples")


def _attempts(host: HostLog) -> list[str]:
    """What failed before the data came: how a busy host turned us away, and each reason of other ways once."""
    failed = [(str(loss.get("method", host.method)), str(loss.get("reason", ""))) for loss in host.losses]
    others = dict.fromkeys(f"{method}: {reason}" for method, reason in failed if method != host.method)
    return [*host.turned_away, *others]


def _loss(host: HostLog) -> tuple[HostStatus, str]:
    """What became of a host that gave nothing."""
    last = host.losses[-1] if host.losses else {}
    statuses: dict[str, HostStatus] = {status: status for status in get_args(HostStatus)}
    reason = str(last.get("reason", "the recording ended before the host gave anything"))
    return statuses.get(str(last.get("status")), "failed"), reason
