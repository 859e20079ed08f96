"""/sys/class/infiniband: RDMA devices and their ports (ABI/stable/sysfs-class-infiniband)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, info, key, same, unique
from rollbook.sources.text import devices, integer, natural, number, optional, pci_slot

ROOT = "/sys/class/infiniband"


class Port(Facts):
    """One port of one device (InfiniBand, RoCE, EFA…), named `mlx5_0:1`."""

    port: Annotated[str, key()]
    hca_type: Annotated[str | None, same()] = None
    board_id: Annotated[str | None, same()] = None
    firmware: Annotated[str | None, same()] = None
    node_guid: Annotated[str | None, unique()] = None
    pci_slot: Annotated[str | None, same()] = None
    numa_node: Annotated[int | None, same()] = None
    link_layer: Annotated[str | None, same()] = None
    state: Annotated[str | None, same()] = None
    phys_state: Annotated[str | None, same()] = None
    rate_gbps: Annotated[float | None, same("Gb/s")] = None
    rate_name: Annotated[str | None, same()] = None
    lid: Annotated[int | None, info()] = None


def word_of(text: str) -> str:
    """`ACTIVE` of `4: ACTIVE`."""
    return text.partition(":")[2].strip() or text


def parse(pages: Pages) -> list[Port]:
    """Device files, and per port `4: ACTIVE`, `5: LinkUp`, `200 Gb/sec (4X HDR)` and a hexadecimal LID."""
    rows = []
    for device, found in devices(pages, f"{ROOT}/"):
        for port in sorted({path.split("/")[1] for path in found if path.startswith("ports/")}):
            here = {path.removeprefix(f"ports/{port}/"): text for path, text in found.items()}
            rate = re.fullmatch(r"([\d.]+) Gb/sec(?: \((.+)\))?", here.get("rate", ""))
            guid = found.get("node_guid")
            rows.append(
                Port(
                    f"{device}:{port}",
                    hca_type=found.get("hca_type") or None,
                    board_id=found.get("board_id") or None,
                    firmware=found.get("fw_ver") or None,
                    node_guid=guid if guid and guid.strip("0:") else None,
                    pci_slot=optional(found.get(""), pci_slot),
                    numa_node=natural(found.get("device/numa_node")),
                    link_layer=here.get("link_layer") or None,
                    state=optional(here.get("state"), word_of),
                    phys_state=optional(here.get("phys_state"), word_of),
                    rate_gbps=number(rate[1]) if rate else None,
                    rate_name=rate[2] if rate else None,
                    lid=optional(here.get("lid"), lambda text: integer(text, 16)),
                )
            )
    return rows


SOURCE = Glob(
    [
        *(f"{ROOT}/*/{name}" for name in ("fw_ver", "board_id", "hca_type", "node_guid", "device/numa_node")),
        *(f"{ROOT}/*/ports/*/{name}" for name in ("state", "phys_state", "rate", "link_layer", "lid")),
    ],
    parse,
    links=[f"{ROOT}/*"],
)
