"""Messages through the logger that the caller gave, which may lack the tool's own levels, or be None."""

from __future__ import annotations

from typing import Any

__all__ = ["log"]

# Levels of the tool's logger, and the standard ones that stand in for them.
STANDARD = {"status": "info", "result": "info", "verbose": "debug", "verboser": "debug", "ridiculous": "debug"}


def log(logger: Any, level: str, message: str) -> None:
    """Pass on a finished message; it is never formatted again."""
    method = getattr(logger, level, None) or getattr(logger, STANDARD.get(level, level), None)
    if method is not None:
        method(message)
