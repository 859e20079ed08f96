"""Every host asked for, as the page shows it: its worst status of start, series and end, and what looking at it cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from rollbook.hosts import natural
from rollbook.record.hosts import Cost, HostRecord, HostStatus
from rollbook.record.run import RunHosts, SeriesHost
from rollbook.report.model import CostShown, GapShown, HostShown, Mark

__all__ = ["cost", "hosts_shown", "marks"]

MS = 1e6
WORST_FIRST: tuple[HostStatus, ...] = ("failed", "refused", "unreachable", "timed-out", "partial", "complete")


def hosts_shown(run: RunHosts) -> list[HostShown]:
    """In natural order of their names."""
    start, series, end = ({host.name: host for host in part} for part in (run.start, run.series, run.end))
    names = dict.fromkeys([*start, *series, *end])
    return sorted(
        (_host(name, start.get(name), series.get(name), end.get(name)) for name in names),
        key=lambda host: natural(host.name),
    )


def _host(name: str, start: HostRecord | None, series: SeriesHost | None, end: HostRecord | None) -> HostShown:
    known = [part for part in (start, series, end) if part is not None]
    worst = min(known, key=lambda part: WORST_FIRST.index(part.status))
    gave = any(part.status in ("complete", "partial") for part in known)
    clock = series.clocks[-1].clock if series and series.clocks else start.clock if start else None
    spent = (series.cost if series else None) or (start.cost if start else None) or Cost()
    return HostShown(
        name=name,
        # A host that gave something and was then lost is partial; its reason says what happened.
        status="partial" if gave and worst.status != "complete" else worst.status,
        reason=worst.reason,
        method=next((part.method for part in known if part.method), ""),
        samples=series.samples if series else None,
        late=series.late if series else None,
        missed=series.missed if series else None,
        boots=len(series.boot_ids) if series else 0,
        gaps=[GapShown(gap.start_ns / MS, gap.end_ns / MS, gap.why) for gap in series.gaps] if series else [],
        clock_offset_ms=clock.offset_ns / MS if clock else None,
        clock_bound_ms=clock.bound_ns / MS if clock else None,
        cpu_share=series.cpu_share if series else None,
        cpu_seconds=spent.cpu_seconds,
        memory_bytes=spent.peak_memory_bytes,
        sent_bytes=spent.sent_bytes,
    )


def cost(hosts: Iterable[HostShown]) -> CostShown | None:
    """Median and worst over the hosts that could tell."""
    told = [host for host in hosts if host.memory_bytes is not None or host.cpu_share is not None]
    if not told:
        return None
    shares = {host.name: host.cpu_share for host in told if host.cpu_share is not None}
    worst = max(shares, key=lambda name: shares[name], default="")
    return CostShown(
        told=len(told),
        cpu_share=statistics.median(shares.values()) if shares else None,
        worst_share=shares[worst] if shares else None,
        worst_host=worst,
        memory_bytes=_median(host.memory_bytes for host in told),
        sent_bytes=_median(host.sent_bytes for host in told),
    )


def _median(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def marks(run: RunHosts, hosts: list[HostShown]) -> list[Mark]:
    """Command and phases, then gaps of single hosts and where their samples come again."""
    found = [Mark("phase", phase.start_ns / MS, phase.end_ns / MS, phase.name) for phase in run.phases]
    last = {series.name: (series.last_ns or 0) / MS for series in run.series}
    for at, host in enumerate(hosts):
        for gap in host.gaps:
            kind = "reboot" if "reboot" in gap.why else "gap"
            found.append(Mark(kind, gap.start, gap.end, gap.why, at))
            if last[host.name] > gap.end:
                found.append(Mark("reconnect", gap.end, gap.end, "samples again", at))
    return found
