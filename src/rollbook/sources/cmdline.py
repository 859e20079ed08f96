"""/proc/cmdline: kernel command line (admin-guide/kernel-parameters)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, info, same

# Parameters with host-specific values: disks, addresses, boot files. Their presence is compared, their value is not.
_OWN = (
    "BOOT_IMAGE BOOTIF boot hostname ifname initrd ip iscsi_initiator iscsi_target_ip netroot nfsroot ostree "
    "rd.dm.uuid rd.iscsi.initiator rd.luks.name rd.luks.uuid rd.lvm.lv rd.lvm.vg rd.md.uuid rd.znet resume root "
    "systemd.hostname systemd.machine_id wwid wwinit.image wwinit.runtime wwinit.system wwinit.uri"
)
OWN = frozenset(_OWN.split())


class Cmdline(Facts):
    """The command line, and its parameters with host-specific values replaced by `*`."""

    words: Annotated[list[str], same()]
    raw: Annotated[str, info()]


def parse(text: str) -> Cmdline:
    """Parameters separated by blanks; double quotes protect blanks."""
    found = re.findall(r'(?:[^\s"]|"[^"]*"?)+', text.strip())
    if not found:
        raise ParseError("empty")
    words = []
    for word in found:
        name, equals, _ = word.partition("=")
        words.append(f"{name}=*" if equals and name in OWN else word)
    return Cmdline(words, text.strip())


SOURCE = File("/proc/cmdline", parse)
