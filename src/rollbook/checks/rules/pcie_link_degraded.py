"""A PCIe device runs with fewer lanes or at a lower speed than device and slot support.

Why: A card in the wrong slot, or not seated properly, has half its bandwidth or less.
Example: pci 0000:3b:00.0 (ethernet): 8.0 GT/s × 8 instead of 16.0 GT/s × 16 (node17)
Fix: Reseat the card or try another slot; check the slot settings in the firmware.
Reference: ABI/testing/sysfs-bus-pci
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.pci import Device

ID, SEVERITY, NEEDS = "pcie-link-degraded", "warn", (Device,)


def check(run: RunData) -> Iterator[Finding]:
    """Devices slower than both ends of their link support; one finding per device."""
    found: dict[str, list[str]] = {}
    for host, device in run.each(Device):
        if device.degraded:
            now = f"{device.link_gts} GT/s × {device.link_width}"
            best = f"{_less(device.max_link_gts, device.port_link_gts)} GT/s × "
            best += str(_less(device.max_link_width, device.port_link_width))
            found.setdefault(f"pci {device.slot} ({device.kind}): {now} instead of {best}", []).append(host.name)
    for text, names in found.items():
        yield Finding(message=f"{text} ({fold(names)})", hosts=names)


def _less(device: float | None, port: float | None) -> float | None:
    return port if device is not None and port is not None and port < device else device
