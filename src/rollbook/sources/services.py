"""systemctl: whether the services that shape a run are active (systemctl(1), is-active)."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Command, Record, columns, same

UNITS = (
    "irqbalance",
    "tuned",
    "chronyd",
    "chrony",
    "ntpd",
    "systemd-timesyncd",
    "slurmd",
    "kubelet",
    "nvidia-persistenced",
    "nvidia-fabricmanager",
)


class Services(Record):
    """active, inactive, failed, activating… per unit. One that is not installed is inactive (older: unknown)."""

    states: Annotated[dict[str, str], columns(same())]


def parse(text: str) -> Services:
    """One word per unit, in the order asked. The exit status is not 0 when any is inactive: that is normal."""
    words = text.split()
    if len(words) != len(UNITS):
        raise ParseError(f"{len(words)} answers to {len(UNITS)} units: {text[:80]!r}")
    return Services(dict(zip(UNITS, words, strict=True)))


SOURCE = Command(["systemctl", "is-active", *UNITS], parse, seconds=5)
