"""/proc/version: kernel version string (proc_version(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, info


class Version(Facts):
    """The version string and the release in it. Hosts are compared by `identity.kernel_release`."""

    banner: Annotated[str, info()]
    release: Annotated[str, info()]


def parse(text: str) -> Version:
    """`Linux version RELEASE (builder) (compiler) #build …` on one line."""
    system, word, release, *_ = [*text.split(), "", "", ""]
    if (system, word) != ("Linux", "version") or not release:
        raise ParseError(f"not a Linux banner: {text[:80]!r}")
    return Version(text.strip(), release)


SOURCE = File("/proc/version", parse)
