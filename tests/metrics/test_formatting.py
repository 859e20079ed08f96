"""Numbers as text."""

from __future__ import annotations

import pytest

from rollbook.bundle.receive import _missing
from rollbook.cli.output import size
from rollbook.metrics.formatting import amount, number


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0004, "0.0004"), (-0.00041, "-0.00041"), (0.0994, "0.099"), (0.41, "0.41"), (9.1, "9.1"), (27, "27"),
     (99.94, "99.9"), (99.96, "100"), (1234, "1234")],
)  # fmt: skip
def test_number(value: float, text: str) -> None:
    """Numbers below 1 keep up to two significant digits; only 0 is shown as 0."""
    assert number(value) == text


@pytest.mark.parametrize(("value", "unit", "text"), [(0.0004, "s", "0.0004 s"), (1536, "B/s", "1.5 KiB/s")])
def test_amount(value: float, unit: str, text: str) -> None:
    """The unit follows the number; bytes have a binary prefix."""
    assert amount(value, unit) == text


def test_sizes_are_equal_everywhere() -> None:
    """The command line and issue reports format bytes as metrics do."""
    sizes = (0, 999, 2**20 - 1, 64 << 30, 3 * 10**12)
    assert [size(each) for each in sizes] == ["0 B", "999 B", "1 MiB", "64 GiB", "2.73 TiB"]
    assert _missing(1 << 20, 3 << 20, 0) == "the first 3 MiB of 4 MiB"
