"""How to get to a host: each transport starts the agent there and carries its bytes."""

from __future__ import annotations

import dataclasses
import getpass
from collections.abc import Callable

from rollbook.errors import UsageError
from rollbook.hosts import Host
from rollbook.transports.base import Transport
from rollbook.transports.local import Local
from rollbook.transports.ssh import Ssh

__all__ = ["NAMES", "Options", "route"]

NAMES = ("auto", "local", "ssh")


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user said about ways to hosts."""

    via: str = "auto"
    ssh_user: str | None = None
    ssh_config: str | None = None
    ssh_options: tuple[str, ...] = ()
    python: str | None = None
    timeout: float = 60.0


def route(options: Options) -> Callable[[Host], Transport]:
    """The transport for each host. `auto` takes local for this machine, as this user, and ssh for the rest."""
    # A host that drops packets must be given up before its deadline, so that the reason is ssh's own.
    connect = max(1, min(10, int(options.timeout * 2 / 3)))
    ssh = Ssh(options.ssh_user, options.ssh_config, options.ssh_options, options.python, connect)
    local = Local(options.python)
    if options.via == "auto":
        me = (None, getpass.getuser())
        return lambda host: local if host.local and host.user in me and options.ssh_user in me else ssh
    if options.via in ("local", "ssh"):
        chosen: Transport = {"local": local, "ssh": ssh}[options.via]
        return lambda _: chosen
    raise UsageError(f"no transport is called {options.via!r}; there are: {', '.join(NAMES)}")
