"""/sys/devices/system/cpu/intel_pstate, cpufreq/boost, amd_pstate: turbo or boost (admin-guide/pm)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same
from rollbook.sources.text import flag, optional

ROOT = "/sys/devices/system/cpu"


class Turbo(Facts):
    """Whether turbo (Intel) or boost (others) is enabled, and the mode of the vendor's driver."""

    enabled: Annotated[bool | None, same()] = None
    intel_pstate: Annotated[str | None, same()] = None
    amd_pstate: Annotated[str | None, same()] = None


def parse(pages: Pages) -> Turbo:
    """`no_turbo` is inverted, and unreadable while intel_pstate is off; then `boost` may exist."""
    no_turbo = optional(pages.get("no_turbo"), flag)
    return Turbo(
        optional(pages.get("boost"), flag) if no_turbo is None else not no_turbo,
        pages.get("intel_pstate"),
        pages.get("amd_pstate"),
    )


SOURCE = Files(
    {
        "no_turbo": f"{ROOT}/intel_pstate/no_turbo",
        "boost": f"{ROOT}/cpufreq/boost",
        "intel_pstate": f"{ROOT}/intel_pstate/status",
        "amd_pstate": f"{ROOT}/amd_pstate/status",
    },
    parse,
)
