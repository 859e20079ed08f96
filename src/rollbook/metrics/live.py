"""Metrics of one host from its samples as they arrive; the same values as in the view `rates` of a record."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rollbook.metrics import catalogue
from rollbook.metrics.counters import HOLD, is_steady, rise
from rollbook.metrics.metric import Metric, Part, Table, parts_of
from rollbook.metrics.totals import COUNTED, MOUNTED, same_mounts
from rollbook.records.hosts import HostResult
from rollbook.sources.base import Facts
from rollbook.sources.catalogue import NAMES

__all__ = ["FACTS", "HostMetrics", "Values", "sampled_sources"]

FACTS = ("block", "net_class", "mountinfo")
"""The facts that decide which devices count in a host's totals."""
# Kept of a host: one that names new devices on every beat must not fill the collector's memory.
MAX_ROWS, MAX_LISTS = 10_000, 16

Values = dict[str, float]


def sampled_sources(metrics: Mapping[str, Metric]) -> list[str]:
    """The sources that metrics come from, in the order of reading; those that are not read on every beat come last."""
    tables = {table.source.name: table.source for part in parts_of(metrics).values() for table in part.tables}
    ordered = [name for name in NAMES if name in tables] + [name for name in tables if name not in NAMES]
    return sorted(ordered, key=lambda name: tables[name].every > 1)


def _watched() -> dict[str, Part]:
    """The metrics of the live view, and those that weight their means."""
    every, shown = catalogue.load(), catalogue.watched()
    return parts_of(shown | {metric.total: every[metric.total] for metric in shown.values() if metric.total in every})


class HostMetrics:
    """`values` are the metrics of the current beat by name, `devices` those of each device that counts.

    A metric that was not read, or has no rate yet, is in neither. `step` is the interval, `least` the shortest
    interval that the host is capable of. `parts` are the metrics to compute, by default those of the live view; they
    must include the weights of weighted means.
    """

    def __init__(self, step: float, parts: Mapping[str, Part] | None = None) -> None:
        self.step, self.least = step, 0.0
        self.values: Values = {}
        self.devices: dict[str, Values] = {}
        self._parts = _watched() if parts is None else parts
        self._tables: dict[str, list[tuple[Part, Table]]] = {}
        for part in self._parts.values():
            for table in part.tables:
                self._tables.setdefault(table.source.name, []).append((part, table))
        self._facts = HostResult(name="", status="partial")
        self._before: dict[tuple[str, str, tuple[Any, ...]], tuple[int, int, Facts]] = {}
        self._counted: dict[tuple[str, ...], list[str]] = {}
        self._beat = 0
        self._rows: dict[str, tuple[int, int, dict[str, Values]]] = {}

    def uses(self, source: str) -> bool:
        """Whether any metric comes from the samples of a source."""
        return source in self._tables

    def begin(self) -> None:
        """Start a new beat, without any values."""
        self.values, self.devices = {}, {}
        self._beat += 1
        if len(self._before) > MAX_ROWS:
            self._before.clear()

    def learn(self, source: str, fact: Any) -> None:
        """Take a fact of the host."""
        self._facts.facts[source] = fact
        self._counted.clear()

    def take(self, source: str, found: Any, ts: int, mono: int) -> None:
        """Take the facts of a source at this beat; the times are the collector's and the host's, in nanoseconds."""
        for part, table in self._tables.get(source, ()):
            self._take(part, table, found, ts, mono)

    def end(self, ts: int) -> None:
        """Complete the beat: what is not read on every beat holds until the next sample is due."""
        for name, (beat, since, rows) in self._rows.items():
            part = self._parts[name]
            step = max(self._step_of(table) for table in part.tables)
            if beat == self._beat or (part.is_held and ts - since <= 1e9 * HOLD * step):
                self._complete(part, rows)

    def _take(self, part: Part, table: Table, found: Any, ts: int, mono: int) -> None:
        rows = [row for row in (found if isinstance(found, list) else [found]) if _is_chosen(row, table)]
        devices: dict[str, list[Values]] = {}
        for device, row in self._counting(table, rows):
            before, seconds = self._since(part, table, row, ts, mono)
            inputs = {name: _input(table, name, row, before, seconds) for name in table.columns}
            known: Values = {}
            devices.setdefault(device, []).append(known)
            for metric in table.metrics:
                if _is_wanted(row, metric):
                    value = metric.formulas[table.source.name].value(inputs)
                    if value is not None:
                        known[metric.name] = value
        values = {device: _joined(table.metrics, several) for device, several in devices.items()}
        if values:
            beat, _, others = self._rows.get(part.name, (0, 0, {}))
            self._rows[part.name] = (self._beat, ts, {**(others if beat == self._beat else {}), **values})

    def _complete(self, part: Part, rows: dict[str, Values]) -> None:
        for device, values in rows.items():
            if values and part.shows_devices:
                self.devices.setdefault(device, {}).update(values)
        if part.tables[0].source.name in MOUNTED:
            rows = _merged(rows, same_mounts(rows, [self._facts]))
        for metric in part.metrics:
            total = _total(metric, rows.values())
            if total is not None:
                self.values[metric.name] = total

    def _counting(self, table: Table, rows: Sequence[Facts]) -> list[tuple[str, Facts]]:
        """The rows of the devices that count, with their names."""
        if not table.free:
            return [("", row) for row in rows]
        named = [(_device(table, row), row) for row in rows]
        choose = COUNTED.get(table.source.name)
        if choose is None:
            return named
        names = (table.source.name, *(name for name, _ in named))
        if names not in self._counted:
            if len(self._counted) > MAX_LISTS:
                self._counted.clear()
            self._counted[names] = choose(names[1:], [self._facts])
        counted = set(self._counted[names])
        return [(name, row) for name, row in named if name in counted]

    def _step_of(self, table: Table) -> float:
        """The seconds from one sample of a source to the next."""
        return max(self.least, self.step * table.source.beats(self.step))

    def _since(self, part: Part, table: Table, row: Facts, ts: int, mono: int) -> tuple[Facts | None, float]:
        """The same row in the previous sample, and the seconds since; None if there is no rate between the two."""
        key = (part.name, table.source.name, tuple(getattr(row, name) for name in table.keys))
        ts_before, mono_before, before = self._before.get(key, (ts, mono, None))
        self._before[key] = (ts, mono, row)
        seconds = (mono - mono_before) / 1e9
        steady = is_steady(seconds, (ts - ts_before) / 1e9, self._step_of(table))
        return (before if steady else None), seconds


def _is_chosen(row: Facts, table: Table) -> bool:
    """Whether any metric comes from the row."""
    return not table.fixed or any(_is_wanted(row, metric) for metric in table.metrics)


def _is_wanted(row: Facts, metric: Metric) -> bool:
    return all(getattr(row, key) in values for key, values in metric.wanted)


def _device(table: Table, row: Facts) -> str:
    """The name of a device, as in the views of a record."""
    names = [getattr(row, name) for name in table.free]
    first = names[0] if isinstance(names[0], str) else f"{table.source.name}{names[0]}"
    return " ".join([first, *map(str, names[1:])])


def _input(table: Table, column: str, row: Facts, before: Facts | None, seconds: float) -> float | None:
    """The value of a column for a formula: a counter's rate, or the value of a gauge."""
    for field, compare in table.fields[column]:
        now = _value(row, field, column)
        if now is None:
            continue
        if compare.mode == "gauge":
            return float(now)
        then = None if before is None else _value(before, field, column)
        top = _value(row, compare.wraps, "") if isinstance(compare.wraps, str) else None
        risen = None if then is None else rise(now, then, compare, top)
        return None if risen is None else risen / seconds
    return None


def _value(row: Facts, field: str, column: str) -> Any:
    value = getattr(row, field)
    return value.get(column) if isinstance(value, dict) else value


def _joined(metrics: Sequence[Metric], rows: Sequence[Values]) -> Values:
    """The values of a device from those of its rows."""
    if len(rows) == 1:
        return rows[0]
    totals = {metric.name: _total(metric, rows) for metric in metrics}
    return {name: value for name, value in totals.items() if value is not None}


def _merged(rows: Mapping[str, Values], same: Mapping[str, str]) -> dict[str, Values]:
    """One row for each file system, however many mounts it has."""
    found: dict[str, Values] = {}
    for device, values in rows.items():
        kept = found.setdefault(same.get(device, device), {})
        kept.update({name: max(value, kept.get(name, value)) for name, value in values.items()})
    return found


def _total(metric: Metric, rows: Iterable[Values]) -> float | None:
    """One value of those of several rows: of a host from its devices, of a device from its rows."""
    known = [values for values in rows if metric.name in values]
    values = [one[metric.name] for one in known]
    if not values:
        return None
    if metric.total == "sum":
        return sum(values)
    if metric.total == "max":
        return max(values)
    if metric.total == "mean":
        return statistics.fmean(values)
    weights = [one.get(metric.total, 0.0) for one in known]
    whole = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / whole if whole else None
