"""/sys/class/nvme: model, firmware, state and address of each NVMe controller (drivers/nvme/host)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, info, key, same, unique
from rollbook.sources.text import devices, natural

ROOT = "/sys/class/nvme"
NAMES = (
    "model",
    "firmware_rev",
    "serial",
    "state",
    "transport",
    "address",
    "cntlid",
    "numa_node",
    "device/numa_node",
)
AZURE_SERIAL = "SN: 000001"  # of every drive
OWN = ("src_addr=", "host_traddr=", "host_iface=")  # host-specific parts of a fabric address


class Controller(Facts):
    """One controller. Hosts share the targets of a fabric, so `target_serial` is not compared.

    `address` is that of the controller, without the host's own end of a fabric connection.
    """

    controller: Annotated[str, key()]
    model: Annotated[str | None, same()] = None
    firmware: Annotated[str | None, same()] = None
    serial: Annotated[str | None, unique()] = None
    target_serial: Annotated[str | None, info()] = None
    state: Annotated[str | None, same()] = None
    transport: Annotated[str | None, same()] = None
    address: Annotated[str | None, same()] = None
    numa_node: Annotated[int | None, same()] = None
    controller_id: Annotated[int | None, info()] = None


def parse(pages: Pages) -> list[Controller]:
    """One value per file, padded with blanks. Old drivers support only PCIe and have no `transport`."""
    rows = []
    for name, found in devices(pages, f"{ROOT}/"):
        transport = found.get("transport") or None
        local = transport in (None, "pcie", "apple-nvme")
        serial, model, address = found.get("serial") or None, found.get("model") or None, found.get("address", "")
        if serial in (model, AZURE_SERIAL):  # Google's emulated controllers repeat the model
            serial = None
        rows.append(
            Controller(
                name,
                model=model,
                firmware=found.get("firmware_rev") or None,
                serial=serial if local else None,
                target_serial=None if local else serial,
                state=found.get("state") or None,
                transport=transport,
                address=",".join(word for word in address.split(",") if not word.startswith(OWN)) or None,
                numa_node=natural(found.get("numa_node") or found.get("device/numa_node")),
                controller_id=natural(found.get("cntlid")),
            )
        )
    return rows


SOURCE = Glob([f"{ROOT}/nvme[0-9]*/{name}" for name in NAMES], parse)
