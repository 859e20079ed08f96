"""/sys/devices/system/cpu/cpuidle: idle driver, governor and disabled states (admin-guide/pm/cpuidle)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, same
from rollbook.sources.text import devices, integer

ROOT = "/sys/devices/system/cpu"


class Idle(Facts):
    """CPU idle settings. The states are those of the first CPU, shallowest first."""

    driver: Annotated[str | None, same()] = None
    governor: Annotated[str | None, same()] = None
    states: Annotated[list[str], same()] = msgspec.field(default_factory=list)
    disabled_states: Annotated[list[str], same()] = msgspec.field(default_factory=list)


def parse(pages: Pages) -> Idle:
    """Older kernels have `current_governor` only on request and `current_governor_ro` always."""
    settings = dict(devices(pages, f"{ROOT}/")).get("cpuidle", {})
    states = sorted(
        (integer(name.removeprefix("state")), found) for name, found in devices(pages, f"{ROOT}/cpu0/cpuidle/")
    )
    return Idle(
        settings.get("current_driver"),
        settings.get("current_governor") or settings.get("current_governor_ro"),
        [found.get("name", "") for _, found in states],
        [found.get("name", "") for _, found in states if found.get("disable", "0") != "0"],
    )


SOURCE = Glob(
    [
        f"{ROOT}/cpuidle/current_driver",
        f"{ROOT}/cpuidle/current_governor",
        f"{ROOT}/cpuidle/current_governor_ro",
        f"{ROOT}/cpu0/cpuidle/state[0-9]*/name",
        f"{ROOT}/cpu0/cpuidle/state[0-9]*/disable",
    ],
    parse,
)
