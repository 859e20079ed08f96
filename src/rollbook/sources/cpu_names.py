"""Processor names, including architectures that report only numbers: Arm, IBM Z, RISC-V."""

from __future__ import annotations

import re

from rollbook.sources.text import integer

__all__ = ["architecture_of", "model_of", "stepping_of", "vendor_of"]

# Numbers of the register MIDR_EL1, see arch/arm64/include/asm/cputype.h.
ARM_PARTS = {
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

ARM_IMPLEMENTERS = {
    0x41: "Arm",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x61: "Apple",
    0xC0: "Ampere",
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


def architecture_of(block: dict[str, str]) -> str | None:
    """The architecture with its name in uname(1), if it can be derived; POWER does not give its byte order."""
    if "CPU implementer" in block:
        return "aarch64" if block.get("CPU architecture") in ("8", "AArch64") else "arm"
    if isa := re.match(r"rv(32|64)", block.get("isa", "")):
        return f"riscv{isa[1]}"
    if "timebase" in block:
        return "power"
    if block.get("vendor_id") == "IBM/S390":
        return "s390x"
    if "flags" in block:
        return "x86_64" if "lm" in block["flags"].split() else "x86"
    return None


def model_of(block: dict[str, str]) -> str | None:
    """The model, from the lines of one CPU in /proc/cpuinfo."""
    if "CPU part" in block and "CPU implementer" in block:
        # Where Arm kernels give a model name, it is only "ARMv8 Processor rev 3 (v8l)".
        implementer, part = integer(block["CPU implementer"], 16), integer(block["CPU part"], 16)
        return ARM_PARTS.get((implementer, part), f"implementer {implementer:#x} part {part:#05x}")
    if "cpu" in block:  # POWER9 (architected), altivec supported
        return block["cpu"].partition(",")[0]
    if "machine" in block and re.fullmatch(r"\d{4}", block["machine"]):
        return IBM_Z.get(block["machine"], f"IBM machine {block['machine']}")
    if "marchid" in block and "uarch" not in block:
        return f"vendor {block.get('mvendorid', 'unknown')} architecture {block['marchid']}"
    return block.get("uarch") or block.get("model name") or None


def vendor_of(block: dict[str, str]) -> str | None:
    """The vendor, or its number if it is unknown."""
    if "CPU implementer" in block:
        implementer = integer(block["CPU implementer"], 16)
        return ARM_IMPLEMENTERS.get(implementer, f"implementer {implementer:#x}")
    return block.get("vendor_id") or block.get("mvendorid") or None


def stepping_of(block: dict[str, str]) -> str | None:
    """The revision of the model, in the form r1p2 for Arm."""
    if "CPU variant" in block and "CPU revision" in block:
        return f"r{integer(block['CPU variant'], 16)}p{integer(block['CPU revision'])}"
    return block.get("stepping") or block.get("revision") or None
