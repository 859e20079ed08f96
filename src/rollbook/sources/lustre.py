"""/sys/fs/lustre: version, health, tunables and connections of a Lustre client (lctl-get_param(8))."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, Glob, Pages, columns, expected, info, same
from rollbook.sources.text import choice

# In the 2.x releases parameters moved from /proc to /sys; those with several values to debugfs (root only).
ROOTS = ("/sys/fs/lustre", "/proc/fs/lustre")
DEVICE_TUNABLES = ("max_rpcs_in_flight", "max_pages_per_rpc", "max_dirty_mb", "checksums", "checksum_type")
CLIENT_TUNABLES = ("max_read_ahead_mb", "max_read_ahead_per_file_mb", "statahead_max")
PATTERNS = (
    *(f"{root}/{file}" for root in ROOTS for file in ("version", "health_check")),
    *(f"{root}/{kind}/*/{name}" for root in ROOTS for kind in ("osc", "mdc") for name in DEVICE_TUNABLES),
    *(f"{root}/llite/*/{name}" for root in ROOTS for name in CLIENT_TUNABLES),
    *(f"{root}/{kind}/*/import" for root in (*ROOTS, "/sys/kernel/debug/lustre") for kind in ("osc", "mdc")),
)


class Lustre(Facts):
    """One client. Tunables are named `osc.FSNAME.name` and list the distinct values of all targets.

    `imports` has the connection state per target: FULL is connected, IDLE is connected but unused.
    """

    version: Annotated[str | None, same()]
    health: Annotated[str | None, expected()]
    tunables: Annotated[dict[str, str], columns(same())]
    imports: Annotated[dict[str, str], columns(info())]


def parse(pages: Pages) -> Lustre:
    """One value per file; `import` has the state in its `state:` line."""
    version = health = None
    tunables: dict[str, set[str]] = {}
    imports: dict[str, str] = {}
    for path, text in pages.items():
        *_, kind, device, name = path.split("/")
        # `scratch-OST0003-osc-ffff9d2f4c1a8000`: the address at the end changes with every mount.
        target = re.sub(r"-(?:osc-|mdc-)?[0-9a-f]{8,16}$", "", device)
        if name == "version":
            version = text.split("\n")[0].removeprefix("lustre:").strip()
        elif name == "health_check":
            health = text.strip()
        elif name == "import":
            states = [line.split()[1:] for line in text.split("\n") if line.strip().startswith("state:")]
            if not states or not states[0]:
                raise ParseError(f"no state in the import of {target}")
            imports[target] = states[0][0]
        else:
            file_system = re.sub(r"-(?:OST|MDT)[0-9a-f]{4}$", "", target)
            tunables.setdefault(f"{kind}.{file_system}.{name}", set()).add(choice(text))
    return Lustre(version, health, {name: " ".join(sorted(found)) for name, found in tunables.items()}, imports)


SOURCE = Glob(PATTERNS, parse, limit=1024 * KIB, seconds=5)
