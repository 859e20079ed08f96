"""Space of file systems."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollbook.bundle.evidence import BundleData, node_finding
from rollbook.records.findings import Finding

__all__ = ["full"]

NEARLY = 95  # percent
IMAGES = frozenset({"squashfs", "iso9660", "cramfs", "erofs", "udf"})
"""File systems that are always full."""


def full(run: BundleData) -> Iterator[Finding]:
    """File systems with at least 95 % of their space or inodes in use; 100 % is a failure."""
    for text in run.texts("space", "df *"):
        inodes = any(word in text.source.split() for word in ("-lPi", "-i"))
        for number, line in text.lines():
            found = re.match(r"\S+ +(?:([a-zA-Z]\S*) +)?(?:\d+ +){3}(\d+)% (/.*)$", line)
            if not found or int(found[2]) < NEARLY or found[1] in IMAGES or _is_image(found[3]):
                continue
            what = "inodes" if inodes else "space"
            severity = "fail" if int(found[2]) >= 100 else "warn"
            message = f"{found[3]}: {found[2]} % of {what} used"
            yield node_finding(text.node, message, device=found[3], severity=severity, lines=text.quote(number))  # type: ignore[arg-type]


def _is_image(mount: str) -> bool:
    return mount.startswith(("/snap/", "/media/", "/var/lib/snapd/"))
