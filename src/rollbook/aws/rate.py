"""How fast sessions may start: a token bucket that slows down when the service throttles."""

from __future__ import annotations

import asyncio
import random

__all__ = ["StartRate"]

SLOWEST = 0.2  # starts per second
RECOVERY = 0.05  # of the full rate, regained with every start that was not throttled


class StartRate:
    """Grants starts at `per_second` at most, in the order of the calls.

    The account's limit is shared with other users, so a throttled start halves the rate, and every start that succeeds
    brings it back a little.
    """

    def __init__(self, per_second: float = 3.0) -> None:
        self.per_second = self.current = per_second
        self._free = 0.0
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        """Wait for the next start."""
        async with self._turn:
            now = asyncio.get_running_loop().time()
            wait = self._free - now
            if wait > 0:
                await asyncio.sleep(wait)
            self._free = max(self._free, now) + 1 / self.current

    def throttled(self) -> float:
        """The service refused a start: slow down. Returns the seconds to wait before it is tried again."""
        self.current = max(SLOWEST, self.current / 2)
        return random.uniform(0.5, 1.5) / self.current  # noqa: S311 - spreads retries, guards nothing

    def succeeded(self) -> None:
        """A start was granted: speed up again."""
        self.current = min(self.per_second, self.current + RECOVERY * self.per_second)
