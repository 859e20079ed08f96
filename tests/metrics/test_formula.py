"""Formulas: the allowed syntax, and equal results in SQL and Python."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.metrics.formula import Formula

VALUES = st.none() | st.integers(-1000, 1000) | st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
TEXTS = [
    "a",
    "a + b * 2",
    "100 * (1 - (a + b) / (a + b + c))",
    "a / b",
    "a / (b - c)",
    "min(a / b, 100) + max(c, 0)",
    "512 * a / 1000",
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTS), VALUES, VALUES, VALUES)
def test_sql_and_python_agree(text: str, a: float | None, b: float | None, c: float | None) -> None:
    """The results are equal, including for missing values and division by zero."""
    formula = Formula(text)
    sql = formula.sql({name: f'"{name}"' for name in "abc"})
    found = duckdb.execute(f"SELECT {sql} FROM (SELECT ?::DOUBLE AS a, ?::DOUBLE AS b, ?::DOUBLE AS c)", [a, b, c])
    row = found.fetchall()[0]
    value = formula.value({"a": a, "b": b, "c": c})
    assert value == (row[0] if row[0] is None else pytest.approx(row[0]))


def test_missing_column() -> None:
    """The formula has no value, in SQL and in Python."""
    assert Formula("a + missing").value({"a": 1}) is None
    assert Formula("a + missing").sql({"a": '"a"'}) == "NULL::DOUBLE"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "a ** b",
        "-a",
        "a.b",
        "a[0]",
        "f(a)",
        "min(a, b)",
        "min(a)",
        "min(a, 1, key=b)",
        "__import__('os')",
        "'text'",
        "a if b else c",
        "lambda: 0",
        "(a := 1)",
    ],
)
def test_invalid_formula(text: str) -> None:
    """Anything but arithmetic is refused when the formula is parsed."""
    with pytest.raises(ValueError, match="formula"):
        Formula(text)


def test_columns() -> None:
    """`columns` has each column name once, and no function names."""
    assert Formula("min(a / b, 3) + a").columns == ("a", "b")
