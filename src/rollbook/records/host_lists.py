"""The documents of `rollbook hosts`: the selected hosts, and whether each can be used."""

from __future__ import annotations

import msgspec

from rollbook.hosts import Host
from rollbook.records.hosts import Coverage, HostResult

__all__ = ["HostCheck", "HostList"]


class HostList(msgspec.Struct, tag_field="schema", tag="rollbook.hosts/1"):
    """The hosts that the host options name, in order."""

    hosts: list[Host]


class HostCheck(msgspec.Struct, tag_field="schema", tag="rollbook.host-check/1"):
    """Whether each of them can be used; no facts are read."""

    coverage: Coverage
    hosts: list[HostResult]
