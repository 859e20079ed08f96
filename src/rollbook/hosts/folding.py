"""Fold host names into one short nodeset, `node[01-16,20]`.

`expand`, ClusterShell, pdsh and Slurm can read the result: it has no steps, and both ends of a range have the same
padding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from rollbook.hosts.nodeset import MAX_DIGITS

__all__ = ["fold", "natural"]

# A longer run of digits is part of an id, not a counter, and stays text.
_NUMBER = re.compile(rf"(?<![0-9])([0-9]{{1,{MAX_DIGITS}}})(?![0-9])")


def natural(name: str) -> tuple[str | tuple[int, str], ...]:
    """Sort key: n2 before n10, and n10 before n010, since shorter numbers come first."""
    return tuple((len(part), part) if index % 2 else part for index, part in enumerate(_NUMBER.split(name)))


def fold(names: Iterable[str]) -> str:
    """Write host names as a nodeset, each once: sorted by text, numbers in natural order.

    Names that differ only in one number share a bracket. Names with several numbers are joined if the numbers to the
    right are the same set: r[1-2]n[1-4] if both racks have four hosts, r1n[1-4],r2n[1-3] if not.
    """
    by_shape: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for name in names:
        parts = _NUMBER.split(name)
        by_shape.setdefault(tuple(parts[::2]), set()).add(tuple(parts[1::2]))
    return ",".join(piece for shape in sorted(by_shape) for piece in _boxes(shape, by_shape[shape]))


def _boxes(shape: Sequence[str], vectors: Collection[tuple[str, ...]]) -> Iterator[str]:
    """Nodesets that together contain exactly `vectors`, inserted between the texts of `shape`."""
    if len(shape) == 1:
        yield shape[0]
        return
    tails: dict[str, list[tuple[str, ...]]] = {}
    for vector in vectors:
        tails.setdefault(vector[0], []).append(vector[1:])
    alike: dict[frozenset[tuple[str, ...]], list[str]] = {}
    for number in sorted(sorted(tails), key=len):
        alike.setdefault(frozenset(tails[number]), []).append(number)
    for rests, numbers in alike.items():
        head = shape[0] + _ranges(numbers)
        for tail in _boxes(shape[1:], rests):
            yield head + tail


def _ranges(numbers: Sequence[str]) -> str:
    """`[1-3,7]` for numbers in natural order; a padded run ends where its width would change."""
    runs: list[list[str]] = []
    for digits in numbers:
        if runs and _follows(runs[-1], digits):
            runs[-1][1] = digits
        else:
            runs.append([digits, digits])
    text = ",".join(first if first == last else f"{first}-{last}" for first, last in runs)
    return f"[{text}]" if len(numbers) > 1 else text


def _follows(run: list[str], digits: str) -> bool:
    first, last = run
    even = len(digits) == len(first) or first[0] != "0" or first == "0"
    return even and digits == str(int(last) + 1).zfill(len(last))
