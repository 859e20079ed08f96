"""/proc/cpuinfo: processor model, count and features (proc_cpuinfo(5)).

The format depends on the architecture. Missing values are left out: Arm, POWER and RISC-V do not list sockets and
cores; `cpu_topology` has them.
"""

from __future__ import annotations

import collections
import re
from typing import Annotated

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, File, same, same_set
from rollbook.sources.cpu_names import architecture_of, model_of, stepping_of, vendor_of
from rollbook.sources.text import integer, lines_of

Blocks = list[dict[str, str]]


class CpuInfo(Facts):
    """The processors of a host. Each value is that of most CPUs; if CPUs differ, `mixed` lists all values.

    `flags` are those of every CPU; flags of only some CPUs are in `mixed`.
    """

    logical_cpus: Annotated[int, same("CPUs")]
    architecture: Annotated[str | None, same()] = None
    model: Annotated[str | None, same()] = None
    vendor: Annotated[str | None, same()] = None
    sockets: Annotated[int | None, same()] = None
    physical_cores: Annotated[int | None, same("cores")] = None
    stepping: Annotated[str | None, same()] = None
    microcode: Annotated[str | None, same()] = None
    flags: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)
    mixed: Annotated[dict[str, list[str]], same()] = msgspec.field(default_factory=dict)


def parse(text: str) -> CpuInfo:
    """`name : value` lines, one block per logical CPU."""
    common, blocks = _blocks(text)
    if not blocks:
        raise ParseError("no processor")
    every = [common, *blocks]
    sockets, cores = _topology(blocks)
    names: dict[str, list[str]] = {
        "architecture": [architecture for block in every if (architecture := architecture_of(block))],
        "model": [name for block in every if (name := model_of(block))],
        "vendor": [vendor for block in every if (vendor := vendor_of(block))],
        "stepping": [stepping for block in every if (stepping := stepping_of(block))],
        "microcode": _values(blocks, "microcode"),
    }
    mixed = {field: sorted(set(values)) for field, values in names.items() if len(set(values)) > 1}
    flags = [set(line.split()) for line in _values(every, "flags", "Features", "features")]
    flags += [set(line.split("_")) for line in _values(every, "isa")]  # rv64imafdc_zicsr
    shared = set.intersection(*flags) if flags else set()
    if some := set().union(*flags) - shared:
        mixed["flags"] = sorted(some)
    most = {field: collections.Counter(found).most_common(1)[0][0] for field, found in names.items() if found}
    return CpuInfo(
        logical_cpus=len(blocks),
        sockets=sockets,
        physical_cores=cores,
        flags=sorted(shared),
        mixed=mixed,
        **most,
    )


def _blocks(text: str) -> tuple[dict[str, str], Blocks]:
    """Lines before the first CPU, and one block per CPU; lines about the board at the end go to the last CPU.

    A CPU starts at its `processor` line, not at a blank line: Arm kernels up to 3.18 list all CPUs in one block.
    """
    common: dict[str, str] = {}
    blocks: Blocks = []
    numbered: Blocks = []
    for line in lines_of(text):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            raise ParseError(f"no colon: {line[:80]!r}")
        if re.fullmatch(r"processor \d+", name):  # IBM Z: one line per CPU that contains `machine = 3931`
            pairs = (word.split("=", 1) for word in value.split(",") if "=" in word)
            numbered.append({pair[0].strip(): pair[1].strip() for pair in pairs})
            continue
        if name in ("processor", "cpu number"):
            blocks.append({})
        (blocks[-1] if blocks else common)[name] = value
    return common, blocks or numbered


def _values(blocks: Blocks, *names: str) -> list[str]:
    return [block[name] for block in blocks for name in names if block.get(name)]


def _topology(blocks: Blocks) -> tuple[int | None, int | None]:
    """Sockets and cores, if every CPU lists its own."""
    sockets = _values(blocks, "physical id")
    cores = [(block.get("physical id"), block.get("core id")) for block in blocks]
    if len(sockets) != len(blocks):
        return None, None
    if not all(core for _, core in cores):
        return len(set(sockets)), None
    # On older kernels processors with two dies repeat core numbers; then the two counts disagree.
    stated = {block["physical id"]: integer(block.get("cpu cores", "0")) for block in blocks}
    counted = len(set(cores))
    return len(set(sockets)), counted if sum(stated.values()) in (0, counted) else None


SOURCE = File("/proc/cpuinfo", parse, limit=4096 * KIB)
