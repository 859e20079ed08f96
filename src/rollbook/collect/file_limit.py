"""The limit on open files: each host takes a few of them, and the usual limit is for three hundred hosts."""

from __future__ import annotations

import contextlib
import resource

from rollbook.transports.listener import ADDRESSES

__all__ = ["given_back", "make_room", "raised"]

EACH = 4  # per host: three pipes, and one more while it is ended
EACH_BACK = ADDRESSES  # more for one that a launcher starts: its agent tries all addresses of ours at once
BESIDE = 256  # for everything else that this process has open

_before: list[tuple[int, int]] = []


def make_room(hosts: int, launched: int = 0) -> None:
    """Allow this process the files that so many hosts at once need, as far as the system lets it.

    Hosts that are `launched` all come at once, however many are looked at side by side.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = EACH * hosts + EACH_BACK * launched + BESIDE
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
