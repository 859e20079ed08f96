"""Names of processors that give only numbers of themselves: Arm parts by implementer, IBM Z machines by type."""

from __future__ import annotations

__all__ = ["ARM", "IBM_Z", "arm_name"]

# The numbers are those of the register MIDR_EL1, as in arch/arm64/include/asm/cputype.h.
ARM = {
    (0x41, 0xC0F): "Cortex-A15",
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x43, 0x0A1): "ThunderX",
    (0x43, 0x0AF): "ThunderX2",
    (0x42, 0x516): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "Kunpeng-920",
    (0x4E, 0x004): "NVIDIA Carmel",
    (0x50, 0x000): "X-Gene",
    (0xC0, 0xAC3): "AmpereOne",
    (0xC0, 0xAC4): "AmpereOne AC04",
}

IBM_Z = {
    "2964": "IBM z13",
    "2965": "IBM z13s",
    "3906": "IBM z14",
    "3907": "IBM z14 ZR1",
    "3931": "IBM z16",
    "3932": "IBM z16 A02",
    "8561": "IBM z15 T01",
    "8562": "IBM z15 T02",
    "9175": "IBM z17",
}


def arm_name(implementer: int, part: int) -> str:
    """The name of a core, or its numbers where the name is not known."""
    return ARM.get((implementer, part), f"implementer {implementer:#x} part {part:#05x}")
