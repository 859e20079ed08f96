"""The limit on open files: each host uses a few, and the usual soft limit is enough for about 250 hosts."""

from __future__ import annotations

import contextlib
import resource

from rollbook.transports.listener import ADDRESSES

__all__ = ["is_raised", "raise_limit", "restore_limit"]

PER_HOST = 4  # three pipes, and one more while it is ended
PER_LAUNCHED = ADDRESSES  # connections of a launched agent, which tries all our addresses at once
OTHERS = 256  # for everything else that this process opens

_before: list[tuple[int, int]] = []


def raise_limit(hosts: int, launched: int = 0) -> None:
    """Raise this process's limit on open files for this many hosts at once, as far as the hard limit allows.

    The agents of `launched` hosts all connect at once, whatever the fan-out.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = PER_HOST * hosts + PER_LAUNCHED * launched + OTHERS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    with contextlib.suppress(OSError, ValueError):  # hosts that find no free descriptor then fail with that reason
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _before.append((soft, hard))


def is_raised() -> bool:
    """Whether the limit differs from the one that this process was started with."""
    return bool(_before)


def restore_limit() -> None:
    """In a new child: restore the limit that this process was started with."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _before[0])
