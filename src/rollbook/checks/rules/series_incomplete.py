"""Samples of a host are missing.

Why: Activity during a gap is unknown, and averages of that host are inaccurate.
Example: 512 of 600 samples, 1 gap, the longest 88 s: connection lost (node17)
Fix: See the reason of the gap: lost connections point to the network, missed beats to an overloaded host.
Reference: hosts.json, series
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.times import span
from rollbook.clean import count_text
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "series-incomplete", "warn", (SeriesHost,)


def check(run: RunData) -> Iterator[Finding]:
    """Hosts with gaps, without an end, or with more than 5 % of the beats missed.

    Hosts that never returned data are findings of `host-missing`.
    """
    missing = {host.name for host in run.start if not host.gave_data}
    for host in (host for host in run.series if host.samples or host.name not in missing):
        if host.status == "complete" and not host.gaps and not host.is_sparse and host.samples:
            continue
        parts = [_samples(host)]
        when: dict[str, int] = {}
        if host.gaps:
            longest = max(host.gaps, key=lambda gap: gap.end_ns - gap.start_ns)
            seconds = (longest.end_ns - longest.start_ns) / 1e9
            parts.append(f"{count_text(len(host.gaps), 'gap')}, the longest {seconds:.0f} s: {longest.why}")
            when = span(longest.start_ns, longest.end_ns)
        elif host.status != "complete":
            parts.append(f"{host.status}: {host.reason}")
            when = span(host.last_ns or run.started_ns, run.ended_ns)
        yield Finding(
            message=f"{', '.join(parts)} ({host.name})",
            hosts=[host.name],
            severity=None if host.samples else "fail",
            evidence={
                "samples": host.samples,
                "missed": host.missed,
                "late": host.late,
                "gaps": len(host.gaps),
                **when,
            },
        )


def _samples(host: SeriesHost) -> str:
    if host.missed:
        return f"{host.samples} of {count_text(host.samples + host.missed, 'sample')}"
    return count_text(host.samples, "sample") if host.samples else "no samples"
