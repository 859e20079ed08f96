"""Rounds of MLPerf Storage's rules: one TOML file each, with its source and date."""

from __future__ import annotations

import functools
from importlib import resources

import msgspec

from rollbook.checks.mlperf_round import Round
from rollbook.errors import UsageError

__all__ = ["NAMES", "NEWEST", "load"]

NAMES = ("2026-03", "2026-07")
"""The rounds, oldest first."""

NEWEST = NAMES[-1]


@functools.cache
def load(name: str = NEWEST) -> Round:
    """Return the round of that name; raises `UsageError` for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise UsageError(f"there is no MLPerf Storage round {name!r}; choose one of {', '.join(NAMES)}")
    text = resources.files(__name__).joinpath(f"{name}.toml").read_bytes()
    return msgspec.toml.decode(text, type=Round)
