"""/proc/uptime: a site's fabric; a source as another package declares it."""

from typing import Annotated

from rollbook.sources.base import Facts, File, delta, same


class Fabric(Facts):
    """The connection of one host."""

    version: Annotated[str, same()]
    retries: Annotated[int, delta()] = 0


def parse(text: str) -> Fabric:
    """The seconds since boot serve as retries."""
    return Fabric("1.0", int(text.partition(".")[0]))


SOURCE = File("/proc/uptime", parse, every=1)
