"""Facts about mounts that do not change while other tests run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

from rollbook.sources.mounts import Mount

__all__ = ["lasting_mounts"]


def lasting_mounts(mounts: Iterable[Mount]) -> list[Mount]:
    """The mounts outside temporary directories, below which other tests mount file systems."""
    places = (f"{tempfile.gettempdir()}/", "/var/tmp/")
    return [mount for mount in mounts if not mount.mount_point.startswith(places)]
