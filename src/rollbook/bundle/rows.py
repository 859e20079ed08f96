r"""The rules of issue reports as data: one table of a TOML file per rule, and the tables of codes that they use.

    [rules.nfs-not-responding]
    severity = "fail"
    logs = ["kernel"]
    find = ["not responding"]
    patterns = ['nfs: server (?P<device>\S+) not responding']
    recovery = ['nfs: server (?P<device>\S+) OK']
    message = "NFS server {device} did not respond"
    what = "…"

Kernels word the same fault differently, so a rule has several patterns. `find` has literal texts, one of which is in
every line that a pattern can match: they are searched first, which is faster than any pattern.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from importlib import resources
from typing import NamedTuple

import msgspec

from rollbook.records.findings import Severity

__all__ = ["Compiled", "Row", "compiled", "harmless", "reasons", "recoveries", "rows", "xids"]

FILES = ("gpu", "kernel", "memory", "storage", "network", "kubernetes", "slurm", "cloud", "report")
XID = r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]+)\): (?P<code>%s)\b"


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regular expression, and the severity of what it matches if it is not that of the rule."""

    match: str
    severity: Severity


class Peers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The severity of a count that is at least `least` and more than `times` the median of the other nodes."""

    times: float
    least: int
    severity: Severity


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. Named groups of the patterns are values for `message`; `device` separates findings."""

    severity: Severity
    what: str
    why: str
    example: str
    fix: str
    reference: str
    logs: tuple[str, ...] = ()
    """Logs whose lines are searched."""
    find: tuple[str, ...] = ()
    patterns: tuple[str | Pattern, ...] = ()
    recovery: tuple[str, ...] = ()
    """Patterns of the line that ends the fault of the same device."""
    recovered: Severity = "warn"
    """The severity if every fault was followed by its recovery."""
    message: str = ""
    following: int = 0
    """Lines after the first match that belong to it, such as a call trace."""
    lasts: bool = False
    """The fault lasts until a repair or a reboot, so it also counts if it happened before the time window."""
    least: int = 1
    """The number of events within `within` seconds that make it a problem; below it, the severity is `below`."""
    within: float = 86400.0
    below: Severity = "note"
    peers: Peers | None = None
    xid: bool = False
    """Its patterns are the Xid codes that `xid.toml` assigns to it."""
    items: tuple[str, ...] = ()
    """Items that its function reads."""
    function: str = ""
    """Compares values: a name in `rollbook.bundle.values`."""


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an Xid code means, and the rule that reports it."""

    meaning: str
    rule: str


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reason why Slurm does not use a node, and the rule that reports it."""

    pattern: str
    rule: str
    meaning: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules, or one of the tables that rules use."""

    dated: dt.date
    """When the references were last compared with the table."""
    source: str = ""
    rules: dict[str, Row] = {}
    codes: dict[str, Code] = {}
    reasons: list[Reason] = []
    patterns: list[str] = []


class Compiled(NamedTuple):
    """A pattern ready for use; the severity is None for that of the rule."""

    match: re.Pattern[str]
    severity: Severity | None


@functools.cache
def rows() -> dict[str, Row]:
    """All rules by id."""
    found: dict[str, Row] = {}
    for file in FILES:
        table = _read(file)
        found |= {
            rule: msgspec.structs.replace(row, reference=f"{row.reference}; as of {table.dated}")
            for rule, row in table.rules.items()
        }
    return found


@functools.cache
def xids() -> dict[int, Code]:
    """The Xid codes of NVIDIA's driver."""
    return {int(code): one for code, one in _read("xid").codes.items()}


@functools.cache
def reasons() -> tuple[Reason, ...]:
    """Slurm's reasons, in the order in which they are compared."""
    return tuple(_read("slurm_reasons").reasons)


@functools.cache
def harmless() -> re.Pattern[str]:
    """Warnings of the kernel that healthy nodes log."""
    return re.compile("|".join(_read("harmless").patterns))


@functools.cache
def compiled(rule: str) -> tuple[Compiled, ...]:
    """The patterns of a rule."""
    row = rows()[rule]
    found = [
        Compiled(re.compile(one), None) if isinstance(one, str) else Compiled(re.compile(one.match), one.severity)
        for one in row.patterns
    ]
    if row.xid and (codes := [str(code) for code, one in xids().items() if one.rule == rule]):
        found.append(Compiled(re.compile(XID % "|".join(codes)), None))
    return tuple(found)


@functools.cache
def recoveries(rule: str) -> tuple[re.Pattern[str], ...]:
    """The patterns of the lines that end a fault."""
    return tuple(re.compile(one) for one in rows()[rule].recovery)


def _read(name: str) -> _Table:
    data = resources.files("rollbook.bundle").joinpath("rules", f"{name}.toml").read_bytes()
    return msgspec.toml.decode(data, type=_Table)
