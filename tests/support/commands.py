"""The command line under test, as a program and in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["MAIN", "ROLLBOOK", "Ended", "Rollbook"]

MAIN = "from rollbook.cli import main; main()"
ROLLBOOK = [sys.executable, "-c", MAIN]


class Ended(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str


Rollbook = Callable[..., Ended]
"""Runs a command in this process: the fixture `rollbook`."""
