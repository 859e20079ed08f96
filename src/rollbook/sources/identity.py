"""/proc/sys/kernel, /etc/machine-id: host name, kernel release and ids (proc_sys_kernel(5), machine-id(5))."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Files, Pages, info, same, unique


class Identity(Facts):
    """Names and ids of a host. Hosts with the same machine id were cloned from one image."""

    hostname: Annotated[str, unique()]
    kernel_release: Annotated[str, same()]
    boot_id: Annotated[str | None, unique()] = None
    machine_id: Annotated[str | None, unique()] = None
    domainname: Annotated[str | None, info()] = None
    machine: Annotated[str | None, same()] = None


def parse(pages: Pages) -> Identity:
    """One word per file. The machine id may be empty or `uninitialized` on images that were never booted."""
    machine_id, boot_id = pages.get("machine_id", "").lower(), pages.get("boot_id")
    if machine_id not in ("", "uninitialized") and not re.fullmatch(r"[0-9a-f]{32}", machine_id):
        raise ParseError(f"not a machine id: {machine_id[:40]!r}")
    if boot_id is not None and not re.fullmatch(r"[0-9a-f-]{36}", boot_id):
        raise ParseError(f"not a boot id: {boot_id[:40]!r}")
    domain = pages.get("domainname", "")
    return Identity(
        pages["hostname"],
        pages["kernel_release"],
        boot_id=boot_id,
        machine_id=machine_id if len(machine_id) == 32 else None,
        domainname=None if domain in ("", "(none)") else domain,
        machine=pages.get("machine"),
    )


SOURCE = Files(
    {
        "hostname": "/proc/sys/kernel/hostname",
        "kernel_release": "/proc/sys/kernel/osrelease",
        "boot_id": "/proc/sys/kernel/random/boot_id",
        "machine_id": "/etc/machine-id",
        "domainname": "/proc/sys/kernel/domainname",
        "machine": "/proc/sys/kernel/arch",  # since Linux 6.1
    },
    parse,
)
