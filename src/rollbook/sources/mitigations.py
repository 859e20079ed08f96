"""/sys/devices/system/cpu/vulnerabilities: what the kernel does about each CPU flaw (admin-guide/hw-vuln)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, columns, same
from rollbook.sources.text import last_part


class Mitigations(Facts):
    """The kernel's words per flaw: they decide what a system call costs. Kernels differ in the flaws they know."""

    flaws: Annotated[dict[str, str], columns(same())]


def parse(pages: Pages) -> Mitigations:
    """One line per file."""
    return Mitigations({last_part(path): text.strip() for path, text in sorted(pages.items())})


SOURCE = Glob(["/sys/devices/system/cpu/vulnerabilities/*"], parse)
