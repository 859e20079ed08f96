"""A transport as another package would declare it: it has one option and starts the agent in a zone of the site."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rollbook.errors import Refused, TransportError
from rollbook.hosts import Host
from rollbook.transports.base import Ending, PipeTransport
from rollbook.transports.local import Local
from rollbook.transports.options import Option, Python


def _is_zone(zone: str) -> None:
    if not zone.isalpha():
        raise ValueError("a zone has letters only")


@dataclasses.dataclass(frozen=True)
class Site(PipeTransport):
    """Start the agent in a zone of the site."""

    python: Python = None
    site_zone: Annotated[str, Option("Zone of the hosts.", metavar="ZONE", check=_is_zone)] = "main"
    name = "site"

    def argv(self, host: Host) -> list[str]:
        """The agent, with the zone in its environment."""
        return ["env", f"SITE_ZONE={self.site_zone}", *Local(self.python).argv(host)]

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """The zone's own message."""
        del heard
        return Refused(f"zone {self.site_zone} does not admit {host.name}: {ending.stderr}")
