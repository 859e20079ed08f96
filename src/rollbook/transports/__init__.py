"""How to get to a host: each transport starts the agent there and carries its bytes."""

from __future__ import annotations

import dataclasses
import getpass
import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence

from rollbook.errors import UsageError
from rollbook.hosts import Host
from rollbook.transports.base import Transport
from rollbook.transports.local import Local
from rollbook.transports.mpi import Mpi
from rollbook.transports.slurm import Slurm, allocation
from rollbook.transports.ssh import Ssh

__all__ = ["NAMES", "Options", "fallback", "reason", "route"]

NAMES = ("auto", "local", "ssh", "slurm", "mpi")
LAUNCHERS = ("slurm", "mpi")

GROUP = "rollbook.transports"
"""The entry point group of transports from other packages."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user said about ways to hosts."""

    via: str = "auto"
    ssh_user: str | None = None
    ssh_config: str | None = None
    ssh_options: tuple[str, ...] = ()
    python: str | None = None
    timeout: float = 60.0
    slurm_args: str = ""
    mpi_bin: str = "mpirun"
    mpi_args: str = ""
    allow_run_as_root: bool = False
    oversubscribe: bool = False
    connect_back: str | None = None
    fallback: str | None = None


def route(options: Options) -> Callable[[Host], Transport]:
    """The transport for each host. Inside a Slurm allocation `auto` takes slurm for the allocation's nodes.

    For others it takes local for this machine, as this user, and ssh for the rest. Any other word is obeyed for all.
    """
    ways: dict[str, Callable[[Options], Transport]] = {"local": _local, "ssh": _ssh, "slurm": _slurm, "mpi": _mpi}
    if options.via in ways:
        chosen = ways[options.via](options)
        return lambda _: chosen
    if options.via != "auto":
        plugged = _plugged(options)
        return lambda _: plugged
    local, ssh, nodes = _local(options), _ssh(options), _allocated()
    slurm = _slurm(options) if nodes else None

    def best(host: Host) -> Transport:
        if slurm and host.name in nodes:
            return slurm
        return local if _is_me(host, options) else ssh

    return best


def _plugged(options: Options) -> Transport:
    """A transport that another package brings: an entry point that makes one of the options."""
    from importlib import metadata  # noqa: PLC0415 - looking through all packages takes its time

    found = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    if options.via not in found:
        raise UsageError(f"no transport is called {options.via!r}; there are: {', '.join((*NAMES, *sorted(found)))}")
    try:
        transport: Transport = found[options.via].load()(options)
    except Exception as error:  # whatever a plug-in does
        raise UsageError(f"the transport {options.via!r} cannot be loaded: {error!r}") from error
    return transport


def reason(options: Options, hosts: Sequence[Host]) -> str:
    """Why `auto` chose what it chose, in one line; empty where the user chose."""
    if options.via != "auto":
        return ""
    nodes = _allocated()
    inside = sum(host.name in nodes for host in hosts)
    local = sum(host.name not in nodes and _is_me(host, options) for host in hosts)
    others = len(hosts) - inside - local
    counts = {
        f"slurm for {_counted(inside, 'node')} of job {allocation(os.environ)}": inside,
        "local for this machine": local,
        f"ssh for {_counted(others, 'host')}": others,
    }
    why = "" if nodes else " (not inside a Slurm allocation)"
    return f"via auto: {', '.join(words for words, count in counts.items() if count)}{why}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def fallback(options: Options) -> Callable[[Host], Transport] | None:
    """The way to hosts that the first way gave nothing of, if the user allows one."""
    if options.fallback is None:
        return None
    if options.fallback in LAUNCHERS:
        raise UsageError(f"{options.fallback} starts all hosts at once and cannot be the fallback of some")
    return route(dataclasses.replace(options, via=options.fallback, fallback=None))


def _is_me(host: Host, options: Options) -> bool:
    named = [user for user in (host.user, options.ssh_user) if user is not None]
    return host.local and all(user == _me() for user in named)


def _me() -> str:
    """The name of this user; empty where its number has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _allocated() -> frozenset[str]:
    """The nodes of the allocation that we are in, if srun is there to use it."""
    if not allocation(os.environ) or not shutil.which("srun"):
        return frozenset()
    return frozenset(Slurm().nodes())


def _local(options: Options) -> Transport:
    return Local(_plain(options.python))


def _plain(python: str | None) -> str | None:
    """The word as it is; it goes through two shells, so that one which any of them would change is refused."""
    if python is not None and not re.fullmatch(r"[\w@%+=:,./~-]+", python):
        raise UsageError(f"--python {python!r} is not the name or path of a program that a shell takes as it is")
    return python


def _ssh(options: Options) -> Transport:
    # A host that drops packets must be given up before its deadline, so that the reason is ssh's own.
    connect = max(1, min(10, int(options.timeout * 2 / 3)))
    return Ssh(options.ssh_user, options.ssh_config, options.ssh_options, _plain(options.python), connect)


def _slurm(options: Options) -> Transport:
    return Slurm(
        shlex.split(options.slurm_args),
        python=options.python,
        connect_back=options.connect_back,
        patience=options.timeout * 2 / 3,
    )


def _mpi(options: Options) -> Transport:
    return Mpi(
        options.mpi_bin,
        shlex.split(options.mpi_args),
        allow_run_as_root=options.allow_run_as_root,
        oversubscribe=options.oversubscribe,
        python=options.python,
        connect_back=options.connect_back,
        patience=options.timeout * 2 / 3,
    )
