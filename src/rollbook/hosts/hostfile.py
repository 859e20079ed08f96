"""Host files: plain lists, nodesets, and the formats of Open MPI and MPICH.

    # comment
    node1 node2
    node[03-16]:8                     MPICH: host:slots, and `user=` behind it
    root@node17 slots=4 max_slots=8   Open MPI

Keywords apply to every host of their line. Groups of the site may be named; other files may not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from rollbook.errors import HostListError, UsageError
from rollbook.hosts.lists import read_list, slots_of, user_of
from rollbook.hosts.model import Hosts, add_hosts
from rollbook.hosts.nodeset import MAX_HOSTS

__all__ = ["MAX_BYTES", "read_hostfile"]

MAX_BYTES = 16 * 1024 * 1024

# Open MPI allows blanks around the '='. Anchored and possessive, because a line may be as long as the file.
_KEYWORD = re.compile(r"(?<![^\s,])([^\s=,]++)[ \t]*+=[ \t]*+([^\s,]*)")
_SLOTS = {"slots", "cpu", "count"}
_USER = {"user", "username", "user_name"}
# How a launcher places its processes; it does not change which hosts are meant.
_PLACEMENT = {f"max_{word}" for word in _SLOTS} | {f"{word}_max" for word in _SLOTS}
_PLACEMENT |= {"binding", "boards", "cores", "cores_per_socket", "sockets", "sockets_per_board"}


def read_hostfile(path: str | os.PathLike[str]) -> Hosts:
    """The hosts of a file in order; errors name the file and the line and point at the character."""
    hosts: Hosts = {}
    for number, line in enumerate(_text(path).split("\n"), start=1):
        content = line.partition("#")[0]
        if not content.strip(" \t\r"):
            continue
        try:
            add_hosts(hosts, _read_line(content))
        except HostListError as error:
            raise HostListError(line, error.position, f"{path}:{number}: {error.why}") from error
        except UsageError as error:
            raise UsageError(f"{path}:{number}: {error}") from error
        if len(hosts) > MAX_HOSTS:
            raise UsageError(f"{path}:{number}: more than {MAX_HOSTS:,} hosts in total")
    if not hosts:
        raise UsageError(f"{path} contains no hosts")
    return hosts


def _text(path: str | os.PathLike[str]) -> str:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read host file {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: larger than {MAX_BYTES // 1024**2} MiB, too large for a host file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text (byte {error.object[error.start]:#04x})") from error


def _read_line(line: str) -> Hosts:
    given: dict[str, tuple[int, str | int]] = {}
    for found in _KEYWORD.finditer(line):
        key = found[1].replace("-", "_")
        what = "slots" if key in _SLOTS else "user" if key in _USER else ""
        if what in given:
            raise HostListError(line, found.start(), f"{what} given twice")
        if what:
            read = slots_of if what == "slots" else user_of
            given[what] = found.start(), read(line, *found.span(2))
        elif key not in _PLACEMENT:
            raise HostListError(line, found.start(), f"unknown keyword {found[1]!a}; use slots= or user=")
    # Replaced by blanks, so that every position stays the same.
    hosts = read_list(_KEYWORD.sub(lambda found: " " * len(found[0]), line))
    for what, (position, value) in given.items():
        for name, host in hosts.items():
            if getattr(host, what) is not None:
                raise HostListError(line, position, f"{what} given twice for {name}")
            hosts[name] = msgspec.structs.replace(host, **{what: value})
    return hosts
