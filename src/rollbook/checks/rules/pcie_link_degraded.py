"""A PCIe device runs with fewer lanes or at a lower speed than it and its slot can.

Why: A card in the wrong slot, or not seated well, has half the bandwidth or less.
Example: 0000:3b:00.0 ethernet: 8.0 GT/s × 8, could be 16.0 GT/s × 16 (node17)
Fix: Reseat the card, try another slot; check the slot's settings in the firmware.
Reference: ABI/testing/sysfs-bus-pci
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.pci import Device

ID, SEVERITY, NEEDS = "pcie-link-degraded", "warn", (Device,)


def check(run: Subject) -> Iterator[Finding]:
    """Devices below what both ends of the link can do, like ones together."""
    found: dict[str, list[str]] = {}
    for host, device in run.each(Device):
        if device.degraded:
            now = f"{device.link_gts} GT/s × {device.link_width}"
            best = f"{_less(device.max_link_gts, device.port_link_gts)} GT/s × "
            best += str(_less(device.max_link_width, device.port_link_width))
            found.setdefault(f"{device.slot} {device.kind}: {now}, could be {best}", []).append(host.name)
    for text, names in found.items():
        yield Finding(message=f"{text} ({fold(names)})", hosts=names)


def _less(device: float | None, port: float | None) -> float | None:
    return port if device is not None and port is not None and port < device else device
