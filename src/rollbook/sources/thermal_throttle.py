"""/sys/devices/system/cpu/cpu*/thermal_throttle: thermal throttling events (Intel)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, delta
from rollbook.sources.text import bounded, integer, last_part

ROOT = "/sys/devices/system/cpu"


class Throttle(Facts):
    """Events since boot, summed over all CPUs: each CPU of a package counts the package's events."""

    core: Annotated[int | None, delta()] = None
    package: Annotated[int | None, delta()] = None


def parse(pages: Pages) -> Throttle:
    """One number per file and CPU."""
    sums: dict[str, int] = {}
    for path, text in pages.items():
        level = last_part(path).removesuffix("_throttle_count")
        sums[level] = bounded(sums.get(level, 0) + integer(text.strip()))
    return Throttle(sums.get("core"), sums.get("package"))


SOURCE = Glob(
    [f"{ROOT}/cpu[0-9]*/thermal_throttle/{level}_throttle_count" for level in ("core", "package")],
    parse,
    every=10,
)
