"""The views of a record in SQL, generated from the catalogue: metrics per device, per host, and statistics per phase.

A table that the record lacks is empty, a column that the kernel lacks is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rollbook.metrics import catalogue
from rollbook.metrics.counters import HOLD
from rollbook.metrics.metric import VALUES, Metric, Part, Table
from rollbook.metrics.rates import rates_of
from rollbook.metrics.totals import COUNTED, MOUNTED
from rollbook.protocol.beats import LONGEST_STEP
from rollbook.sources.base import Compare
from rollbook.tables.quoting import quoted, text

__all__ = ["Sampled", "counted_table", "host_view", "tables_of", "views_of"]

NUMBERS = ("BIGINT", "DOUBLE", "DECIMAL", "INTEGER", "HUGEINT", "FLOAT", "UBIGINT")
BEAT_TABLES = ("loadavg", "meminfo", "vmstat", "stat")
SAMPLE_TABLES = (*BEAT_TABLES, "stat_totals")
ALL_CPUS = "(FROM stat WHERE cpu = 'cpu')"
MEAN = "coalesce(sum(value * ns) / nullif(sum(ns), 0), avg(value))"
# A sample covers the time since the one before it, and belongs to the phase that holds the middle of that time: a
# sample taken at the edge of a phase ends it. If it comes soon after a beat, a counter that grows in steps has a rate
# that never was: such a sample counts in the mean by its time, but is no peak.
PHASE_STATS = """
    WITH stretches AS (
        SELECT host, ts, least(epoch_ns(ts) - coalesce(epoch_ns(lag(ts) OVER beats), epoch_ns(ts)), {longest}) AS ns
        FROM beats WINDOW beats AS (PARTITION BY host ORDER BY ts)
    ), placed AS (
        SELECT phases.number, phases.name AS phase, host, ts, ns, ns = 0 OR ns >= {shortest} AS usual
        FROM phases JOIN stretches
        ON epoch_ns(ts) - ns // 2 >= epoch_ns(phases.start) AND epoch_ns(ts) - ns // 2 < epoch_ns(phases."end")
    ), long AS (
        UNPIVOT (FROM placed JOIN rates USING (host, ts)) ON COLUMNS(* EXCLUDE (number, phase, host, ts, ns, usual))
        INTO NAME metric VALUE value
    ), by_host AS (
        SELECT number, phase, metric, host, {mean} AS value FROM long GROUP BY ALL
    ), over_time AS (
        SELECT number, phase, metric, count(*) AS samples, quantile_cont(value, 0.5) AS p50,
            quantile_cont(value, 0.95) AS p95, coalesce(max(value) FILTER (WHERE usual), max(value)) AS max
        FROM long GROUP BY ALL
    ), over_hosts AS (
        SELECT number, phase, metric, count(*) AS hosts, avg(value) AS mean, quantile_cont(value, 0.5) AS hosts_p50,
            quantile_cont(value, 0.95) AS hosts_p95, min(value) AS hosts_min, max(value) AS hosts_max,
            arg_min(host, value) AS lowest, arg_max(host, value) AS highest
        FROM by_host GROUP BY ALL
    )
    SELECT number, phase, metric, samples, mean, p50, p95, max, hosts, hosts_p50, hosts_p95, hosts_min, hosts_max,
        CASE WHEN hosts_min = hosts_max THEN NULL
            WHEN metric IN ({high}) THEN highest WHEN metric IN ({low}) THEN lowest END AS slowest_host
    FROM over_time JOIN over_hosts USING (number, phase, metric) ORDER BY number, metric"""


class Sampled(NamedTuple):
    """A table of the record: its columns with SQL types, what each is, and the seconds between two samples.

    `streamed` as for `rates_of`.
    """

    types: Mapping[str, str]
    compare: Mapping[str, Compare]
    step: float
    streamed: bool


def host_view(part: str) -> str:
    """The view with the metrics of a part, one row per host and beat."""
    return f"host_{part}"


def counted_table(source: str) -> str:
    """The table with the devices of a sampled table that count in the totals of their host."""
    return f"counted_{source}"


def views_of(
    sampled: Mapping[str, Sampled], columns: Mapping[str, Mapping[str, str]], *, as_live: bool = False
) -> dict[str, str]:
    """All views in the order in which they must be created.

    `sampled` has the tables that the record has, `columns` the columns of these and of all other sampled sources. With
    `as_live`, a rate is shown from its sample on, as the live view does, which does not know the next one.
    """
    beat = max((sampled[table].step for table in BEAT_TABLES if table in sampled), default=1.0)
    found = {"beats": _beats(sampled)}
    for part in catalogue.parts().values():
        if part.shows_devices:
            found[part.name] = _devices(part, sampled)
        found[host_view(part.name)] = _per_host(part, sampled, lags=as_live or not part.has_rates)
    found["samples"] = _samples(columns)
    found["rates"] = _rates(sampled)
    found["phase_stats"] = PHASE_STATS.format(
        longest=round(LONGEST_STEP * beat * 1e9),
        shortest=round(beat * 1e9 / 4),
        mean=MEAN,
        **{
            side: ", ".join(text(m.name) for m in catalogue.load().values() if m.bad == side)
            for side in ("high", "low")
        },
    )
    return found


def tables_of(view: str) -> set[str]:
    """The sampled tables that a view reads, whether a record has them or not; none for any other name."""
    parts = catalogue.parts()
    if view in ("rates", "phase_stats"):
        return {*BEAT_TABLES, *(table.source.name for part in parts.values() for table in part.tables)}
    if view == "beats":
        return {*BEAT_TABLES}
    if view == "samples":
        return {*SAMPLE_TABLES}
    for part in parts.values():
        if view == host_view(part.name) or (part.shows_devices and view == part.name):
            held = view != part.name and part.is_held
            return {*(BEAT_TABLES if held else ()), *(table.source.name for table in part.tables)}
    return {view.removesuffix("_rates")} if view.endswith("_rates") else set()


def _beats(sampled: Mapping[str, Sampled]) -> str:
    tables = [table for table in BEAT_TABLES if table in sampled]
    rows = [f"SELECT host, ts FROM {ALL_CPUS if table == 'stat' else table}" for table in tables]  # noqa: S608 - our own names
    return " UNION ".join(rows) or _empty()


def _empty(*columns: str, device: bool = False) -> str:
    """A query without rows."""
    names = ["NULL::VARCHAR AS host", "NULL::TIMESTAMP_NS AS ts", *["NULL::VARCHAR AS device"] * device]
    return f"SELECT {', '.join([*names, *(f'NULL::DOUBLE AS {name}' for name in columns)])} WHERE false"


def _present(part: Part, sampled: Mapping[str, Sampled]) -> list[Table]:
    return [table for table in part.tables if table.source.name in sampled]


def _names(metrics: Iterable[Metric]) -> list[str]:
    return [metric.name for metric in metrics]


def _devices(part: Part, sampled: Mapping[str, Sampled]) -> str:
    """One row per host, beat and device."""
    tables = _present(part, sampled)
    queries = [_rows(table, sampled[table.source.name]) for table in tables]
    if not {metric.name for metric in part.metrics} <= {name for table in tables for name in _names(table.metrics)}:
        queries.insert(0, _empty(*_names(part.metrics), device=part.has_devices))
    return " UNION ALL BY NAME ".join(queries)


def _rows(table: Table, sampled: Sampled) -> str:
    """The metrics of a table for each device; those from several rows of one device are joined into one row."""
    compare = {name: how for name, how in sampled.compare.items() if name in (*table.keys, *table.columns)}
    numbers = {name for name in table.columns if sampled.types.get(name, "").startswith(NUMBERS)}
    known = {name: quoted(name) for name in numbers if name in compare and compare[name].mode in VALUES}
    tops = {how.wraps for how in compare.values() if how.wraps in sampled.types}
    types = {name: kind for name, kind in sampled.types.items() if name in (*table.keys, *known, *tops)}
    wheres = list(dict.fromkeys(metric.wanted for metric in table.metrics))
    joins = len(wheres) > 1 or any(len(values) > 1 for _, values in wheres[0])
    chosen = " OR ".join(_condition(where) for where in wheres if where)
    relation = f"(SELECT {', '.join(['host', 'ts', 'mono', *map(quoted, types)])} FROM {quoted(table.source.name)}"  # noqa: S608 - quoted
    relation += f" WHERE {chosen})" if chosen else ")"
    picked = {}
    for metric in table.metrics:
        value = metric.formulas[table.source.name].sql(known)
        picked[metric.name] = f"CASE WHEN {_condition(metric.wanted)} THEN {value} END" if joins else value
    values = []
    for metric in table.metrics:
        value = picked[metric.name]
        values.append(f"{_aggregate(metric, value, picked) if joins else value} AS {metric.name}")
    device = [f"{_device(table, sampled.types)} AS device"] if table.free else []
    rates = rates_of(relation, types, compare, sampled.step, streamed=sampled.streamed)
    query = f"SELECT {', '.join(['rates.host', 'ts', *device, *values])} FROM ({rates}) rates"  # noqa: S608 - our own names
    if table.source.name in COUNTED:
        counted, name = counted_table(table.source.name), quoted(table.free[0])
        query += f" SEMI JOIN {counted} counted ON rates.host = counted.host AND {name} = counted.device"
    return f"{query} GROUP BY ALL" if joins else query


def _condition(wanted: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    return " AND ".join(f"{quoted(name)} IN ({', '.join(map(text, values))})" for name, values in wanted)


def _device(table: Table, types: Mapping[str, str]) -> str:
    """The name of a device; one that is only a number is prefixed with the name of its table."""
    first, *others = (f"{quoted(name)}::VARCHAR" for name in table.free)
    if types[table.free[0]] != "VARCHAR":
        first = f"{text(table.source.name)} || {first}"
    return " || ' ' || ".join([first, *others])


def _per_host(part: Part, sampled: Mapping[str, Sampled], *, lags: bool) -> str:
    """One row per host and beat, also between two samples of what is not read on every beat.

    The rate of a counter belongs to the time before its sample. A gauge `lags`: it holds until the next is due.
    """
    tables, names = _present(part, sampled), _names(part.metrics)
    if not tables:
        return _empty(*names)
    total = _total(part, sampled)
    if not part.is_held:
        return total
    step = max(sampled[table.source.name].step for table in tables)
    side, sign = (">=", 1) if lags else ("<=", -1)
    near = f"{sign} * (epoch_ns(beats.ts) - epoch_ns(nearest.ts)) <= 1e9 * {HOLD} * step_of(beats.host, {step})"
    held = ", ".join(f"CASE WHEN {near} THEN nearest.{name} END AS {name}" for name in names)
    return f"""SELECT beats.host, beats.ts, {held}
        FROM beats ASOF LEFT JOIN ({total}) nearest ON beats.host = nearest.host AND beats.ts {side} nearest.ts"""  # noqa: S608 - our own names


def _total(part: Part, sampled: Mapping[str, Sampled]) -> str:
    if not part.has_devices:
        return _devices(part, sampled)
    rows = quoted(part.name) if part.shows_devices else f"({_devices(part, sampled)})"
    if part.tables[0].source.name in MOUNTED:
        values = ", ".join(f"max({name}) AS {name}" for name in _names(part.metrics))
        rows = f"""(SELECT host, ts, coalesce(same, device) AS mount, {values}
            FROM {rows} LEFT JOIN same_mounts USING (host, device) GROUP BY ALL)"""  # noqa: S608 - our own names
    named = {name: name for name in _names(part.metrics)}
    totals = ", ".join(f"{_aggregate(metric, metric.name, named)} AS {metric.name}" for metric in part.metrics)
    return f"SELECT host, ts, {totals} FROM {rows} GROUP BY host, ts"  # noqa: S608 - our own names


def _aggregate(metric: Metric, value: str, values: Mapping[str, str]) -> str:
    """One value of those of several rows; `values` are the expressions of all metrics, of which one is the weight."""
    if metric.total in ("sum", "max"):
        return f"{metric.total}({value})"
    if metric.total == "mean":
        return f"avg({value})"
    weight = values[metric.total]
    return f"sum({value} * {weight}) / nullif(sum({weight}) FILTER (WHERE {value} IS NOT NULL), 0)"


def _samples(columns: Mapping[str, Mapping[str, str]]) -> str:
    """One row per host and beat: what was read, memory in bytes and counters as totals."""

    def levels(table: str, *more: str) -> str:
        known = {name: quoted(name) for name in columns[table]}
        metrics = [metric for metric in catalogue.load().values() if table in metric.formula]
        values = (f"{metric.formulas[table].sql(known)} AS {metric.name}" for metric in metrics)
        return f"SELECT host, ts, {', '.join([*more, *values])} FROM {table}"  # noqa: S608 - our own names

    memory = levels("meminfo", "1024 * total_kib::DOUBLE AS mem_total")
    return f"""
        SELECT beats.host, beats.ts, loadavg.* EXCLUDE (host, ts, mono), memory.* EXCLUDE (host, ts),
            stat.* EXCLUDE (host, ts, mono, cpu, extra), stat_totals.ctxt, stat_totals.processes AS forks,
            stat_totals.procs_running, stat_totals.procs_blocked, paging.* EXCLUDE (host, ts)
        FROM beats LEFT JOIN loadavg USING (host, ts) LEFT JOIN ({memory}) memory USING (host, ts)
            LEFT JOIN {ALL_CPUS} stat USING (host, ts) LEFT JOIN stat_totals USING (host, ts)
            LEFT JOIN ({levels("vmstat")}) paging USING (host, ts)
        ORDER BY beats.host, beats.ts"""  # noqa: S608 - our own text


def _rates(sampled: Mapping[str, Sampled]) -> str:
    """All metrics, one row per host and beat."""
    there = [part for part in catalogue.parts().values() if _present(part, sampled)]
    known = {metric.name: host_view(part.name) for part in there for metric in part.metrics}
    columns = [f"{known[name]}.{name}" if name in known else f"NULL::DOUBLE AS {name}" for name in catalogue.load()]
    joined = " ".join(f"LEFT JOIN {host_view(part.name)} USING (host, ts)" for part in there)
    return f"SELECT beats.host, beats.ts, {', '.join(columns)} FROM beats {joined} ORDER BY beats.host, beats.ts"  # noqa: S608 - our own text
