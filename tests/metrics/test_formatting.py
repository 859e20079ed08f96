"""Numbers as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollbook.bundle.receive import _missing
from rollbook.cli.output import size
from rollbook.metrics.formatting import amount

CASES = json.loads((Path(__file__).parents[1] / "data" / "formatting" / "amounts.json").read_text())


@pytest.mark.parametrize(("value", "unit", "text"), CASES)
def test_amount(value: float, unit: str, text: str) -> None:
    """The terminal's text; the tests of the page read the same cases."""
    assert amount(value, unit) == text


def test_sizes_are_equal_everywhere() -> None:
    """The command line and issue reports format bytes as metrics do."""
    sizes = (0, 999, 2**20 - 1, 64 << 30, 3 * 10**12)
    assert [size(each) for each in sizes] == ["0 B", "999 B", "1 MiB", "64 GiB", "2.73 TiB"]
    assert _missing(1 << 20, 3 << 20, 0) == "the first 3 MiB of 4 MiB"
