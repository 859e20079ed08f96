"""Rates from counters, in SQL, once for all who need them.

A rate is a difference over the host's own monotonic time between two reads of the same source. There is none across a
gap of more than two and a half steps, across a reboot or a suspend, and where a counter fell without having wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollbook.series.counters import LONGEST_STEP, NARROW, SLACK, SLACK_SHARE, WIDE
from rollbook.series.tables import quoted

__all__ = ["MACROS", "rates_of"]

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
    "CREATE MACRO rise_ticks(now, before) AS CASE WHEN now < before THEN 0 ELSE now - before END",
)


def rates_of(table: str, types: Mapping[str, str], about: Mapping[str, tuple[str, str]], step: float) -> str:
    """A query over a table: keys and gauges as they are, counters per second, and the `seconds` they are taken over.

    `types` has the columns and their SQL types, `about` how each compares and its unit, `step` the seconds between two
    samples.
    """
    chosen = [name for name in types if name in about]
    keys = [quoted(name) for name in types if about.get(name, ("", ""))[0] == "key"]
    counters = [name for name in chosen if about[name][0] in ("counter", "delta") and types[name] != "VARCHAR"]
    levels = [quoted(name) for name in chosen if about[name][0] == "gauge"]
    befores = [f"lag({quoted(name)}) OVER beats AS {quoted(name + ' before')}" for name in counters]
    rates = [
        f"CASE WHEN steady THEN {_macro(types[name], about[name][1])}({quoted(name)}, {quoted(name + ' before')}) "
        f"/ seconds END AS {quoted(name)}"
        for name in counters
    ]
    columns = ["*", "(mono - lag(mono) OVER beats) / 1e9 AS seconds", *befores]
    columns += ["(epoch_ns(ts) - epoch_ns(lag(ts) OVER beats)) / 1e9 AS passed"]
    steady = f"seconds > 0 AND seconds <= {LONGEST_STEP * step} AND passed - seconds < {SLACK} + {SLACK_SHARE} * passed"
    return f"""
        SELECT {", ".join(["host", "ts", *keys, "CASE WHEN steady THEN seconds END AS seconds", *levels, *rates])}
        FROM (SELECT *, {steady} AS steady FROM (
            SELECT {", ".join(columns)} FROM {quoted(table)}
            WINDOW beats AS (PARTITION BY {", ".join(["host", *keys])} ORDER BY ts)
        ))"""  # noqa: S608 - quoted names and numbers


def _macro(kind: str, unit: str) -> str:
    if unit == "ticks":
        return "rise_ticks"
    return "rise_wide" if kind.startswith("DECIMAL") else "rise"
