"""The command line under test, as a program and in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import rollbook

__all__ = ["MAIN", "ROLLBOOK", "SOURCE", "Ended", "Rollbook"]

SOURCE = Path(rollbook.__file__).parents[1]
"""Where the package is: programs on lab hosts import parts of it."""

MAIN = "from rollbook.cli import main; main()"
ROLLBOOK = [sys.executable, "-c", MAIN]


class Ended(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str


Rollbook = Callable[..., Ended]
"""Runs a command in this process: the fixture `rollbook`."""
