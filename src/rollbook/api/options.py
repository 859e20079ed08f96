"""Arguments that the Python functions share: hosts, fan-out and transport options, checked before anything starts."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from rollbook.api.arguments import check_argument, check_keywords
from rollbook.errors import UsageError
from rollbook.hosts import Host, parse_hosts
from rollbook.transports.routing import GENERAL_OPTIONS, usable_options

__all__ = [
    "MAX_FANOUT",
    "TransportOptions",
    "as_list",
    "check_fanout",
    "hosts_of",
    "require_no_event_loop",
    "transport_keywords",
]

MAX_FANOUT = 4096  # hosts contacted in parallel


class TransportOptions(TypedDict, total=False):
    """The keywords that choose a transport, as the options of the command line do.

    `via` names the transport, `fallback` another one for hosts that returned no data, `timeout` is the time for each
    host in seconds. The others are options of the built-in transports; those of plug-ins are accepted, too.
    """

    via: str
    fallback: str | None
    timeout: float
    python: str | None
    ssh_user: str | None
    ssh_config: str | None
    ssh_options: str | Sequence[str]
    connect_back: str | None
    slurm_args: str
    mpi_bin: str
    mpi_args: str
    allow_run_as_root: bool
    oversubscribe: bool
    cluster: str | None
    instance_groups: str | Sequence[str]
    region: str | None
    profile: str | None
    endpoint_url: str | None
    start_rate: float
    ssm_document: str
    kube_context: str | None
    kubeconfig: str | None
    kube_selector: str | None
    kube_namespace: str
    kube_image: str
    kube_tolerations: str | Sequence[str]
    kube_privileged: bool
    kube_deadline: int


def transport_keywords(options: Mapping[str, Any], keywords: type) -> dict[str, Any]:
    """The options of the transport among those of a function, also of plug-ins; `keywords` declares the function's.

    Raises `TypeError` for an option of the wrong type, and `UsageError` for one that does not exist.
    """
    own = keywords.__annotations__.keys() - TransportOptions.__annotations__.keys()
    check_keywords({name: value for name, value in options.items() if name in {*own, *GENERAL_OPTIONS}}, keywords)
    transport = {name: value for name, value in options.items() if name not in own}
    for name in transport.keys() - TransportOptions.__annotations__.keys():
        usable = usable_options(options.get("via", "auto"), options.get("fallback"))
        if name not in usable:
            known = {*own, *TransportOptions.__annotations__, *usable}
            close = difflib.get_close_matches(name, known, n=1)
            raise UsageError(f"unknown option {name!r}{f'; did you mean {close[0]}?' if close else ''}")
    for name, value in transport.items():
        # A path is accepted for a text, and None is the default of each option.
        if name not in GENERAL_OPTIONS and value is not None and not isinstance(value, os.PathLike):
            check_keywords({name: value}, keywords)
    return transport


def as_list(words: str | Sequence[str]) -> list[str]:
    """One word, or several, as a list: a bare string counts as one item."""
    return [words] if isinstance(words, str) else list(words)


def hosts_of(hosts: str | Sequence[str]) -> list[Host]:
    """The hosts of a nodeset, or of several; without any, this machine."""
    check_argument("hosts", hosts, str | Sequence[str])
    return parse_hosts(as_list(hosts))


def check_fanout(fanout: int) -> int:
    """The same number; raises `UsageError` unless it is from 1 to `MAX_FANOUT`."""
    if fanout not in range(1, MAX_FANOUT + 1):
        raise UsageError(f"the fan-out must be 1 to {MAX_FANOUT} hosts, not {fanout}")
    return fanout


def require_no_event_loop(function: str, instead: str) -> None:
    """Raise `UsageError` inside a running event loop, as every notebook has one; `instead` is what works there."""
    import asyncio  # noqa: PLC0415 - slow to import; lists of records need none

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(f"{function} cannot be called inside a running event loop, as in a notebook: use `{instead}`")
