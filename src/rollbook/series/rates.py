"""Rates from counters, in SQL, once for all who need them.

A rate is a difference over the host's own monotonic time between two reads of the same source. There is none across a
gap of more than two and a half steps, across a reboot or a suspend, and where a counter fell without having wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollbook.series.tables import quoted

__all__ = ["MACROS", "rates_of"]

LONGEST_STEP = 2.5

# A counter wrapped if it was in the last quarter of its range and is in the first; otherwise it was reset.
# Time in ticks may step back by one or two (proc_stat(5)): nothing has passed then.
MACROS = (
    """CREATE MACRO rise(now, before) AS CASE
        WHEN now >= before THEN now - before
        WHEN before BETWEEN 3221225472 AND 4294967295 AND now < 1073741824 THEN now - before + 4294967296
    END""",
    """CREATE MACRO rise_wide(now, before) AS CASE
        WHEN now::HUGEINT >= before::HUGEINT THEN now::HUGEINT - before::HUGEINT
        WHEN before BETWEEN 3221225472 AND 4294967295 AND now < 1073741824
            THEN now::HUGEINT - before::HUGEINT + 4294967296
        WHEN before >= 13835058055282163712 AND now < 4611686018427387904
            THEN now::HUGEINT - before::HUGEINT + 18446744073709551616
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
    # A clock of the host that stood still or began anew while the collector's went on: suspended, or rebooted.
    steady = f"seconds > 0 AND seconds <= {LONGEST_STEP * step} AND passed - seconds < 0.5 + passed / 100"
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
