"""/proc/net/bonding: mode, members and link state of each bond (networking/bonding)."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, columns, delta, info, key, same
from rollbook.sources.text import devices, fields_of, integer, optional

ROOT = "/proc/net/bonding"


class Bond(Facts):
    """One bond. A bond can be up although a member is down: see `slaves`."""

    bond: Annotated[str, key()]
    mode: Annotated[str, same()]
    mii_status: Annotated[str | None, same()] = None
    transmit_hash_policy: Annotated[str | None, same()] = None
    lacp_rate: Annotated[str | None, same()] = None
    active_slave: Annotated[str | None, info()] = None
    slaves: Annotated[dict[str, str], columns(same())] = msgspec.field(default_factory=dict)
    link_failures: Annotated[dict[str, int], columns(delta())] = msgspec.field(default_factory=dict)


def parse(pages: Pages) -> list[Bond]:
    """`Name: value` lines: a section for the bond, then one per member that starts with `Slave Interface:`."""
    rows = []
    for name, found in devices(pages, f"{ROOT}/"):
        own, *parts = re.split(r"^(?=Slave Interface:)", found[""], flags=re.MULTILINE)
        bond = settings(own)
        row = Bond(name, bond["Bonding Mode"], bond.get("MII Status"))
        row.transmit_hash_policy = bond.get("Transmit Hash Policy")
        row.lacp_rate = bond.get("LACP rate")
        row.active_slave = bond.get("Currently Active Slave")
        for slave in map(settings, parts):
            row.slaves[slave["Slave Interface"]] = slave["MII Status"]
            failures = optional(slave.get("Link Failure Count"), integer)
            if failures is not None:
                row.link_failures[slave["Slave Interface"]] = failures
        rows.append(row)
    return rows


def settings(part: str) -> dict[str, str]:
    """The settings of one section; lines without a colon are headings."""
    return fields_of("\n".join(line for line in part.splitlines() if ":" in line), ":")


SOURCE = Glob([f"{ROOT}/*"], parse)
