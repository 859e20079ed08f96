"""/sys/class/site_fabric: a source as another package would bring it."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, File, delta, same


class Fabric(Facts):
    """What a site knows of its own fabric."""

    version: Annotated[str, same()]
    retries: Annotated[int, delta()] = 0


def parse(text: str) -> Fabric:
    """A word."""
    return Fabric(text.strip())


SOURCE = File("/sys/class/site_fabric/version", parse)
