"""How much a counter rose: equal in SQL and in Python, for every number that a host can send."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollbook.metrics.counters import MACROS, rise, rise_sql
from rollbook.sources.base import U32, Compare, counter

LARGEST = (1 << 63) - 1
EDGES = [-LARGEST, -U32, -1, 0, 1, U32 - 1, U32, LARGEST]
NUMBERS = st.integers(-LARGEST, LARGEST) | st.sampled_from(EDGES)
KINDS = {
    "plain": counter("bytes"),
    "ticks": counter("ticks"),
    "wraps at 32 bits": counter("ms", wraps=U32),
    "wraps at a column": counter("µJ", wraps="top"),
}


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """A connection with the macros."""
    connection = duckdb.connect()
    for macro in MACROS:
        connection.execute(macro)
    return connection


@pytest.mark.parametrize("compare", KINDS.values(), ids=KINDS)
@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS)
@example(LARGEST, -LARGEST, 0)
@example(-LARGEST, U32 - 1, U32)
@example(-LARGEST, LARGEST, -LARGEST)
@example(5, LARGEST, LARGEST)
def test_sql_and_python_agree(
    database: duckdb.DuckDBPyConnection, compare: Compare, now: int, before: int, top: int
) -> None:
    """Whatever a host sends, a query of rates does not fail, for it would have no result for any host."""
    sql = rise_sql("a", "b", compare, top="c")
    query = f"SELECT {sql} FROM (SELECT ?::BIGINT AS a, ?::BIGINT AS b, ?::BIGINT AS c)"
    found = database.execute(query, [now, before, top]).fetchall()[0][0]
    assert found == rise(now, before, compare, top)


@pytest.mark.parametrize(
    ("now", "before", "top", "expected"),
    [(20, 900, 1000, 120), (-20, 900, 1000, None), (20, 1100, 1000, None), (20, -5, 1000, None)],
    ids=["wrapped", "negative", "beyond its range", "was negative"],
)
def test_a_counter_that_wraps_at_a_column(now: int, before: int, top: int, expected: int | None) -> None:
    """It wrapped only if both values are in its range."""
    assert rise(now, before, KINDS["wraps at a column"], top) == expected
