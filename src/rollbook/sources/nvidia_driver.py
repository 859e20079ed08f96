"""/proc/driver/nvidia/version: version of the loaded NVIDIA kernel module (NVIDIA driver README)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, same


class Driver(Facts):
    """The module's version, and whether it is the open or the proprietary one."""

    version: Annotated[str, same()]
    open_module: Annotated[bool, same()]


def parse(text: str) -> Driver:
    """`NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build …`."""
    found = re.match(r"NVRM version: .*Kernel Module(?: for \w+)?  (\d+(?:\.\d+)+)\s", text, re.ASCII)
    if not found:
        raise ParseError(f"no module version: {text[:80]!r}")
    return Driver(found[1], "Open Kernel Module" in found[0])


SOURCE = File("/proc/driver/nvidia/version", parse)
