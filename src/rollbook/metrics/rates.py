"""Tables of counters as queries of rates, in SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rollbook.metrics.counters import is_steady_sql, rise_sql
from rollbook.sources.base import Compare
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
    chosen = [name for name in types if name in compare]
    keys = [quoted(name) for name in chosen if compare[name].mode == "key"]
    counters = [name for name in chosen if compare[name].mode in ("counter", "delta") and types[name] != "VARCHAR"]
    levels = [quoted(name) for name in chosen if compare[name].mode == "gauge"]
    befores = [f"lag({quoted(name)}) OVER beats AS {quoted(name + ' before')}" for name in counters]
    rates = [
        f"CASE WHEN steady THEN {_rise(name, types, compare[name])} / seconds END AS {quoted(name)}"
        for name in counters
    ]
    alike = [f"{key} IS NOT DISTINCT FROM lag({key}) OVER beats" for key in ["host", *keys]] if streamed else ["true"]
    columns = ["*", "(mono - lag(mono) OVER beats) / 1e9 AS seconds", f"{' AND '.join(alike)} AS alike", *befores]
    columns += ["(epoch_ns(ts) - epoch_ns(lag(ts) OVER beats)) / 1e9 AS passed"]
    beats = "" if streamed else f"PARTITION BY {', '.join(['host', *keys])} ORDER BY ts"
    return f"""
        SELECT {", ".join(["host", "ts", *keys, "CASE WHEN steady THEN seconds END AS seconds", *levels, *rates])}
        FROM (SELECT *, alike AND {is_steady_sql(f"step_of(host, {step})")} AS steady FROM (
            SELECT {", ".join(columns)} FROM {relation}
            WINDOW beats AS ({beats})
        ))"""  # noqa: S608 - quoted names and numbers


def _rise(name: str, types: Mapping[str, str], compare: Compare) -> str:
    """By how much a counter rose since the previous row."""
    top = quoted(compare.wraps) if isinstance(compare.wraps, str) and compare.wraps in types else ""
    wide = types[name].startswith("DECIMAL")
    return rise_sql(quoted(name), quoted(name + " before"), compare, top=top, wide=wide)
