"""/sys/kernel/security, /sys/fs/selinux: SELinux, AppArmor, lockdown, FIPS mode (admin-guide/LSM)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same
from rollbook.sources.text import chosen, flag, when


class Security(Facts):
    """What is on. What the kernel does not have, or hides from the user, is left out."""

    selinux: Annotated[str | None, same()] = None
    apparmor: Annotated[bool | None, same()] = None
    lockdown: Annotated[str | None, same()] = None
    modules: Annotated[list[str] | None, same()] = None
    fips: Annotated[bool | None, same()] = None


def parse(pages: Pages) -> Security:
    """A digit, a letter, a choice in brackets, a list with commas."""
    enforcing = when(pages.get("selinux"), flag)
    return Security(
        selinux={True: "enforcing", False: "permissive", None: None}[enforcing],
        apparmor=when(pages.get("apparmor"), flag),
        lockdown=when(pages.get("lockdown"), chosen),
        modules=pages["modules"].split(",") if "modules" in pages else None,
        fips=when(pages.get("fips"), flag),
    )


SOURCE = Files(
    {
        "selinux": "/sys/fs/selinux/enforce",
        "apparmor": "/sys/module/apparmor/parameters/enabled",
        "lockdown": "/sys/kernel/security/lockdown",
        "modules": "/sys/kernel/security/lsm",
        "fips": "/proc/sys/crypto/fips_enabled",
    },
    parse,
)
