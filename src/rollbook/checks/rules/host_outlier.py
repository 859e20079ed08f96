"""A host or device behaved unlike its peers for a while or, with too few peers, unlike its own median.

Why: One slow disk, link or host slows down a whole parallel job, and averages over all hosts hide it.
Example: node17 nvme1n1 disk write latency 9.1 × the median of 31 peers (27 ms against 3 ms), 12:04–12:19 UTC
Fix: Open the host at that time on the page (report.html) and compare its other metrics and its kernel log with those of
a peer.
Reference: docs/page.md, Outliers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rollbook.checks.run_data import RunData, Samples
from rollbook.checks.times import span
from rollbook.errors import CannotTell, NotApplicable
from rollbook.metrics.host_outliers import Outlier, find_outliers, group_by_cause
from rollbook.metrics.outliers import FEWEST_FAR, FEWEST_ROWS
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "host-outlier", "warn", (SeriesHost, Samples)
MOST = 60  # findings; of weaker outliers only the hosts are named
MAX_OTHERS = 4  # metrics named beside the strongest


def check(run: RunData) -> Iterator[Finding]:
    """Every compared metric of every host and device, over the whole run; one finding for each host and time."""
    sampled = [host.samples for host in run.series if host.samples]
    if max(sampled) < FEWEST_FAR:
        raise NotApplicable(f"no host has {FEWEST_FAR} samples, too few to compare")
    outliers, damaged = _outliers(run)
    yield from findings_of(outliers)
    if damaged:
        raise CannotTell(f"damaged tables: {', '.join(damaged)}")
    if len(sampled) < FEWEST_ROWS:
        raise NotApplicable(f"a comparison needs at least {FEWEST_ROWS} hosts")


def findings_of(outliers: Sequence[Outlier]) -> Iterator[Finding]:
    """A finding for each host and time with outliers, the strongest first."""
    causes = group_by_cause(outliers)
    for cause in causes[:MOST]:
        yield _finding(cause)
    if rest := dict.fromkeys(cause[0].row.host for cause in causes[MOST:]):
        yield Finding(message=f"{len(causes) - MOST} more outliers, weaker than the {MOST} listed", hosts=list(rest))


def _outliers(run: RunData) -> tuple[list[Outlier], Sequence[str]]:
    """The outliers in all metrics that can be read, and the names of damaged tables."""
    with run.open_tables() as tables:
        if tables is None:
            raise CannotTell("the tables of the series are missing")
        everything, damaged = tables.all_grids(run.hosts), tables.damaged
    if everything is None:
        return [], damaged
    grids = everything.select(lambda metric: metric.compared)
    groups = {host.name: group.name for group in run.groups for host in group.hosts}
    return find_outliers(grids.by_host, grids.by_device, groups), damaged


def _finding(cause: Sequence[Outlier]) -> Finding:
    first, *others = cause
    titles = list(dict.fromkeys(one.metric.title for one in others if one.metric is not first.metric))
    more = [*titles[:MAX_OTHERS], *([f"{len(titles) - MAX_OTHERS} more"] if len(titles) > MAX_OTHERS else [])]
    evidence: dict[str, Any] = {
        "metrics": list(dict.fromkeys(one.metric.name for one in cause)),
        "unit": first.metric.unit,
        "value": _rounded(first.stretch.value),
        "median": _rounded(first.stretch.usual),
        "factor": None if first.factor is None else _rounded(first.factor),
        "peers": first.stretch.peers,
        "deviations": _rounded(first.stretch.deviations),
        **({"device": first.row.device} if first.row.device else {}),
        **({"also": [str(one) for one in others]} if others else {}),
        **span(first.start_ns, first.end_ns),
    }
    also = f"; also {', '.join(more)}" if more else ""
    return Finding(message=f"{first}{also}", hosts=[first.row.host], evidence=evidence)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
