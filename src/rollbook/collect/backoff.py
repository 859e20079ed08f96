"""Pauses between tries: each longer than the last, none quite like another's."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["growing"]


def growing(first: float, longest: float) -> Iterator[float]:
    """Seconds to wait, doubled from try to try, spread so that hosts which failed together do not return together."""
    wait = first
    while True:
        yield wait * random.uniform(0.5, 1.5)  # noqa: S311 - spreads logins, guards nothing
        wait = min(2 * wait, longest)
