"""/sys/devices/system/cpu/vulnerabilities: mitigation of each CPU vulnerability (admin-guide/hw-vuln)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, columns, same
from rollbook.sources.text import last_part


class Mitigations(Facts):
    """The kernel's status text per vulnerability. The list depends on the kernel version."""

    flaws: Annotated[dict[str, str], columns(same())]


def parse(pages: Pages) -> Mitigations:
    """One line per file."""
    return Mitigations({last_part(path): text.strip() for path, text in sorted(pages.items())})


SOURCE = Glob(["/sys/devices/system/cpu/vulnerabilities/*"], parse)
