"""From the host options of the command line to the hosts."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from rollbook.errors import HostListError, UsageError
from rollbook.hosts.hostfile import read_hostfile
from rollbook.hosts.lists import read_list
from rollbook.hosts.local import mark_local
from rollbook.hosts.model import Host, Hosts, add_hosts
from rollbook.hosts.nodeset import MAX_HOSTS, expand

__all__ = ["parse_hosts"]


def parse_hosts(
    hosts: Sequence[str] = (),
    hostfiles: Sequence[str | os.PathLike[str]] = (),
    exclude: Sequence[str] = (),
    *,
    each_excludes: bool = False,
) -> list[Host]:
    """Hosts of all lists, then of all files, each once, without those in `exclude`; if none is named, this machine.

    A list that begins with `^` is the path of a host file, as in pdsh. `exclude` compares names; users and slots in it
    are ignored. Raises `UsageError` for text that cannot be read and if no host is left; with `each_excludes`, also for
    a list in `exclude` that contains none of the hosts, unless it is a file or a group.
    """
    named: Hosts = {}
    for part in [*map(_read, hosts), *map(read_hostfile, hostfiles)]:
        add_hosts(named, part)
    if not hosts and not hostfiles:
        machine = _this_machine()
        named = {machine.name: machine}
    if len(named) > MAX_HOSTS:
        raise UsageError(f"more than {MAX_HOSTS:,} hosts in total")
    unwanted: set[str] = set()
    for text in exclude:
        names = _read(text).keys()
        if each_excludes and not text.startswith(("^", "@")) and not names & named.keys():
            raise UsageError(f"-x {text} excludes none of the hosts")
        unwanted |= names
    kept = [host for name, host in named.items() if name not in unwanted]
    if not kept:
        raise UsageError("all hosts were excluded")
    return mark_local(kept)


def _read(text: str) -> Hosts:
    return read_hostfile(text[1:]) if text.startswith("^") else read_list(text)


def _this_machine() -> Host:
    """This machine by its host name, if that is a valid one; the kernel accepts any bytes."""
    name = socket.gethostname()
    try:
        return Host(name if expand(name) == [name] else "localhost")
    except HostListError:
        return Host("localhost")
