"""Tables of counters as queries of rates, in SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rollbook.metrics.counters import is_steady_sql, rise_sql
from rollbook.sources.base import Compare
from rollbook.tables.columns import RESERVED
from rollbook.tables.quoting import quoted, text

__all__ = ["rates_of", "step_macro"]


def step_macro(slow: Collection[str], least: float) -> str:
    """The macro `step_of`, which `rates_of` needs: the seconds between samples, of `slow` hosts at least `least`."""
    step = f"CASE WHEN host IN ({', '.join(map(text, slow))}) THEN greatest(step, {least}) ELSE step END"
    return f"CREATE MACRO step_of(host, step) AS {step if slow else 'step'}"


def rates_of(
    relation: str, types: Mapping[str, str], compare: Mapping[str, Compare], step: float, *, streamed: bool = False
) -> str:
    """A query over a table or subquery: keys and gauges as they are, counters per second, and the `seconds` between.

    `types` has the columns with their SQL types, `compare` what each is, `step` the seconds between two samples. With
    `streamed` the rows are taken as they lie in the record's tables, by host, key and time: several times faster over a
    whole table, but a query for one host then reads all of them.
    """
    # Hosts name columns of some tables: here each has a name of ours, which none of theirs can be taken for.
    ours = {name: f"c{place}" for place, name in enumerate(types) if name.lower() not in RESERVED}
    chosen = [name for name in ours if name in compare]
    keys = [name for name in chosen if compare[name].mode == "key"]
    counters = [name for name in chosen if compare[name].mode in ("counter", "delta") and types[name] != "VARCHAR"]
    levels = [f"{ours[name]} AS {quoted(name)}" for name in chosen if compare[name].mode == "gauge"]
    rates = [
        f"CASE WHEN steady THEN {_rise(name, ours, types, compare[name])} / seconds END AS {quoted(name)}"
        for name in counters
    ]
    alike = ["true"]
    if streamed:
        alike = [f"{key} IS NOT DISTINCT FROM lag({key}) OVER beats" for key in ["host", *map(quoted, keys)]]
    columns = ["host", "ts", "(mono - lag(mono) OVER beats) / 1e9 AS seconds", f"{' AND '.join(alike)} AS alike"]
    columns += ["(epoch_ns(ts) - epoch_ns(lag(ts) OVER beats)) / 1e9 AS passed"]
    columns += [f"{quoted(name)} AS {own}" for name, own in ours.items()]
    columns += [f"lag({quoted(name)}) OVER beats AS {ours[name]}_before" for name in counters]
    beats = "" if streamed else f"PARTITION BY {', '.join(['host', *map(quoted, keys)])} ORDER BY ts"
    named = [f"{ours[name]} AS {quoted(name)}" for name in keys]
    return f"""
        SELECT {", ".join(["host", "ts", *named, "CASE WHEN steady THEN seconds END AS seconds", *levels, *rates])}
        FROM (SELECT *, alike AND {is_steady_sql(f"step_of(host, {step})")} AS steady FROM (
            SELECT {", ".join(columns)} FROM {relation}
            WINDOW beats AS ({beats})
        ))"""  # noqa: S608 - quoted names and numbers


def _rise(name: str, ours: Mapping[str, str], types: Mapping[str, str], compare: Compare) -> str:
    """By how much a counter rose since the previous row; `ours` are the names of columns in the query."""
    top = ours.get(compare.wraps, "") if isinstance(compare.wraps, str) else ""
    wide = types[name].startswith("DECIMAL")
    return rise_sql(ours[name], f"{ours[name]}_before", compare, top=top, wide=wide)
