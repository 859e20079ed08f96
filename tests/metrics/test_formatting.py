"""Numbers as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollbook.metrics.formatting import amount

CASES = json.loads((Path(__file__).parents[1] / "data" / "formatting" / "amounts.json").read_text())


@pytest.mark.parametrize(("value", "unit", "text"), CASES)
def test_amount(value: float, unit: str, text: str) -> None:
    """The terminal's text; the tests of the page read the same cases."""
    assert amount(value, unit) == text
