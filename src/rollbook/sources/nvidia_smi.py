"""nvidia-smi: firmware, modes, limits and errors of NVIDIA GPUs (nvidia-smi --help-query-gpu)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Annotated, Any

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Command, Facts, delta, gauge, info, key, same, unique
from rollbook.sources.text import integer, number


class Gpu(Facts):
    """One GPU. Current clocks, power and link generation are volatile; limits and modes are compared."""

    index: Annotated[int, key()]
    uuid: Annotated[str | None, unique()] = None
    name: Annotated[str | None, same()] = None
    driver_version: Annotated[str | None, same()] = None
    vbios_version: Annotated[str | None, same()] = None
    serial: Annotated[str | None, info()] = None
    pci_slot: Annotated[str | None, same()] = None
    pcie_gen: Annotated[int | None, gauge("generation")] = None
    pcie_gen_max: Annotated[int | None, same()] = None
    pcie_width: Annotated[int | None, gauge("lanes")] = None
    pcie_width_max: Annotated[int | None, same("lanes")] = None
    memory_total_mib: Annotated[int | None, same("MiB")] = None
    memory_used_mib: Annotated[int | None, gauge("MiB")] = None
    ecc_mode: Annotated[str | None, same()] = None
    mig_mode: Annotated[str | None, same()] = None
    persistence_mode: Annotated[str | None, same()] = None
    compute_mode: Annotated[str | None, same()] = None
    power_limit_w: Annotated[float | None, same("W")] = None
    power_draw_w: Annotated[float | None, gauge("W")] = None
    sm_clock_max_mhz: Annotated[int | None, same("MHz")] = None
    sm_clock_mhz: Annotated[int | None, gauge("MHz")] = None
    temperature: Annotated[int | None, gauge("°C")] = None
    utilization_percent: Annotated[int | None, gauge("%")] = None
    ecc_uncorrected: Annotated[int | None, delta()] = None


def slot_of(bus_id: str) -> str:
    """Convert `00000000:3B:00.0` to the kernel's form `0000:3b:00.0`."""
    domain, _, place = bus_id.partition(":")
    return f"{integer(domain, 16):04x}:{place.lower()}"


# Query names and their parsers, in the order of the fields above.
QUERY: dict[str, Callable[[str], Any]] = {
    "index": integer,
    "uuid": str,
    "name": str,
    "driver_version": str,
    "vbios_version": str,
    "serial": str,
    "pci.bus_id": slot_of,
    "pcie.link.gen.current": integer,
    "pcie.link.gen.max": integer,
    "pcie.link.width.current": integer,
    "pcie.link.width.max": integer,
    "memory.total": integer,
    "memory.used": integer,
    "ecc.mode.current": str,
    "mig.mode.current": str,
    "persistence_mode": str,
    "compute_mode": str,
    "power.limit": number,
    "power.draw": number,
    "clocks.max.sm": integer,
    "clocks.sm": integer,
    "temperature.gpu": integer,
    "utilization.gpu": integer,
    "ecc.errors.uncorrected.volatile.total": integer,
}


def value_of(word: str, read: Callable[[str], Any]) -> Any:
    """The value, or None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and other text in brackets."""
    return None if not word or word == "N/A" or word.startswith("[") else read(word)


def parse(text: str) -> list[Gpu]:
    """One line of comma-separated values per GPU. Error messages (no driver, GPU lost) are on standard output too."""
    if text.strip() == "No devices were found":
        return []
    rows = []
    if len(text) > 128 * KIB:  # the csv module raises an error for longer fields
        raise ParseError("output too long")
    for words in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(words) != len(QUERY):
            raise ParseError(", ".join(words)[:200])
        _, *values = map(value_of, words, QUERY.values())
        rows.append(Gpu(integer(words[0]), *values))
    return rows


SOURCE = Command(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"], parse, seconds=20)
