"""Which transport reaches which host: the one that was chosen, or for `auto` the best one for each host."""

from __future__ import annotations

import dataclasses
import getpass
import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rollbook.clean import count_text
from rollbook.errors import UsageError
from rollbook.hosts import Host
from rollbook.transports.base import TIMEOUT, Route, Transport
from rollbook.transports.launcher import Launcher
from rollbook.transports.options import Declared
from rollbook.transports.registry import AUTO, BUILT_IN, load, options_of
from rollbook.transports.slurm import Slurm, allocation

__all__ = ["GENERAL_OPTIONS", "Options", "explain_auto", "fallback_route", "known_hosts", "route", "usable_options"]

GENERAL_OPTIONS = ("via", "fallback", "timeout")
"""The options of every transport."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The transport that was chosen and the options given for it; `Options.of` checks them.

    `timeout` is the time for each host in seconds. `given` holds options of transports that differ from their default.
    """

    via: str = AUTO
    fallback: str | None = None
    timeout: float = TIMEOUT
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, *, via: str = AUTO, fallback: str | None = None, timeout: float = TIMEOUT, **given: Any) -> Self:
        """Options by their names; those that are None or equal to their default count as not given.

        Raises `UsageError` for a transport or option that does not exist, for a value that cannot be used, and for an
        option that the chosen transport does not have.
        """
        if not (math.isfinite(timeout) and timeout > 0):
            raise UsageError(f"--timeout must be a positive number of seconds, not {timeout}")
        if fallback is not None and (fallback == AUTO or issubclass(load(fallback), Launcher)):
            raise UsageError(f"the fallback must reach single hosts: {fallback} does not")
        used = _usable(via, fallback)
        usable = usable_options(via, fallback)
        values = {}
        for name, value in given.items():
            owners = [other for other in dict.fromkeys((*BUILT_IN, *used)) if name in options_of(other)]
            if not owners:
                raise UsageError(f"no transport has an option {name!r}")
            declared = options_of(owners[0])[name]
            if value is None or (checked := declared.validate(value)) == declared.default:
                continue
            if name not in usable:
                why = f"here --via auto uses {' and '.join(used)}" if via == AUTO else f"--via is {via}"
                raise UsageError(f"{declared.flag} has no effect: it is an option of {' and '.join(owners)}, and {why}")
            values[name] = checked
        return cls(via, fallback, timeout, values)


def usable_options(via: str, fallback: str | None = None) -> dict[str, Declared]:
    """The options of the transports that may be used, by name; raises `UsageError` if one does not exist."""
    return {name: one for transport in _usable(via, fallback) for name, one in options_of(transport).items()}


def _usable(via: str, fallback: str | None) -> list[str]:
    """The transports that may be used."""
    used = [via] if via != AUTO else [*(["slurm"] if _inside_allocation() else []), "local", "ssh"]
    return [*used, *([fallback] if fallback is not None and fallback not in used else [])]


def route(options: Options) -> Route:
    """The chosen transport for every host.

    Inside a Slurm allocation `auto` takes slurm for the allocation's nodes. For other hosts it takes local for this
    machine, if the user is the same, and ssh for the rest.
    """
    if options.via != AUTO:
        chosen = _make(options.via, options)
        return lambda _: chosen
    nodes = _allocated_nodes()
    local, ssh = _make("local", options), _make("ssh", options)
    slurm = _make("slurm", options) if nodes else None

    def best(host: Host) -> Transport:
        if slurm and host.name in nodes:
            return slurm
        return local if _is_this_account(host, options) else ssh

    return best


def fallback_route(options: Options) -> Route | None:
    """The transport for hosts that returned no data through the first one; None unless the user allows one."""
    if options.fallback is None:
        return None
    return route(dataclasses.replace(options, via=options.fallback, fallback=None))


def known_hosts(options: Options) -> list[str]:
    """The hosts to use if none are named: those that the chosen transport can list, such as a cluster's nodes."""
    if options.via == AUTO or not hasattr(load(options.via), "hosts"):
        return []
    names: list[str] = _make(options.via, options).hosts()  # type: ignore[attr-defined] # not every transport can
    return names


def explain_auto(options: Options, hosts: Sequence[Host]) -> str:
    """What `auto` chose and why, in one line; empty if the user chose, or if there is only this machine."""
    if options.via != AUTO:
        return ""
    nodes = _allocated_nodes()
    inside = sum(host.name in nodes for host in hosts)
    local = sum(host.name not in nodes and _is_this_account(host, options) for host in hosts)
    others = len(hosts) - inside - local
    if local == len(hosts):
        return ""
    counts = {
        f"slurm for {count_text(inside, 'node')} of job {allocation()}": inside,
        "local for this machine": local,
        f"ssh for {count_text(others, 'host')}": others,
    }
    why = "" if nodes else " (not inside a Slurm allocation)"
    return f"via auto: {', '.join(text for text, count in counts.items() if count)}{why}"


def _make(name: str, options: Options) -> Transport:
    """A transport with those of the options that it declares; one with a field `timeout` gets that of hosts, too."""
    kind = load(name)
    values = {option: value for option, value in options.given.items() if option in options_of(name)}
    if any(field.name == "timeout" for field in dataclasses.fields(kind)):  # type: ignore[arg-type]
        values["timeout"] = options.timeout
    return kind(**values)


def _is_this_account(host: Host, options: Options) -> bool:
    """Whether a host is this machine, to be entered as the user that we are."""
    wanted = [user for user in (host.user, options.given.get("ssh_user")) if user is not None]
    return host.local and all(user == _user_name() for user in wanted)


def _user_name() -> str:
    """The name of this user; empty if the user id has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _inside_allocation() -> bool:
    return bool(allocation() and shutil.which("srun"))


def _allocated_nodes() -> frozenset[str]:
    """The nodes of the allocation that this process is in, if srun is installed."""
    return frozenset(Slurm().nodes()) if _inside_allocation() else frozenset()
