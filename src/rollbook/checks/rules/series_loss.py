"""Samples of a source are lost or incomplete, although the host was sampled.

Why: Rates and averages of that source have gaps or lack devices, while other sources of the host look complete.
Example: diskstats: 12 of 300 samples lost (4.0 %, undecodable), 1 more source (node17)
Fix: See the kind: lost and undecodable samples point to the connection or a damaged journal, timed-out, failed and
denied ones to the host, rejected ones to a format that this version does not parse; the journal still has their text.
Reference: hosts.json, series, sources; the tables losses and gaps of rollbook query
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData, Samples
from rollbook.checks.times import span
from rollbook.clean import count_text
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost, SourceLoss

ID, SEVERITY, NEEDS = "series-loss", "warn", (SeriesHost, Samples)
FAIL = 0.01  # share of the samples of a source; below it the finding is a warning


def check(run: RunData) -> Iterator[Finding]:
    """Hosts with sources of which samples are lost or incomplete; beats that a host missed for all are not counted."""
    for host in run.series:
        found = sorted((one for one in host.sources if one.affected()), key=SourceLoss.share, reverse=True)
        if not found:
            continue
        worst, others = found[0], len(found) - 1
        losses = [loss for one in found for loss in one.losses if loss.kind != "missed"]
        more = f", {count_text(others, 'more source')}" if others else ""
        yield Finding(
            message=f"{worst.text(share=True)}{more} ({host.name})",
            hosts=[host.name],
            severity="fail" if worst.share() > FAIL else "warn",
            evidence={
                "sources": {one.source: [one.affected(), one.due] for one in found},
                **span(min(loss.first_ns for loss in losses), max(loss.last_ns for loss in losses)),
            },
        )
