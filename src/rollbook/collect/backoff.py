"""Pauses between retries: exponential, with jitter."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["busy_pauses", "growing_pauses"]

FIRST_BUSY, LONGEST_BUSY = 0.25, 8.0


def growing_pauses(first: float, longest: float) -> Iterator[float]:
    """Seconds to wait before each retry: doubled each time, with jitter so that hosts do not retry together."""
    pause = first
    while True:
        yield pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, not a secret
        pause = min(2 * pause, longest)


def busy_pauses() -> Iterator[float]:
    """The pauses after a busy sshd."""
    return growing_pauses(FIRST_BUSY, LONGEST_BUSY)
