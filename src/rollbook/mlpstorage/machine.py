"""Single parts of this machine's record, by the names of the tool's newest version: they never raise.

They parse the files of Rollbook's own sources. What cannot be read is empty.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rollbook.agent.reading import environment
from rollbook.errors import ParseError
from rollbook.mlpstorage.shapes import hardware
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue

__all__ = [
    "collect_chassis_model",
    "collect_drives",
    "collect_environment",
    "collect_networking",
    "collect_sysctl",
]

PRODUCT_NAME = "/sys/class/dmi/id/product_name"
NETWORK, INFINIBAND, SETTINGS = "/sys/class/net", "/sys/class/infiniband", "/proc/sys"
MAX_BYTES = 256 * 1024  # of one file


def collect_chassis_model(dmi_path: str = PRODUCT_NAME) -> str:
    """Return the product name of the machine; empty if it is unknown or a placeholder of the vendor."""
    return str(_part("chassis_model", {PRODUCT_NAME: dmi_path}, "dmi"))


def collect_networking(net_root: str = NETWORK, ib_root: str = INFINIBAND) -> list[dict[str, Any]]:
    """Return a dict for each network card: type, state and, while it is up, its speed in Gb/s where it is known."""
    return list(_part("networking", {NETWORK: net_root, INFINIBAND: ib_root}, "net_class", "infiniband", "addresses"))


def collect_sysctl(
    proc_sys_root: str = SETTINGS, allowlist: Iterable[re.Pattern[str]] | None = None
) -> list[dict[str, str]]:
    """Return name and value of kernel settings: those that affect storage and network, or those that a pattern fits."""
    if allowlist is None:
        return list(_part("sysctl", {SETTINGS: proc_sys_root}, "sysctl"))
    patterns, found = list(allowlist), []
    for directory, _, files in os.walk(proc_sys_root):
        for path in (Path(directory, file) for file in files):
            name = ".".join(path.relative_to(proc_sys_root).parts)
            if any(pattern.match(name) for pattern in patterns):
                with contextlib.suppress(OSError):  # some settings can only be written
                    found.append({"name": name, "value": _text(path).rstrip("\n")})
    return sorted(found, key=lambda row: row["name"])


def collect_environment() -> list[dict[str, str]]:
    """Return name and value of the variables for MPI, network and storage, by name; secrets are masked."""
    return list(_part("environment", {}, "environment"))


def collect_drives() -> list[dict[str, Any]]:
    """Return a dict for each NVMe, SATA or SAS disk: vendor, model, interface and capacity in GB."""
    return list(_part("drives", {}, "block"))


def _part(key: str, places: Mapping[str, str], *sources: str) -> Any:
    """One key of the record, from these sources; `places` are the directories to read instead of the usual ones."""
    host = HostResult(name=socket.gethostname(), status="complete")
    for name in sources:
        source = catalogue.source(name)
        pages: dict[str, str] = {}
        for order in source.orders:
            if order.op == "env":
                pages["environment"] = environment(list(order.args)).decode(errors="replace")
            else:
                pages |= _pages(order.args[0], places, is_link=order.op == "link")
        with contextlib.suppress(ParseError):
            host.facts[name] = source.parse(pages)
    return hardware(host)[key]


def _pages(pattern: str, places: Mapping[str, str], *, is_link: bool) -> dict[str, str]:
    """The files that fit a pattern, by the paths that the parser expects."""
    usual = next((place for place in places if pattern.startswith(place)), "")
    actual = places.get(usual, "")
    found = {}
    root = Path(actual or "/")
    for path in root.glob(pattern.removeprefix(usual).lstrip("/")) if pattern != usual else [root]:
        with contextlib.suppress(OSError):
            text = str(path.readlink()) if is_link else _text(path)
            found[usual + str(path).removeprefix(actual)] = text
    return found


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_BYTES).decode(errors="replace")
