"""Differences in words: the value most hosts have first, then the odd hosts as folded nodesets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollbook.hosts import fold
from rollbook.records.findings import Change, Difference, Findings

__all__ = ["change_text", "difference_text", "some", "value_lines", "value_text"]

LONGEST = 160
MOST_NAMES = 5


def difference_text(difference: Difference) -> str:
    """`eth0 mtu: 31 of 32: 9000; node17: 1500 bytes`. Of long lists only the parts that are not the same everywhere."""
    total = sum(len(value.hosts) for value in difference.values)
    texts = _texts([value.value for value in difference.values], difference.unit)
    parts = [f"{fold(value.hosts)}: {text}" for value, text in zip(difference.values, texts, strict=True)]
    first, *rest = difference.values
    if rest and len(first.hosts) > len(rest[0].hosts):
        parts[0] = f"{len(first.hosts)} of {total}: {texts[0]}"
    field = difference.field.partition(".")[2] or difference.field
    return f"{' '.join(filter(None, (difference.row, field)))}: {'; '.join(parts)}"


def change_text(change: Change) -> str:
    """`eth2 operstate: up -> down`; of a count that rose, by how much."""
    field = change.field if not change.row else f"{change.row} {change.field.partition('.')[2] or change.field}"
    if change.mode == "delta" and isinstance(change.before, int) and isinstance(change.after, int):
        return f"{field}: {change.after - change.before} more"
    old, new = _texts([change.before, change.after], change.unit)
    return f"{field}: {old} -> {new}"


def _texts(values: Sequence[Any], unit: str) -> list[str]:
    sets = [_members(value) for value in values]
    if any(members is None for members in sets):
        return [value_text(value, unit) for value in values]
    members = [found for found in sets if found is not None]
    everywhere = set.intersection(*map(set, members))
    rest = [[word for word in found if word not in everywhere] for found in members]
    if not any(rest):  # the same words in another order
        return [value_text(value, unit) for value in values]
    return [_cut(" ".join(words)) or "without" for words in rest]


def _members(value: Any) -> list[str] | None:
    """The words of a list or of a tally, for showing what is not shared; None for a plain value."""
    if isinstance(value, dict):
        return [f"{count} × {name}" if isinstance(count, int) else f"{name}={count}" for name, count in value.items()]
    return [str(one) for one in value] if isinstance(value, list | tuple) else None


def value_text(value: Any, unit: str = "") -> str:
    """A value for people."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | dict):
        return _cut(" ".join(_members(value) or ["empty"]))
    return _cut(f"{value} {unit}".strip())


def some(names: Sequence[str]) -> str:
    """The first few names, and how many there are besides."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def value_lines(findings: Findings) -> list[str]:
    """A line for each value that a rule compared: `pass  mlperf-fsync-off  checkpoint.fsync: required yes; …`."""
    lines = []
    for rule in findings.rules:
        for value in rule.values:
            parts = {"required": value.required, "measured": value.measured, "declared": value.declared}
            known = "; ".join(f"{name} {value_text(one)}" for name, one in parts.items() if one is not None)
            lines.append(f"{rule.outcome:<15} {rule.id}  {value.what}: {known}")
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
