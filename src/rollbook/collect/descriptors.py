"""The limit on open files: each host takes a few of them, and the usual limit is for three hundred hosts."""

from __future__ import annotations

import contextlib
import resource

__all__ = ["given_back", "make_room", "raised"]

EACH = 4  # per host: three pipes, and one more while it is ended
BESIDE = 256  # for everything else that this process has open

_before: list[tuple[int, int]] = []


def make_room(hosts: int) -> None:
    """Allow this process the files that so many hosts at once need, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = EACH * hosts + BESIDE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    with contextlib.suppress(OSError, ValueError):  # then hosts that find no room say so
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _before.append((soft, hard))


def raised() -> bool:
    """Whether the limit is no longer the one that this process was started with."""
    return bool(_before)


def given_back() -> None:
    """In a fresh child: have the limit that we were started with, as it would without us."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _before[0])
