"""Numbers as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollbook.bundle.receive import _missing
from rollbook.cli.output import size
from rollbook.metrics.formatting import amount, duration, times


def cases(name: str) -> list[Any]:
    """Values and their text in the terminal; the tests of the page read the same cases."""
    found: list[Any] = json.loads((Path(__file__).parents[1] / "data" / "formatting" / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize(("value", "unit", "text"), cases("amounts"))
def test_amount(value: float, unit: str, text: str) -> None:
    """A value with its unit."""
    assert amount(value, unit) == text


@pytest.mark.parametrize(("seconds", "text"), cases("durations"))
def test_duration(seconds: float, text: str) -> None:
    """A length of time."""
    assert duration(seconds) == text


@pytest.mark.parametrize(("ratio", "text"), cases("multiples"))
def test_multiple(ratio: float, text: str) -> None:
    """A value as a multiple of the usual one."""
    assert times(ratio) == text


def test_sizes_are_equal_everywhere() -> None:
    """The command line and issue reports format bytes as metrics do."""
    sizes = (0, 999, 2**20 - 1, 64 << 30, 3 * 10**12)
    assert [size(each) for each in sizes] == ["0 B", "999 B", "1 MiB", "64 GiB", "2.73 TiB"]
    assert _missing(1 << 20, 3 << 20, 0) == "the first 3 MiB of 4 MiB"
