"""/sys/kernel/security, /sys/fs/selinux: SELinux, AppArmor, lockdown, FIPS mode (admin-guide/LSM)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same
from rollbook.sources.text import choice, flag, optional


class Security(Facts):
    """Active security features. Those that the kernel lacks or hides from the user are left out."""

    selinux: Annotated[str | None, same()] = None
    apparmor: Annotated[bool | None, same()] = None
    lockdown: Annotated[str | None, same()] = None
    modules: Annotated[list[str] | None, same()] = None
    fips: Annotated[bool | None, same()] = None


def parse(pages: Pages) -> Security:
    """One value per file: 0 or 1, Y or N, a choice in brackets, or a comma-separated list."""
    enforcing = optional(pages.get("selinux"), flag)
    return Security(
        selinux={True: "enforcing", False: "permissive", None: None}[enforcing],
        apparmor=optional(pages.get("apparmor"), flag),
        lockdown=optional(pages.get("lockdown"), choice),
        modules=pages["modules"].split(",") if "modules" in pages else None,
        fips=optional(pages.get("fips"), flag),
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
