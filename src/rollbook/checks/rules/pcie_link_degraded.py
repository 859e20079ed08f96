"""A PCIe device runs with fewer lanes or at a lower speed than device and slot support.

Why: A card in the wrong slot, or not seated properly, has half its bandwidth or less.
Example: pci 0000:3b:00.0 (ethernet): 8.0 GT/s × 8 instead of 16.0 GT/s × 16 (node17)
Fix: Reseat the card or try another slot; check the slot settings in the firmware.
Reference: ABI/testing/sysfs-bus-pci
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.text import findings_by_text
from rollbook.records.findings import Finding
from rollbook.sources.pci import Device

ID, SEVERITY, NEEDS = "pcie-link-degraded", "warn", (Device,)


def check(run: RunData) -> Iterator[Finding]:
    """Devices slower than both ends of their link support; one finding per device."""
    return findings_by_text((_describe(device), host.name) for host, device in run.each(Device) if device.degraded)


def _describe(device: Device) -> str:
    speed = _less(device.max_link_gts, device.port_link_gts)
    width = _less(device.max_link_width, device.port_link_width)
    now, best = f"{device.link_gts} GT/s × {device.link_width}", f"{speed} GT/s × {width}"
    return f"pci {device.slot} ({device.kind}): {now} instead of {best}"


def _less(device: float | None, port: float | None) -> float | None:
    return port if device is not None and port is not None and port < device else device
