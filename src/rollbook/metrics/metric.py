"""The declaration of a metric: SQL, page, live view, phase statistics, outliers and docs follow from it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

from rollbook.errors import RollbookError
from rollbook.metrics.formula import Formula
from rollbook.metrics.outliers import Threshold
from rollbook.sources import catalogue as sources
from rollbook.sources.base import Compare, Source, compare_of, keys_of

__all__ = ["VALUES", "Metric", "Part", "Table", "parts_of"]

TOTALS = ("sum", "max", "mean")
RESERVED = ("beats", "samples", "rates", "phase_stats", "hosts", "facts", "phases", "gaps", "losses", "findings",
            "results", "same_mounts")  # fmt: skip
VALUES = ("counter", "delta", "gauge")


@dataclasses.dataclass(frozen=True, eq=False)
class Metric:
    """One derived metric. Each is a column of the view `rates`, and a chart unless `chart` is false.

    `formula` has a formula for each table that the metric comes from (see `rollbook.metrics.formula`); `where` picks
    rows by the value of key columns, or by several. A table may have a row per device: `devices` names the SQL view
    that shows the metric per device. `total` makes one value of those of several rows, of a device and of a host: the
    sum, the maximum, the mean, or, given the name of another metric, the mean weighted by that metric.

    `bad` is the direction that is bad. It decides which host is the slowest of a phase, and whether only high values
    or both high and low ones are outliers. `negligible` is the difference, in `unit`, that does not matter. Peers
    are compared unless `compared` is false. With `over_time` a host that has too few peers is compared with its own
    median. `ceiling` is the greatest possible value; `runs_out` marks a resource whose charts show the minimum of
    each cell instead of the maximum. `watch` is the heading in the live view; without it the metric is not shown there.
    With `summary` the end of a run states its mean and peak if the peak is not negligible.
    """

    name: str
    title: str
    unit: str
    description: str
    formula: Mapping[str, str]
    _: dataclasses.KW_ONLY
    where: Mapping[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    devices: str = ""
    total: str = "sum"
    bad: Literal["high", "low", ""] = ""
    negligible: float = 0.0
    compared: bool = True
    over_time: bool = False
    ceiling: float | None = None
    runs_out: bool = False
    chart: bool = True
    watch: str = ""
    summary: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or not self.formula:
            raise ValueError(f"{self.name!r}: a metric needs a name that is an identifier, and a formula")
        if self.compared and self.negligible <= 0:
            raise ValueError(f"{self.name}: a metric that is compared needs `negligible`")

    @property
    def threshold(self) -> Threshold:
        """What makes a value an outlier."""
        return Threshold("high" if self.bad == "high" else "both", self.negligible)

    @property
    def part(self) -> str:
        """The metrics of one part are computed together: those of one view of devices, or of one table."""
        return self.devices or next(iter(self.formula))

    @functools.cached_property
    def wanted(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The key columns of `where` with their values."""
        return tuple((key, (one,) if isinstance(one, str) else one) for key, one in self.where.items())

    @functools.cached_property
    def formulas(self) -> dict[str, Formula]:
        """The parsed formula for each table."""
        return {table: Formula(text) for table, text in self.formula.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The rows of one sampled table that some metrics come from. Raises `RollbookError` for an invalid metric.

    `keys` name a row, `free` are those of them that no metric fixes with `where`: they name the device.
    """

    source: Source
    metrics: tuple[Metric, ...]

    def __post_init__(self) -> None:
        for metric in self.metrics:
            for name in metric.formulas[self.source.name].columns:
                if not any(how.columns or how.mode in VALUES for _, how in self.fields[name]):
                    raise RollbookError(f"metric {metric.name}: {self.source.name} has no column {name}")
            for name in metric.where:
                if name not in self.keys:
                    known = ", ".join(self.keys) or "none"
                    raise RollbookError(
                        f"metric {metric.name}: {self.source.name} has no key {name} (its keys: {known})"
                    )
        if len({tuple(metric.where) for metric in self.metrics}) > 1:
            raise RollbookError(f"metrics of {self.metrics[0].part}: `where` must fix the same keys in all of them")

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that name a row."""
        return keys_of(self.source.row_type)

    @functools.cached_property
    def fixed(self) -> tuple[str, ...]:
        """The keys whose values metrics fix."""
        return tuple(self.metrics[0].where)

    @functools.cached_property
    def free(self) -> tuple[str, ...]:
        """The keys that name the device; none where the host has one row."""
        return tuple(name for name in self.keys if name not in self.fixed)

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns in the formulas."""
        names = (name for metric in self.metrics for name in metric.formulas[self.source.name].columns)
        return tuple(dict.fromkeys(names))

    @functools.cached_property
    def is_held(self) -> bool:
        """Whether values hold until the next are due: the source is not read on every beat, or may miss one.

        While a host is sampled, only what the agent itself reads in /proc is certain to be in every sample.
        """
        in_proc = all(order.op == "read" and order.args[0].startswith("/proc/") for order in self.source.orders)
        return self.source.every > 1 or not in_proc

    @functools.cached_property
    def fields(self) -> dict[str, list[tuple[str, Compare]]]:
        """For each column in the formulas, the fields of a row that may hold it, and how each compares."""
        fields = compare_of(self.source.row_type)
        dicts = [(name, how) for name, how in fields.items() if how.columns]
        return {name: [(name, fields[name])] if name in fields else dicts for name in self.columns}


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Metrics that are computed together: of the devices of one kind, or of one table of the host."""

    name: str
    tables: tuple[Table, ...]
    metrics: tuple[Metric, ...]

    @property
    def has_devices(self) -> bool:
        """Whether there is a row per device."""
        return bool(self.tables[0].free)

    @property
    def shows_devices(self) -> bool:
        """Whether a view shows them."""
        return self.has_devices and bool(self.metrics[0].devices)

    @property
    def is_held(self) -> bool:
        """Whether values hold until the next are due."""
        return any(table.is_held for table in self.tables)

    @property
    def has_rates(self) -> bool:
        """Whether values are rates of counters: they belong to the time before the sample."""
        return any(how.mode != "gauge" for table in self.tables for found in table.fields.values() for _, how in found)


def parts_of(metrics: Mapping[str, Metric]) -> dict[str, Part]:
    """The parts that these metrics make, by name, in the order of the metrics; raises `RollbookError`."""
    grouped: dict[str, list[Metric]] = {}
    for metric in metrics.values():
        grouped.setdefault(metric.part, []).append(metric)
    return {name: _part(name, members) for name, members in grouped.items()}


def _part(name: str, members: list[Metric]) -> Part:
    if members[0].devices and (
        name in RESERVED or name.startswith(("host_", "counted_")) or sources.find(name.removesuffix("_rates"))
    ):
        raise RollbookError(f"metric {members[0].name}: a view cannot be called {name}")
    named = {metric.name: metric for metric in members}
    for metric in members:
        if metric.total in TOTALS:
            continue
        weight = named.get(metric.total)
        if weight is None:
            raise RollbookError(f"metric {metric.name}: {metric.total} is not a metric of {name}")
        if weight.wanted != metric.wanted or not weight.formula.keys() >= metric.formula.keys():
            raise RollbookError(f"metric {metric.name}: {metric.total} does not come from the same rows")
    by_table: dict[str, list[Metric]] = {}
    for metric in members:
        for table in metric.formula:
            by_table.setdefault(table, []).append(metric)
    tables = []
    for table, those in by_table.items():
        source = sources.find(table)
        if source is None or not source.every:
            raise RollbookError(f"metric {those[0].name}: {table} is not a table of samples")
        tables.append(Table(source, tuple(those)))
    return Part(name, tuple(tables), tuple(members))
