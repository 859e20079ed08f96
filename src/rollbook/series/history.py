"""How the series of each host went, and its start and end facts, from what the journal has of it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import get_args

from rollbook.collect.readings import read_frame
from rollbook.collect.visit import Visit, cost_of, said
from rollbook.errors import HostStatus, ProtocolError
from rollbook.hosts import Host
from rollbook.records.hosts import HostRecord
from rollbook.records.run import Gap, SeriesHost
from rollbook.series.journal import frame_of
from rollbook.series.samples import Segments
from rollbook.series.survey import HostLog, Survey
from rollbook.sources.cpuinfo import CpuInfo

__all__ = ["facts_of", "series_of"]

LONGEST_STEP = 2.5  # intervals between two samples; more is a gap


def facts_of(survey: Survey, host: HostLog, files: Segments) -> tuple[HostRecord, HostRecord]:
    """What the host was at the start, and at the end."""
    hello = host.hellos[0] if host.hellos else {}
    clocks = [point.clock for point in host.clocks]
    visit = Visit(Host(host.name), survey.plan, host.method, hello, {}, [], clocks[0] if clocks else None)
    began: dict[str, list[int]] = {}
    for place, size in host.readings:
        frame = frame_of(files.payload(place, size))
        assert frame is not None
        try:
            reading = read_frame(frame, survey.plan)
        except ProtocolError:
            visit.lost += 1
            continue
        visit.keep(reading)
        began.setdefault(reading.phase, []).append(frame.wall)
    status, reason = _loss(host)
    ended = dataclasses.replace(
        visit,
        hello=host.hellos[-1] if host.hellos else {},
        goodbye=said(host.goodbye),
        clock=clocks[-1] if clocks else None,
        lost=host.lost_frames + visit.lost,
    )
    found = []
    for one, phase in ((visit, "start"), (ended, "end")):
        # A host that gave its facts before it was lost is not failed for them.
        complete = phase in began or not host.losses
        record = one.record(phase, "complete" if complete else status, "" if complete else reason)
        if phase in began:
            first, last = min(began[phase]), max(began[phase])
            offset = one.clock.offset_ns if one.clock else 0
            record.collected_at = _iso(first + offset)
            record.seconds = round((last - first) / 1e9, 4)
        elif complete:
            record.status, record.reason = status, reason or f"no {phase} facts were read"
        record.attempts = _attempts(host)
        found.append(record)
    return found[0], found[1]


def series_of(survey: Survey, host: HostLog, start: HostRecord) -> SeriesHost:
    """How the sampling of one host went."""
    times = _beats(host)
    cost = cost_of(said(host.goodbye)) if host.goodbye else None
    found = SeriesHost(
        name=host.name,
        status="complete",
        method=host.method,
        samples=len(times),
        boot_ids=host.boots,
        clocks=host.clocks,
        cost=cost,
    )
    if not times:
        found.status, found.reason = _loss(host)
        return found
    found.first_ns, found.last_ns = times[0], times[-1]
    found.late, found.missed = _off_beat(times, survey.interval_ns)
    found.gaps = list(_gaps(survey, host))
    cpus, life = start.fact(CpuInfo), survey.ended_ns - _connected(survey, host)
    if cost and cost.cpu_seconds is not None and cpus and life > 0:
        found.cpu_share = cost.cpu_seconds * 1e9 / life / cpus.logical_cpus
    if found.gaps:
        seconds = sum(gap.end_ns - gap.start_ns for gap in found.gaps) / 1e9
        why = ", ".join(dict.fromkeys(gap.why for gap in found.gaps))
        found.status, found.reason = "partial", f"{seconds:.1f} s without samples: {why}"
    elif not survey.ended:
        found.status, found.reason = "partial", "the collector died; the samples end there"
    return found


def _connected(survey: Survey, host: HostLog) -> int:
    """Since when the agent that said goodbye was there: its facts cost something too, not its samples alone."""
    began = host.connections[-1] if host.connections else 0
    return host.times()[began] if 0 < began < len(host.places) else survey.started_ns


def _beats(host: HostLog) -> list[int]:
    """When samples were taken; the frames that the stand-in sends for one sample count once."""
    return list(dict.fromkeys(host.times()))


def _off_beat(times: Sequence[int], interval: int) -> tuple[int, int]:
    """Beats of the collector's clock met late by more than a tenth of the interval, and not met at all."""
    nearest: dict[int, int] = {}
    for ts in times:
        beat = (ts + interval // 2) // interval
        nearest[beat] = min(abs(ts - beat * interval), nearest.get(beat, interval))
    late = sum(distance > interval // 10 for distance in nearest.values())
    return late, max(nearest) - min(nearest) + 1 - len(nearest)


def _gaps(survey: Survey, host: HostLog) -> Iterator[Gap]:
    times, longest = host.times(), LONGEST_STEP * survey.interval_ns
    begins = {index: number for number, index in enumerate(host.connections)}
    boots = [hello.get("boot_id", "") for hello in host.hellos]
    for index in range(1, len(times)):
        if times[index] - times[index - 1] <= longest:
            continue
        why = "no samples: the host was stopped or overloaded"
        if index in begins:
            before, after = boots[max(0, begins[index] - 1)], boots[min(begins[index], len(boots) - 1)]
            why = "connection lost" if before == after else "rebooted"
        elif index in host.thinned:
            why = "thinned out: the connection was too slow"
        elif index in host.restarts:
            why = "frames lost"
        yield Gap(times[index - 1], times[index], why)
    first = min(other.times()[0] for other in survey.hosts if other.places)
    if times[0] - first > longest:
        yield Gap(first, times[0], "not connected yet")
    lost = [loss for loss in host.losses if loss["at_ns"] > times[-1]]
    end = survey.ended_ns if lost else survey.sampled_until
    if end - times[-1] > longest:
        yield Gap(times[-1], end, f"connection lost: {lost[0].get('reason', '')}" if lost else "no more samples")


def _attempts(host: HostLog) -> list[str]:
    """What failed by other ways before the data came, each reason once."""
    failed = [(str(loss.get("method", host.method)), str(loss.get("reason", ""))) for loss in host.losses]
    return list(dict.fromkeys(f"{method}: {reason}" for method, reason in failed if method != host.method))


def _loss(host: HostLog) -> tuple[HostStatus, str]:
    """What became of a host that gave nothing."""
    last = host.losses[-1] if host.losses else {}
    statuses: dict[str, HostStatus] = {status: status for status in get_args(HostStatus)}
    reason = str(last.get("reason", "the recording ended before the host gave anything"))
    return statuses.get(str(last.get("status")), "failed"), reason


def _iso(at_ns: int) -> str:
    return dt.datetime.fromtimestamp(at_ns // 10**9, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
