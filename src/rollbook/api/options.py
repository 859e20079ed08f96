"""What was asked for: hosts and the way to them, checked before anything begins."""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Sequence
from typing import Any

from rollbook.errors import UsageError
from rollbook.hosts import Host, parse_hosts
from rollbook.transports import Options

__all__ = ["MOST_AT_ONCE", "at_once", "hosts_of", "listed", "outside_a_loop", "ways"]

MOST_AT_ONCE = 4096  # hosts under way


def listed(words: str | Sequence[str]) -> list[str]:
    """One word, or several, as a list: a text is no sequence of letters."""
    return [words] if isinstance(words, str) else list(words)


def hosts_of(hosts: str | Sequence[str]) -> list[Host]:
    """The hosts of a nodeset, or of several; of none, this machine."""
    return parse_hosts(listed(hosts))


def at_once(fanout: int) -> int:
    """How many hosts may be under way at once; raises `UsageError` for a number that none of them could begin with."""
    if fanout not in range(1, MOST_AT_ONCE + 1):
        raise UsageError(f"the fanout is 1 to {MOST_AT_ONCE} hosts under way at once, not {fanout}")
    return fanout


def outside_a_loop(verb: str, instead: str) -> None:
    """Raise `UsageError` inside a running event loop, as every notebook has one; `instead` is what works there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(f"{verb} cannot be called inside a running event loop, as in a notebook: use `{instead}`")


def ways(**options: Any) -> Options:
    """The fields of `Options`; raises `UsageError` for values that can be none."""
    options["ssh_options"] = tuple(listed(options.get("ssh_options", ())))
    asked = Options(**options)
    if not (math.isfinite(asked.timeout) and asked.timeout > 0):
        raise UsageError(f"the time for a host is a number of seconds, not {asked.timeout}")
    for name in ("slurm_args", "mpi_args"):
        try:
            shlex.split(getattr(asked, name))
        except ValueError as error:
            raise UsageError(f"{name} cannot be read: {error}") from error
    return asked
