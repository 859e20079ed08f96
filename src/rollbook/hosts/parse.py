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
) -> list[Host]:
    """Hosts of all lists, then of all files, each once, less those in `exclude`; without any, this machine.

    A list that begins with `^` is the path of a host file, as pdsh has it. `exclude` goes by name: users and slots
    in it are of no account. Raises `UsageError` for what cannot be read and when no host is left.
    """
    asked: Hosts = {}
    for part in [*map(_read, hosts), *map(read_hostfile, hostfiles)]:
        add_hosts(asked, part)
    if not hosts and not hostfiles:
        machine = _this_machine()
        asked = {machine.name: machine}
    if len(asked) > MAX_HOSTS:
        raise UsageError(f"more than {MAX_HOSTS:,} hosts in all")
    unwanted = {name for text in exclude for name in _read(text)}
    kept = [host for name, host in asked.items() if name not in unwanted]
    if not kept:
        raise UsageError("no host is left: all that were named are also taken away")
    return mark_local(kept)


def _read(text: str) -> Hosts:
    return read_hostfile(text[1:]) if text.startswith("^") else read_list(text)


def _this_machine() -> Host:
    """This machine by its host name, where that is one; the kernel takes any bytes for it."""
    name = socket.gethostname()
    try:
        return Host(name if expand(name) == [name] else "localhost")
    except HostListError:
        return Host("localhost")
