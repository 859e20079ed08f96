"""The outliers of a run: hosts and devices that differ from their peers, grouped by probable cause."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rollbook.metrics.formatting import amount, clock_span, ratio_text
from rollbook.metrics.grid import Axis, Grid, Row
from rollbook.metrics.metric import Metric
from rollbook.metrics.outliers import FEWEST_ROWS, Stretch, against_peers, over_time

__all__ = ["Outlier", "find_outliers", "group_by_cause"]


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A host or device that differed in one metric for a while."""

    row: Row
    metric: Metric
    stretch: Stretch
    axis: Axis

    @property
    def start_ns(self) -> int:
        """When it began to differ."""
        return self.axis.at(self.stretch.first)

    @property
    def end_ns(self) -> int:
        """When it stopped differing."""
        return self.axis.at(self.stretch.last + 1)

    @property
    def factor(self) -> float | None:
        """Its value as a multiple of the usual one."""
        return self.stretch.value / self.stretch.usual if self.stretch.usual else None

    def __str__(self) -> str:
        """`node17 nvme1n1 write latency 9.1 × the median of 31 peers (27 ms against 3 ms), 12:04–12:19 UTC`."""
        metric, peers = self.metric, self.stretch.peers
        others = f"the median of {peers} peers" if peers else "its own median over the run"
        value, usual = amount(self.stretch.value, metric.unit), amount(self.stretch.usual, metric.unit)
        ratio = ratio_text(self.stretch.value, self.stretch.usual, metric.threshold)
        difference = f"{ratio} {others} ({value} against {usual})" if ratio else f"{value}, {others} is {usual}"
        title = metric.title if metric.title[:2].isupper() else metric.title[0].lower() + metric.title[1:]
        return f"{self.row} {title} {difference}, {clock_span(self.start_ns, self.end_ns)} UTC"


def find_outliers(
    by_host: Mapping[Metric, Grid], by_device: Mapping[Metric, Grid], groups: Mapping[str, str]
) -> list[Outlier]:
    """All outliers, the strongest first. Peers are hosts of one group; `groups` has the group of each host."""
    found = [*_among(by_device, groups, devices=True), *_among(by_host, groups, devices=False)]
    return sorted(_named_once(found, by_device), key=lambda outlier: -outlier.stretch.strength)


def group_by_cause(outliers: Sequence[Outlier]) -> list[list[Outlier]]:
    """Outliers of one host at overlapping times together; groups and their members strongest first."""
    found: list[list[Outlier]] = []
    for one in outliers:
        for group in found:
            first = group[0]
            if first.row.host == one.row.host and first.start_ns < one.end_ns and one.start_ns < first.end_ns:
                group.append(one)
                break
        else:
            found.append([one])
    return found


def _among(grids: Mapping[Metric, Grid], groups: Mapping[str, str], *, devices: bool) -> list[Outlier]:
    found = []
    for metric, grid in grids.items():
        for peers in _peers(grid.rows, groups, devices=devices):
            lines = [grid.mean[at] for at in peers]
            stretches = against_peers(lines, metric.threshold)
            if len(peers) < FEWEST_ROWS and metric.over_time:
                stretches = [one for row, line in enumerate(lines) for one in over_time(row, line, metric.threshold)]
            found += [Outlier(grid.rows[peers[one.row]], metric, one, grid.axis) for one in stretches]
    return found


def _peers(rows: Sequence[Row], groups: Mapping[str, str], *, devices: bool) -> list[list[int]]:
    """Rows that can be compared: hosts of one group; devices of one name, or of one kind if these are too few.

    Groups that are too small to compare are compared with each other.
    """
    sizes = Counter(groups.get(host, "") for host in {row.host for row in rows})
    named: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(rows):
        group = groups.get(row.host, "")
        named.setdefault((group if sizes[group] >= FEWEST_ROWS else "", row.device), []).append(at)
    if not devices:
        return list(named.values())
    found: dict[tuple[str, str], list[int]] = {}
    for (group, name), members in named.items():
        kind = name if len(members) >= FEWEST_ROWS else re.sub("[0-9].*", "", name)
        found.setdefault((group, kind), []).extend(members)
    return list(found.values())


def _named_once(outliers: Sequence[Outlier], by_device: Mapping[Metric, Grid]) -> list[Outlier]:
    """Either a host or its devices, not both: the host if most of its devices are outliers, else the devices."""
    owned = {metric: Counter(row.host for row in grid.rows) for metric, grid in by_device.items()}
    found = Counter((one.row.host, one.metric) for one in outliers if one.row.device)

    def names_devices(host: str, metric: Metric) -> bool:
        number = found[host, metric]
        return number == 1 or 0 < number <= owned[metric][host] / 2

    return [one for one in outliers if bool(one.row.device) == names_devices(one.row.host, one.metric)]
