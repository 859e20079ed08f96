"""What the hosts of a transport share while an event loop runs: locks, rates, lists that are fetched once."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["loop_state"]

Of = TypeVar("Of", bound=Hashable)
State = TypeVar("State")

_STATES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, Any]] = weakref.WeakKeyDictionary()


def loop_state(transport: Of, make: Callable[[Of], State]) -> State:
    """The state of a transport in the running event loop; the first call makes it."""
    states: dict[Of, State] = _STATES.setdefault(asyncio.get_running_loop(), {})
    if transport not in states:
        states[transport] = make(transport)
    return states[transport]
