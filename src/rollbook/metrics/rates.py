"""Rates from counters, in SQL, once for all who need them.

A rate is a difference over the host's own monotonic time between two reads of the same source. There is none across a
gap of more than two and a half steps, across a reboot or a suspend, and where a counter fell without having wrapped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rollbook.metrics.counters import NARROW, SLACK, SLACK_SHARE, WIDE
from rollbook.protocol.beats import LONGEST_STEP
from rollbook.tables.quoting import quoted, text

__all__ = ["MACROS", "rates_of", "step_macro"]

# Counters that begin again at nought where another column of their row says: the energy of a RAPL zone.
TOPS = {"energy_uj": "max_energy_range_uj"}
# The rules of `counters`, in SQL.
NARROW_WRAP = f"""WHEN before BETWEEN {NARROW - NARROW // 4} AND {NARROW - 1} AND now < {NARROW // 4}
            THEN now::HUGEINT - before::HUGEINT + {NARROW}"""
MACROS = (
    f"""CREATE MACRO rise(now, before) AS CASE
        WHEN now >= before THEN now - before
        {NARROW_WRAP.replace("::HUGEINT", "")}
    END""",
    f"""CREATE MACRO rise_wide(now, before) AS CASE
        WHEN now::HUGEINT >= before::HUGEINT THEN now::HUGEINT - before::HUGEINT
        {NARROW_WRAP}
        WHEN before >= {WIDE - WIDE // 4} AND now < {WIDE // 4} THEN now::HUGEINT - before::HUGEINT + {WIDE}
    END""",
    "CREATE MACRO rise_to(now, before, top) AS CASE WHEN now >= before THEN now - before ELSE top - before + now END",
    "CREATE MACRO rise_ticks(now, before) AS CASE WHEN now < before THEN 0 ELSE now - before END",
)


def step_macro(slow: Collection[str], least: float) -> str:
    """The macro `step_of`, which `rates_of` needs: the seconds between samples, of `slow` hosts at least `least`."""
    step = f"CASE WHEN host IN ({', '.join(map(text, slow))}) THEN greatest(step, {least}) ELSE step END"
    return f"CREATE MACRO step_of(host, step) AS {step if slow else 'step'}"


def rates_of(
    table: str, types: Mapping[str, str], about: Mapping[str, tuple[str, str]], step: float, *, streamed: bool = False
) -> str:
    """A query over a table: keys and gauges as they are, counters per second, and the `seconds` they are taken over.

    `types` has the columns and their SQL types, `about` how each compares and its unit, `step` the seconds between two
    samples. With `streamed` the rows are taken as they lie in the record's tables, by host, key and time: several times
    faster over a whole table, but a query that asks for one host then reads all of them.
    """
    chosen = [name for name in types if name in about]
    keys = [quoted(name) for name in types if about.get(name, ("", ""))[0] == "key"]
    counters = [name for name in chosen if about[name][0] in ("counter", "delta") and types[name] != "VARCHAR"]
    levels = [quoted(name) for name in chosen if about[name][0] == "gauge"]
    befores = [f"lag({quoted(name)}) OVER beats AS {quoted(name + ' before')}" for name in counters]
    rates = [
        f"CASE WHEN steady THEN {_rise(name, types, about[name][1])} / seconds END AS {quoted(name)}"
        for name in counters
    ]
    alike = [f"{key} IS NOT DISTINCT FROM lag({key}) OVER beats" for key in ["host", *keys]] if streamed else ["true"]
    columns = ["*", "(mono - lag(mono) OVER beats) / 1e9 AS seconds", f"{' AND '.join(alike)} AS alike", *befores]
    columns += ["(epoch_ns(ts) - epoch_ns(lag(ts) OVER beats)) / 1e9 AS passed"]
    steady = (
        f"alike AND seconds > 0 AND seconds <= {LONGEST_STEP} * step_of(host, {step}) "
        f"AND passed - seconds < {SLACK} + {SLACK_SHARE} * passed"
    )
    beats = "" if streamed else f"PARTITION BY {', '.join(['host', *keys])} ORDER BY ts"
    return f"""
        SELECT {", ".join(["host", "ts", *keys, "CASE WHEN steady THEN seconds END AS seconds", *levels, *rates])}
        FROM (SELECT *, {steady} AS steady FROM (
            SELECT {", ".join(columns)} FROM {quoted(table)}
            WINDOW beats AS ({beats})
        ))"""  # noqa: S608 - quoted names and numbers


def _rise(name: str, types: Mapping[str, str], unit: str) -> str:
    """By how much a counter rose since the row before."""
    values = f"{quoted(name)}, {quoted(name + ' before')}"
    if TOPS.get(name) in types:
        return f"rise_to({values}, {quoted(TOPS[name])})"
    if unit == "ticks":
        return f"rise_ticks({values})"
    return f"rise_wide({values})" if types[name].startswith("DECIMAL") else f"rise({values})"
