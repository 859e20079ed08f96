"""Every requested host as the page shows it: its status over the whole run, and Rollbook's overhead on it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from rollbook.hosts import natural
from rollbook.metrics.formatting import amount
from rollbook.records.cluster import HostInfo, HostSystemInfo
from rollbook.records.hosts import Cost, HostResult, HostStatus
from rollbook.records.record import RecordHosts, SeriesHost
from rollbook.report.model import MS, CostShown, GapShown, HostShown, Mark, SourceGapShown
from rollbook.sources.mountinfo import MountInfo

__all__ = ["cost", "hosts_shown", "marks"]

MAX_MOUNTS = 12
MAX_GAPS = 40  # of all sources of a host
WORST_FIRST: tuple[HostStatus, ...] = ("failed", "refused", "unreachable", "timed-out", "partial", "complete")


def hosts_shown(hosts: RecordHosts) -> list[HostShown]:
    """In natural order of their names."""
    start = {host.name: host for host in hosts.start}
    series = {host.name: host for host in hosts.series}
    end = {host.name: host for host in hosts.end}
    outcome = {host.name: host for host in hosts.outcome}
    names = dict.fromkeys([*start, *series, *end])
    return sorted(
        (_host(name, outcome.get(name), start.get(name), series.get(name), end.get(name)) for name in names),
        key=lambda host: natural(host.name),
    )


def _host(
    name: str,
    outcome: HostResult | None,
    start: HostResult | None,
    series: SeriesHost | None,
    end: HostResult | None,
) -> HostShown:
    known = [part for part in (start, series, end) if part is not None]
    # A damaged record may have samples of a host that was not requested.
    overall = outcome or min(known, key=lambda part: WORST_FIRST.index(part.status))
    clock = series.clocks[-1].clock if series and series.clocks else start.clock if start else None
    spent = (series.cost if series else None) or (start.cost if start else None) or Cost()
    return HostShown(
        name=name,
        status=overall.status,
        reason=overall.reason,
        method=next((part.method for part in known if part.method), ""),
        samples=series.samples if series else None,
        late=series.late if series else None,
        missed=series.missed if series else None,
        boots=len(series.boot_ids) if series else 0,
        gaps=[GapShown(gap.start_ns / MS, gap.end_ns / MS, gap.why) for gap in series.gaps] if series else [],
        source_gaps=list(_source_gaps(series)) if series else [],
        losses=[one.text() for one in series.sources if one.affected()] if series else [],
        clock_offset_ms=clock.offset_ns / MS if clock else None,
        clock_bound_ms=clock.bound_ns / MS if clock else None,
        cpu_share=series.cpu_share if series else None,
        memory_bytes=spent.peak_memory_bytes,
        sent_bytes=spent.sent_bytes,
        about=_about(start) if start else [],
    )


def _source_gaps(series: SeriesHost) -> Iterator[SourceGapShown]:
    """The longest gaps of single sources, in order of time."""
    gaps = [(one.source, gap) for one in series.sources for gap in one.gaps]
    gaps = sorted(gaps, key=lambda item: item[1].start_ns - item[1].end_ns)[:MAX_GAPS]
    for source, gap in sorted(gaps, key=lambda item: item[1].start_ns):
        yield SourceGapShown(source, gap.start_ns / MS, gap.end_ns / MS, gap.why)


def _about(host: HostResult) -> list[tuple[str, str]]:
    """What is known of the host, in a few lines."""
    known = HostInfo.of(host)
    if known is None:
        return []
    system, cpu = known.system or HostSystemInfo(known.hostname), known.cpu
    mounts = [row for row in host.rows(MountInfo) if row.remote or row.source.startswith("/dev/")]
    lines = [
        ("Hostname", known.hostname if known.hostname != host.name else ""),
        ("Machine", known.chassis_model or ""),
        ("System", system.os_release.get("PRETTY_NAME", "")),
        ("Kernel", system.kernel_version),
        ("Processor", f"{cpu.model or cpu.architecture}, {cpu.num_logical_cores} threads" if cpu else ""),
        ("Memory", amount(known.memory.usable, "B")),
        *(("Mount", f"{row.mount_point}: {row.fs_type} from {row.source}") for row in mounts[:MAX_MOUNTS]),
    ]
    return [(term, text) for term, text in lines if text]


def cost(hosts: Iterable[HostShown]) -> CostShown | None:
    """The medians over the hosts that reported it."""
    reported = [host for host in hosts if host.memory_bytes is not None or host.cpu_share is not None]
    if not reported:
        return None
    return CostShown(
        hosts=len(reported),
        memory_bytes=_median(host.memory_bytes for host in reported),
        sent_bytes=_median(host.sent_bytes for host in reported),
    )


def _median(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def marks(hosts: RecordHosts, shown: list[HostShown]) -> list[Mark]:
    """Gaps of single hosts and of single sources, and where samples resume."""
    found = []
    last = {series.name: (series.last_ns or 0) / MS for series in hosts.series}
    for at, host in enumerate(shown):
        for gap in host.gaps:
            found.append(Mark("reboot" if "reboot" in gap.why else "gap", gap.start, gap.end, gap.why, at))
            if last[host.name] > gap.end:
                found.append(Mark("reconnect", gap.end, gap.end, "samples resume", at))
        found += [Mark("gap", one.start, one.end, f"{one.source}: {one.why}", at) for one in host.source_gaps]
    return found
